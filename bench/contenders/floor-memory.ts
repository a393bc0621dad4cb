import { serve } from "./floor.ts"

serve()
