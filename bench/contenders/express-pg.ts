/** A service on Express 5 and pg, with express-rate-limit and pino-http. */
import express, { type Request, type Response } from "express"
import { rateLimit } from "express-rate-limit"
import { Redis } from "ioredis"
import { pinoHttp } from "pino-http"
import { type RedisReply, RedisStore } from "rate-limit-redis"
import { database } from "./pg.ts"
import * as Shared from "./shared.ts"

interface Locals {
  key: Shared.Key
}

const app = express()
app.disable("etag")
app.use(pinoHttp())
const keyOf = Shared.keys(database.key)

app.use(async (request, response: Response<unknown, Locals>, next) => {
  const key = await keyOf(request.headers.authorization)
  if (key === undefined) {
    response.status(401).set("www-authenticate", "Bearer").json(Shared.unauthorized)
  } else {
    response.locals.key = key
    next()
  }
})
const keyIn = (response: Response): Shared.Key => (response as Response<unknown, Locals>).locals.key
const byKey = (_: Request, response: Response): string => keyIn(response).id
const redis = Shared.redisUrl === undefined ? undefined : new Redis(Shared.redisUrl)
const storeOf = (prefix: string) =>
  redis && {
    store: new RedisStore({
      prefix,
      sendCommand: (command: string, ...parameters: Array<string>) =>
        redis.call(command, ...parameters) as Promise<RedisReply>
    })
  }
app.use(rateLimit({
  ...storeOf("day:"),
  windowMs: 86_400_000,
  limit: (_, response) => keyIn(response).perDay,
  keyGenerator: byKey,
  legacyHeaders: false,
  standardHeaders: false
}))
app.use(rateLimit({
  ...storeOf("minute:"),
  windowMs: 60_000,
  limit: (_, response) => keyIn(response).perMinute,
  keyGenerator: byKey
}))
app.use(express.json({ limit: "64kb" }))

const statuses = new Set<unknown>([undefined, "available", "pending", "sold"])

app.get("/v1/pets", async (request, response) => {
  const { cursor, limit: limitText = "20", status } = request.query
  const limit = Number(limitText)
  if (!(Number.isInteger(limit) && limit >= 1 && limit <= 100 && statuses.has(status))) {
    response.status(400).end()
    return
  }
  const after = Shared.after(typeof cursor === "string" ? cursor : undefined)
  const { link, pets } = Shared.page(await database.list(after, limit + 1), limit)
  if (link !== undefined) response.set("link", link)
  response.json(pets)
})

app.get("/v1/pets/:petId", async (request, response) => {
  const row = await database.get(Number(request.params.petId))
  if (row === undefined) response.status(404).json(Shared.notFound)
  else response.json(Shared.toPet(row))
})

app.post("/v1/pets", async (request, response) => {
  const { categoryId, name, status } = request.body as Shared.NewPet
  if (typeof name !== "string" || !Number.isInteger(categoryId) || !statuses.has(status)) {
    response.status(400).end()
    return
  }
  const id = await database.create({ name, categoryId, status })
  response.status(201).set("location", `/v1/pets/${id}`).json({ id, name, categoryId, status })
})

app.listen(Shared.port, Shared.host)
