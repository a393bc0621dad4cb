import { serve } from "./fastify.ts"
import { database } from "./pg.ts"

await serve(database)
