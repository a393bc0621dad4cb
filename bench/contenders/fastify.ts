/** A service on Fastify 5 and pg, in the style of Fastify's documentation: schemas of requests and responses, and hooks. */
import Fastify from "fastify"
import { randomUUID } from "node:crypto"
import { Pool, types } from "pg"
import * as Shared from "./shared.ts"

declare module "fastify" {
  interface FastifyRequest {
    key: Shared.Key | null
  }
}

types.setTypeParser(types.builtins.INT8, Number)
const pool = new Pool({ connectionString: Shared.databaseUrl, max: 10 })
const database = Shared.makeDatabase(async (name, text, values) =>
  (await pool.query({ name, text, values: [...values] })).rows
)
const authenticate = Shared.makeAuthenticate(database.findKey)

const status = { type: "string", enum: ["available", "pending", "sold"] } as const
const newPet = {
  type: "object",
  properties: { name: { type: "string" }, categoryId: { type: "integer" }, status },
  required: ["name", "categoryId"]
} as const
const pet = {
  type: "object",
  properties: { id: { type: "integer" }, ...newPet.properties, status: { type: "string" } },
  required: ["id", "name", "categoryId"]
} as const

const app = Fastify({ genReqId: () => randomUUID() })
app.decorateRequest("key", null)
app.addHook("onRequest", async (request, reply) => {
  const key = await authenticate(request.headers.authorization)
  reply.header("x-request-id", request.id)
  if (key === undefined) return reply.code(401).header("www-authenticate", "Bearer").send(Shared.errors.unauthorized)
  request.key = key
  const { headers, isAllowed } = Shared.charge(key)
  reply.headers(headers)
  return isAllowed ? undefined : reply.code(429).send(Shared.errors.limited)
})
app.addHook("onResponse", (request, reply, done) => {
  Shared.log({
    method: request.method,
    route: request.routeOptions.url ?? "none",
    status: reply.statusCode,
    durationMs: reply.elapsedTime,
    keyId: request.key?.id ?? "none",
    requestId: request.id
  })
  done()
})
app.setErrorHandler((error: { readonly statusCode?: number }, _, reply) => {
  const body = (error.statusCode ?? 500) < 500 ? Shared.errors.invalid : Shared.errors.internal
  return reply.code(body.status).send(body)
})

app.get<{ Querystring: Shared.Selection }>("/v1/pets", {
  schema: {
    querystring: {
      type: "object",
      properties: {
        limit: { type: "integer", minimum: 1, maximum: 100, default: 20 },
        cursor: { type: "string" }
      }
    },
    response: { 200: { type: "array", items: pet } }
  }
}, async ({ query }, reply) => {
  const { link, pets } = await database.list(query)
  if (link !== undefined) reply.header("link", link)
  return pets
})

app.get<{ Params: { petId: number } }>("/v1/pets/:petId", {
  schema: { params: { type: "object", properties: { petId: { type: "integer" } } }, response: { 200: pet } }
}, async ({ params: { petId } }, reply) => await database.find(petId) ?? reply.code(404).send(Shared.errors.notFound))

app.post<{ Body: Shared.NewPet; Headers: { "idempotency-key"?: string } }>("/v1/pets", {
  schema: { body: newPet, response: { 201: pet } }
}, async ({ body, headers, key }, reply) => {
  const created = await database.create(body, key?.id ?? "", headers["idempotency-key"])
  if (created === "reused") return reply.code(422).send(Shared.errors.reused)
  if (created.isReplay) reply.header("idempotent-replayed", "true")
  return reply.code(201).header("location", `/v1/pets/${created.id}`).send({ id: created.id, ...body })
})

await app.listen({ host: Shared.host, port: Shared.port })
