import { serve } from "./fastify.ts"
import { database } from "./postgresjs.ts"

await serve(database)
