/** A service on Hono and postgres.js, with hono-rate-limiter. */
import { serve } from "@hono/node-server"
import { Hono } from "hono"
import { rateLimiter } from "hono-rate-limiter"
import { database } from "./postgresjs.ts"
import * as Shared from "./shared.ts"

interface Env {
  Variables: { key: Shared.Key }
}

const app = new Hono<Env>()
const keyOf = Shared.keys(database.key)

app.use(async (context, next) => {
  const key = await keyOf(context.req.header("authorization"))
  if (key === undefined) return context.json(Shared.unauthorized, 401, { "www-authenticate": "Bearer" })
  context.set("key", key)
  return next()
})
app.use(rateLimiter<Env>({
  windowMs: 86_400_000,
  limit: (context) => context.get("key").perDay,
  keyGenerator: (context) => `day:${context.get("key").id}`,
  standardHeaders: false
}))
app.use(rateLimiter<Env>({
  windowMs: 60_000,
  limit: (context) => context.get("key").perMinute,
  keyGenerator: (context) => context.get("key").id
}))

const statuses = new Set<unknown>([undefined, "available", "pending", "sold"])

app.get("/v1/pets", async (context) => {
  const { cursor, limit: given = "20", status } = context.req.query()
  const limit = Number(given)
  if (!(Number.isInteger(limit) && limit >= 1 && limit <= 100 && statuses.has(status))) {
    return context.body(null, 400)
  }
  const { link, pets } = Shared.page(await database.list(Shared.after(cursor), limit + 1), limit)
  return context.json(pets, 200, link === undefined ? {} : { link })
})

app.get("/v1/pets/:petId", async (context) => {
  const row = await database.get(Number(context.req.param("petId")))
  return row === undefined ? context.json(Shared.notFound, 404) : context.json(Shared.toPet(row))
})

app.post("/v1/pets", async (context) => {
  const { categoryId, name, status } = await context.req.json<Shared.NewPet>()
  if (typeof name !== "string" || !Number.isInteger(categoryId) || !statuses.has(status)) {
    return context.body(null, 400)
  }
  const id = await database.create({ name, categoryId, status })
  return context.json({ id, name, categoryId, status }, 201, { location: `/v1/pets/${id}` })
})

serve({ fetch: app.fetch, port: Shared.port, hostname: Shared.host })
