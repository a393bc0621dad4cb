/** A service on Hono and postgres.js, with hono-rate-limiter and pino. */
import { serve } from "@hono/node-server"
import { Hono } from "hono"
import { rateLimiter, RedisStore } from "hono-rate-limiter"
import { Redis } from "ioredis"
import { pino } from "pino"
import { database } from "./postgresjs.ts"
import * as Shared from "./shared.ts"

interface Env {
  Variables: { key: Shared.Key }
}

const app = new Hono<Env>()
const keyOf = Shared.keys(database.key)
const logger = pino()

app.use(async (context, next) => {
  const startedAt = performance.now()
  await next()
  const { method, path } = context.req
  logger.info({ method, path, status: context.res.status, durationMs: performance.now() - startedAt }, "request")
})

app.use(async (context, next) => {
  const key = await keyOf(context.req.header("authorization"))
  if (key === undefined) return context.json(Shared.unauthorized, 401, { "www-authenticate": "Bearer" })
  context.set("key", key)
  return next()
})
const redis = Shared.redisUrl === undefined ? undefined : new Redis(Shared.redisUrl)
const storeOf = (prefix: string) =>
  redis && {
    store: new RedisStore<Env>({
      prefix,
      client: {
        scriptLoad: (script) => redis.script("LOAD", script) as Promise<string>,
        evalsha: (sha, names, parameters) =>
          redis.evalsha(sha, names.length, ...names, ...parameters.map(String)) as Promise<never>,
        decr: (name) => redis.decr(name),
        del: (name) => redis.del(name)
      }
    })
  }
app.use(rateLimiter<Env>({
  ...storeOf("day:"),
  windowMs: 86_400_000,
  limit: (context) => context.get("key").perDay,
  keyGenerator: (context) => `day:${context.get("key").id}`,
  standardHeaders: false
}))
app.use(rateLimiter<Env>({
  ...storeOf("minute:"),
  windowMs: 60_000,
  limit: (context) => context.get("key").perMinute,
  keyGenerator: (context) => context.get("key").id
}))

const statuses = new Set<unknown>([undefined, "available", "pending", "sold"])

app.get("/v1/pets", async (context) => {
  const { cursor, limit: limitText = "20", status } = context.req.query()
  const limit = Number(limitText)
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
