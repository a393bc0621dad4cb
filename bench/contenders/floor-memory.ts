/** The floor from memory: it uses no database, and does less than any service on Node can. */
import { serve } from "./floor.ts"

serve()
