/** The floor: it asks nobody, and so does less than any service in Node can. */
import { serve } from "./floor.ts"

serve()
