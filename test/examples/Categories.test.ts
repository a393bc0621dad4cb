/** Tests `examples/categories`, a second resource: it has all that the pets have, on each store. */
import { assert, it } from "@effect/vitest"
import { Arbitrary, Effect, Layer } from "effect"
import { HttpApi } from "effect/http-api"
import { NewCategory } from "../../examples/categories/CategoriesApi.ts"
import { api, makeStores, migrate, routes } from "../../examples/categories/resources.ts"
import { layerMemory } from "../../src/collection/Collection.ts"
import * as SqlCollection from "../../src/collection/SqlCollection.ts"
import * as ApiServer from "../../src/http/ApiServer.ts"
import * as HeldServices from "../../src/node-server/HeldServices.ts"
import { assertCommonHeaders, assertError, assertSuccess } from "../support/Assertions.ts"
import { databases, describeOnEach, memory, stores } from "../support/Databases.ts"
import { Service, service } from "../support/Service.ts"

const port = HeldServices.provide(makeStores(layerMemory))(ApiServer.layer(api, routes))
const config = { CORS_ORIGINS: "https://shop.test" }
const services = [
  { name: "memory", skip: false, layer: service(memory, config, { port }) },
  ...databases.flatMap((database) => {
    const onSql = Layer.provide(makeStores(SqlCollection.layer(Effect.succeed(300))), Layer.orDie(migrate))
    const sqlPort = HeldServices.provide(Layer.orDie(Layer.provide(onSql, database.layer)))(
      ApiServer.layer(api, routes)
    )
    const store = stores.find(({ name }) => name === database.name) ?? assert.fail(database.name)
    return { ...database, layer: service(store.layer, config, { port: sqlPort }) }
  })
]

const path = "/v1/categories"

const newClient = Effect.gen(function*() {
  const { call, newKey } = yield* Service
  const key = yield* newKey
  return (method: string, url: string, body?: object, headers: Readonly<Record<string, string>> = {}) =>
    call(url, {
      key,
      method,
      headers: { ...headers, ...body && { "content-type": "application/json" } },
      ...body && { body: JSON.stringify(body) }
    })
})

describeOnEach(services, "Categories", (it) => {
  it.effect("are created, listed over pages, read, changed and deleted", () =>
    Effect.gen(function*() {
      const send = yield* newClient
      const created = yield* send("POST", path, { name: "Dogs", slug: "dogs" })
      const id = Number(/\d+$/.exec(created.headers.get("location") ?? "")?.[0])
      const dogs = `{"id":${id},"name":"Dogs","slug":"dogs"}`
      assertSuccess(created, 201, dogs)
      const cats = (yield* send("POST", path, { name: "Cats", slug: "cats" })).text
      const page = yield* send("GET", `${path}?limit=1`)
      assertSuccess(page, 200, `[${dogs}]`)
      const [, next = ""] = /<(.*)>; rel="next"/.exec(page.headers.get("link") ?? "") ?? []
      assertSuccess(yield* send("GET", next), 200, `[${cats}]`)
      for (const _ of ["read", "cached"]) assertSuccess(yield* send("GET", `${path}/${id}`), 200, dogs)
      const hounds = dogs.replace("Dogs", "Hounds")
      assertSuccess(yield* send("PATCH", `${path}/${id}`, { name: "Hounds" }), 200, hounds)
      assertSuccess(yield* send("PATCH", `${path}/${id}`, {}), 200, hounds)
      assertSuccess(yield* send("GET", `${path}/${id}`), 200, hounds)
      const deleted = yield* send("DELETE", `${path}/${id}`)
      assert.deepStrictEqual([deleted.status, deleted.text], [204, ""])
      assertCommonHeaders(deleted)
      for (const method of ["GET", "DELETE"]) {
        assertError(yield* send(method, `${path}/${id}`), 404, "not_found", `There is no category ${id}.`)
      }
      assertError(yield* send("PATCH", `${path}/${id}`, { name: "Dogs" }), 404, "not_found")
      assertSuccess(yield* send("GET", path), 200, `[${cats}]`)
    }))

  it.effect("keep each field of any category that the schema allows", () =>
    Effect.gen(function*() {
      const { call, unlimitedKey } = yield* Service
      const key = yield* unlimitedKey
      const headers = { "content-type": "application/json" }
      const samples = yield* Arbitrary.sampleEffect(Arbitrary.schema(NewCategory), { count: 30, seed: "categories" })
      for (const sample of samples) {
        const created = yield* call(path, { key, method: "POST", headers, body: JSON.stringify(sample) })
        const found = yield* call(created.headers.get("location") ?? "", { key })
        assert.deepInclude(JSON.parse(found.text), sample)
      }
    }))

  it.effect("have the pets' authentication, validation, idempotency and limits", () =>
    Effect.gen(function*() {
      const send = yield* newClient
      const { call } = yield* Service
      for (const method of ["GET", "POST"]) assertError(yield* call(path, { method }), 401, "missing_api_key")
      for (const method of ["GET", "PATCH", "DELETE"]) {
        assertError(yield* call(`${path}/1`, { method }), 401, "missing_api_key")
      }
      const invalid = { name: "\0", slug: "No Slug" }
      const message = "Invalid request: body.name: expected a string without U+0000 or lone surrogates; " +
        "body.slug: expected 1 to 50 letters of a to z, digits and hyphens."
      assertError(yield* send("POST", path, invalid), 400, "invalid_request", message)
      assertError(yield* send("PATCH", `${path}/1`, invalid), 400, "invalid_request", message)
      assertError(yield* send("GET", `${path}?Limit=1`), 400, "invalid_request", `did you mean "limit"?`)
      const birds = { name: "Birds", slug: "birds" }
      const keyed = (url: string, body: object) => send("POST", url, body, { "idempotency-key": "shared" })
      const created = yield* keyed(path, birds)
      const replayed = yield* keyed(path, birds)
      assertSuccess(replayed, 201, created.text)
      assert.strictEqual(replayed.headers.get("idempotent-replayed"), "true")
      assertError(yield* keyed(path, { ...birds, slug: "owls" }), 422, "idempotency_key_reused")
      assertError(yield* keyed("/v1/pets", { name: "Birds", categoryId: 1 }), 422, "idempotency_key_reused")
      const remaining = Number((yield* send("GET", "/v1/pets")).headers.get("x-ratelimit-remaining"))
      for (let i = remaining; i > 0; i--) yield* send("GET", path)
      assertError(yield* send("GET", path), 429, "rate_limit_exceeded")
      assertError(yield* send("GET", "/v1/pets"), 429, "rate_limit_exceeded")
    }))

  it.effect("are in the OpenAPI document, and pages of other origins may change and delete them", () =>
    Effect.gen(function*() {
      const { call } = yield* Service
      const { paths } = JSON.parse((yield* call("/openapi.json")).text)
      assert.hasAllKeys(paths["/categories/{categoryId}"], ["get", "patch", "delete"])
      assert.containsAllKeys(paths["/categories/{categoryId}"].patch.responses, [
        "200",
        "400",
        "401",
        "404",
        "413",
        "429"
      ])
      const headers = { "origin": "https://shop.test", "access-control-request-method": "PATCH" }
      const preflight = yield* call(`${path}/1`, { method: "OPTIONS", headers })
      assert.strictEqual(preflight.headers.get("access-control-allow-methods"), "GET, HEAD, PATCH, DELETE, OPTIONS")
      assert.include(preflight.headers.get("access-control-allow-headers"), "Idempotency-Key")
    }))
})

it("Every operation of every resource begins with the authentication and the limits", () => {
  let count = 0
  HttpApi.reflect(api, {
    onGroup() {},
    onEndpoint({ endpoint: { identifier, middlewares } }) {
      const order = [...middlewares].map(({ key }) => key.split("/").at(-1)).toReversed()
      assert.deepStrictEqual(order.slice(0, 2), ["Auth", "RateLimit"], identifier)
      count++
    }
  })
  assert.isAbove(count, 0)
})
