/**
 * A service on Effect, in the style of Effect's documentation: HttpApi with schemas in and out, a bearer middleware, a plain
 * pool of sql-pg, and Effect's logger.
 */
import { NodeHttpServer, NodeRuntime } from "@effect/platform-node"
import { PgClient } from "@effect/sql-pg"
import { Cache, Clock, Context, Duration, Effect, Exit, Layer, Logger, Redacted, Schema } from "effect"
import { HttpEffect, HttpRouter, HttpServerResponse } from "effect/http"
import {
  HttpApi,
  HttpApiBuilder,
  HttpApiEndpoint,
  HttpApiGroup,
  HttpApiMiddleware,
  HttpApiSchema,
  HttpApiSecurity
} from "effect/http-api"
import { SqlClient, SqlSchema } from "effect/sql"
import { createHash, randomUUID } from "node:crypto"
import { createServer } from "node:http"
import * as Shared from "./shared.ts"

const fields = { code: Schema.String, message: Schema.String, status: Schema.Int }
class InvalidRequest extends Schema.TaggedError<InvalidRequest>()("InvalidRequest", fields, { httpApiStatus: 400 }) {}
class Unauthorized extends Schema.TaggedError<Unauthorized>()("Unauthorized", fields, { httpApiStatus: 401 }) {}
class PetNotFound extends Schema.TaggedError<PetNotFound>()("PetNotFound", fields, { httpApiStatus: 404 }) {}
class KeyReused extends Schema.TaggedError<KeyReused>()("KeyReused", fields, { httpApiStatus: 422 }) {}
class Limited extends Schema.TaggedError<Limited>()("Limited", fields, { httpApiStatus: 429 }) {}

const PetStatus = Schema.Literals(["available", "pending", "sold"])
const NewPet = Schema.Struct({
  name: Schema.String,
  categoryId: Schema.Int,
  status: Schema.OptionFromOptionalKey(PetStatus)
})
const Pet = Schema.Struct({ id: Schema.Int, ...NewPet.fields })
const PetRow = Schema.Struct({ ...Pet.fields, status: Schema.OptionFromNullOr(PetStatus) })
const Cursor = Schema.StringFromBase64Url.pipe(Schema.decodeTo(Schema.FiniteFromString))

class CurrentKey extends Context.Service<CurrentKey, Shared.Key>()("peer/CurrentKey") {}

class Authorization extends HttpApiMiddleware.Service<Authorization, { provides: CurrentKey }>()("peer/Authorization", {
  security: { bearer: HttpApiSecurity.bearer },
  error: [Unauthorized, Limited]
}) {}

class Validation extends HttpApiMiddleware.Service<Validation>()("peer/Validation", { error: InvalidRequest }) {}

const Api = HttpApi.make("petstore").add(
  HttpApiGroup.make("pets").add(
    HttpApiEndpoint.get("list", "/pets", {
      query: {
        limit: Schema.optionalKey(
          Schema.FiniteFromString.check(Schema.isInt(), Schema.isBetween({ minimum: 1, maximum: 100 }))
        ),
        cursor: Schema.optionalKey(Cursor)
      },
      success: HttpApiSchema.WithHeaders(Schema.Array(Pet), { link: Schema.optionalKey(Schema.String) })
    }),
    HttpApiEndpoint.get("get", "/pets/:petId", {
      params: { petId: Schema.FiniteFromString.check(Schema.isInt()) },
      success: Pet,
      error: PetNotFound
    }),
    HttpApiEndpoint.post("create", "/pets", {
      headers: { "idempotency-key": Schema.optionalKey(Schema.String) },
      payload: NewPet,
      success: HttpApiSchema.WithHeaders(Pet.pipe(HttpApiSchema.status(201)), {
        location: Schema.String,
        "idempotent-replayed": Schema.optionalKey(Schema.Literal("true"))
      }),
      error: KeyReused
    })
  ).middleware(Validation).middleware(Authorization)
).prefix("/v1")

/** Caches what `find` finds for a number of seconds, unless it is 0 or `isFinal` is false for the value. */
const cached = <Key, A, E>(
  find: (key: Key) => Effect.Effect<A, E>,
  seconds: number,
  isFinal: (value: A, key: Key) => boolean = () => true
) => {
  if (seconds === 0) return Effect.succeed(find)
  const timeToLive = (exit: Exit.Exit<A, E>, key: Key) =>
    Duration.seconds(Exit.isSuccess(exit) && isFinal(exit.value, key) ? seconds : 0)
  const cache = Cache.makeWith(find, { capacity: 500_000, timeToLive })
  return Effect.map(cache, (made) => (key: Key) => Cache.get(made, key))
}

const KeyRow = Schema.Struct({ id: Schema.String, perMinute: Schema.Int, perDay: Schema.Int })
const Id = Schema.Struct({ id: Schema.Int })
const Used = Schema.Struct({ id: Schema.Int, request: Schema.String })

/** The statements of the service's operations on its tables. */
const makePets = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  const columns = sql.literal(`id::int, name, category_id::int AS "categoryId", status`)
  const queryPage = SqlSchema.findAll({
    Request: Schema.Struct({ after: Schema.Int, limit: Schema.Int }),
    Result: PetRow,
    execute: ({ after, limit }) =>
      // Not `ORDER BY id`, which would sort all rows by the column of the result.
      sql`SELECT ${columns} FROM pets WHERE id > ${BigInt(after)} ORDER BY pets.id LIMIT ${BigInt(limit)}`
  })
  const queryPet = SqlSchema.findOne({
    Request: Schema.Int,
    Result: PetRow,
    execute: (id) => sql`SELECT ${columns} FROM pets WHERE id = ${BigInt(id)}`
  })
  const findPage = yield* cached(queryPage, Shared.petCacheSeconds, (rows, { limit }) => rows.length === limit)
  const find = yield* cached(queryPet, Shared.petCacheSeconds)
  const insert = (pet: typeof NewPet.Encoded) =>
    sql`INSERT INTO pets (name, category_id, status)
      VALUES (${pet.name}, ${BigInt(pet.categoryId)}, ${pet.status ?? null}) RETURNING id::int`
  const create = SqlSchema.findOne({ Request: NewPet, Result: Id, execute: insert })
  const Once = Schema.Struct({ pet: NewPet, owner: Schema.String, key: Schema.String, request: Schema.String })
  const createOnce = SqlSchema.findOne({
    Request: Once,
    Result: Id,
    // A key that is in use fails the statement, which then stores nothing.
    execute: ({ key, owner, pet, request }) =>
      sql`WITH pet AS (${insert(pet)}), claim AS (
          INSERT INTO idempotency_keys (owner, key, request, pet_id, expires_at)
          SELECT ${owner}, ${key}, decode(${request}, 'hex'), id, now() + interval '24 hours' FROM pet
        ) SELECT id FROM pet`
  })
  const findUsed = SqlSchema.findOne({
    Request: Once,
    Result: Used,
    execute: ({ key, owner }) =>
      sql`SELECT pet_id::int AS id, encode(request, 'hex') AS request FROM idempotency_keys
        WHERE owner = ${owner} AND key = ${key}`
  })
  return {
    list: Effect.fn("Pets.list")((after: number, limit: number) => Effect.orDie(findPage({ after, limit }))),
    get: Effect.fn("Pets.get")((id: number) =>
      Effect.catchTags(find(id), { SqlError: Effect.die, SchemaError: Effect.die })
    ),
    create: Effect.fn("Pets.create")(function*(pet: typeof NewPet.Type, owner: string, key: string | undefined) {
      if (key === undefined) return { ...yield* Effect.orDie(create(pet)), isReplay: false }
      const request = createHash("sha256").update(JSON.stringify(pet)).digest("hex")
      const once = { pet, owner, key, request }
      return yield* createOnce(once).pipe(
        Effect.map(({ id }) => ({ id, isReplay: false })),
        Effect.catchReason("SqlError", "UniqueViolation", () =>
          findUsed(once).pipe(
            Effect.filterOrFail((used) => used.request === request, () => new KeyReused(Shared.errors.reused)),
            Effect.map(({ id }) => ({ id, isReplay: true }))
          )),
        Effect.catchTags({ SqlError: Effect.die, SchemaError: Effect.die, NoSuchElementError: Effect.die })
      )
    })
  }
})

const PetsHandlers = HttpApiBuilder.group(Api, "pets", (handlers) =>
  Effect.gen(function*() {
    const pets = yield* makePets
    return handlers.handleAll({
      list: Effect.fn(function*({ query: { cursor = 0, limit = 20 } }) {
        const rows = yield* pets.list(cursor, limit + 1)
        const page = rows.slice(0, limit)
        const next = rows.length > limit ? page.at(-1) : undefined
        if (next === undefined) return HttpApiSchema.withHeaders({ body: page, headers: {} })
        const after = yield* Effect.orDie(Schema.encodeEffect(Cursor)(next.id))
        const link = `</v1/pets?limit=${limit}&cursor=${after}>; rel="next"`
        return HttpApiSchema.withHeaders({ body: page, headers: { link } })
      }),
      get: ({ params: { petId } }) => Effect.mapError(pets.get(petId), () => new PetNotFound(Shared.errors.notFound)),
      create: Effect.fn(function*({ headers: { "idempotency-key": idempotencyKey }, payload }) {
        const { id: owner } = yield* CurrentKey
        const { id, isReplay } = yield* pets.create(payload, owner, idempotencyKey)
        const headers = { location: `/v1/pets/${id}`, ...isReplay && { "idempotent-replayed": "true" as const } }
        return HttpApiSchema.withHeaders({ body: { id, ...payload }, headers })
      })
    })
  }))

/** Authenticates, counts both windows, and logs each request. A valid key is cached for a second. */
const AuthorizationLayer = Layer.effect(
  Authorization,
  Effect.gen(function*() {
    const sql = yield* SqlClient.SqlClient
    const findKey = SqlSchema.findOne({
      Request: Schema.String,
      Result: KeyRow,
      execute: (hash) =>
        sql`SELECT k.id, k.per_minute::int AS "perMinute", k.per_day::int AS "perDay"
          FROM api_key_secrets s JOIN api_keys k ON k.id = s.key_id
          WHERE s.hash = decode(${hash}, 'hex') AND k.revoked_at IS NULL
            AND (k.expires_at IS NULL OR k.expires_at > now()) AND (s.expires_at IS NULL OR s.expires_at > now())`
    })
    const cachedKey = yield* cached(findKey, 1)
    return Authorization.of({
      bearer: Effect.fn(function*(httpEffect, { credential, endpoint }) {
        const startedAt = yield* Clock.currentTimeMillis
        const requestId = randomUUID()
        const hash = createHash("sha256").update(Redacted.value(credential)).digest("hex")
        const key = yield* cachedKey(hash).pipe(
          Effect.catchTag("NoSuchElementError", () => Effect.void),
          Effect.orDie
        )
        const charged = key && Shared.charge(key)
        yield* HttpEffect.appendPreResponseHandler(Effect.fnUntraced(function*({ method }, response) {
          const { status } = response
          const durationMs = (yield* Clock.currentTimeMillis) - startedAt
          const keyId = key?.id ?? "none"
          const fields = { method, route: endpoint.path, status, durationMs, keyId, requestId }
          yield* Effect.annotateLogs(Effect.logInfo("request"), fields)
          return HttpServerResponse.setHeaders(response, {
            ...charged?.headers,
            "x-request-id": requestId,
            ...status === 401 && { "www-authenticate": "Bearer" }
          })
        }))
        if (key === undefined || charged === undefined) return yield* new Unauthorized(Shared.errors.unauthorized)
        if (!charged.isAllowed) return yield* new Limited(Shared.errors.limited)
        return yield* Effect.provideService(httpEffect, CurrentKey, key)
      })
    })
  })
)

const ValidationLayer = HttpApiMiddleware.layerSchemaErrorTransform(
  Validation,
  () => Effect.fail(new InvalidRequest(Shared.errors.invalid))
)

const server = HttpRouter.serve(
  HttpApiBuilder.layer(Api).pipe(
    Layer.provide(PetsHandlers.pipe(Layer.provide([AuthorizationLayer, ValidationLayer])))
  ),
  { disableLogger: true }
).pipe(
  Layer.provide(NodeHttpServer.layer(createServer, { port: Shared.port, host: Shared.host })),
  Layer.provide(PgClient.layer({ url: Redacted.make(Shared.databaseUrl), maxConnections: 10 })),
  Layer.provide(Logger.layer([Logger.consoleJson]))
)

NodeRuntime.runMain(Layer.launch(server))
