/** A service on Fastify 5 in the style of its documentation: response schemas, hooks, its logger and rate-limit plug-in. */
import rateLimit from "@fastify/rate-limit"
import Fastify, { type FastifyRequest } from "fastify"
import { Redis } from "ioredis"
import * as Shared from "./shared.ts"

declare module "fastify" {
  interface FastifyRequest {
    key: Shared.Key
  }
}

const pet = {
  type: "object",
  properties: {
    id: { type: "integer" },
    name: { type: "string" },
    categoryId: { type: "integer" },
    status: { type: "string" }
  },
  required: ["id", "name", "categoryId"]
} as const
const status = { type: "string", enum: ["available", "pending", "sold"] } as const

export const serve = async (database: {
  readonly key: (hash: Buffer) => Promise<Shared.Key | undefined>
  readonly list: (after: number, limit: number) => Promise<ReadonlyArray<Shared.PetRow>>
  readonly get: (id: number) => Promise<Shared.PetRow | undefined>
  readonly create: (pet: Shared.NewPet) => Promise<number>
}): Promise<void> => {
  const app = Fastify({ logger: true })
  const keyOf = Shared.keys(database.key)
  app.decorateRequest("key")
  app.addHook("onRequest", async (request, reply) => {
    const key = await keyOf(request.headers.authorization)
    if (key === undefined) await reply.code(401).header("www-authenticate", "Bearer").send(Shared.unauthorized)
    else request.key = key
  })
  await app.register(rateLimit, {
    global: false,
    cache: 100_000,
    ...Shared.redisUrl !== undefined && { redis: new Redis(Shared.redisUrl) }
  })
  const byKey = (request: FastifyRequest) => request.key.id
  const countDay = app.createRateLimit({
    max: (request) => request.key.perDay,
    timeWindow: "1 day",
    keyGenerator: byKey
  })
  app.addHook("onRequest", async (request, reply) => {
    const day = await countDay(request)
    if (!day.isAllowed && day.isExceeded) await reply.code(429).send()
  })
  app.addHook(
    "onRequest",
    app.rateLimit({ max: (request) => request.key.perMinute, timeWindow: "1 minute", keyGenerator: byKey })
  )

  app.get<{ Querystring: { limit: number; cursor?: string } }>("/v1/pets", {
    schema: {
      querystring: {
        type: "object",
        properties: {
          limit: { type: "integer", minimum: 1, maximum: 100, default: 20 },
          status,
          cursor: { type: "string" }
        }
      },
      response: { 200: { type: "array", items: pet } }
    }
  }, async ({ query: { cursor, limit } }, reply) => {
    const { link, pets } = Shared.page(await database.list(Shared.after(cursor), limit + 1), limit)
    if (link !== undefined) reply.header("link", link)
    return pets
  })

  app.get<{ Params: { petId: number } }>("/v1/pets/:petId", {
    schema: { params: { type: "object", properties: { petId: { type: "integer" } } }, response: { 200: pet } }
  }, async ({ params: { petId } }, reply) => {
    const row = await database.get(petId)
    return row === undefined ? reply.code(404).send(Shared.notFound) : Shared.toPet(row)
  })

  app.post<{ Body: Shared.NewPet }>("/v1/pets", {
    schema: {
      body: {
        type: "object",
        properties: { name: { type: "string" }, categoryId: { type: "integer" }, status },
        required: ["name", "categoryId"]
      },
      response: { 201: pet }
    }
  }, async ({ body: { categoryId, name, status } }, reply) => {
    const id = await database.create({ name, categoryId, status })
    return reply.code(201).header("location", `/v1/pets/${id}`).send({ id, name, categoryId, status })
  })

  await app.listen({ host: Shared.host, port: Shared.port })
}
