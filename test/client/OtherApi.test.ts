/** Tests the contract without this service and its client: a mock server, and another API with its schemas and errors. */
import { assert, describe, expectTypeOf, it } from "@effect/vitest"
import { Duration, Effect, Layer } from "effect"
import { HttpRouter, HttpServer } from "effect/http"
import * as Http from "effect/http-api"
import * as Contract from "../../src/api/ApiExports.ts"
import type { OperationError } from "../../src/client/ClientCalls.ts"
import { PetstoreClientError, UndeclaredError } from "../../src/client/ClientExports.ts"

const { ApiKeyBanned, Auth, exactJson, NotFound, Pet, Pets, PetstoreApi } = Contract
const { HttpApi, HttpApiBuilder, HttpApiEndpoint, HttpApiGroup, HttpApiTest } = Http

const rex = { id: 9223372036854775807n, name: "Rex", categoryId: 1n, status: "available" } as const
/** A mock chooses its own form of cursors. */
const next = { cursor: Contract.Cursor.make("after Rex") }
const key = { id: "key_mock", plan: "free", limits: Contract.planLimits.free } as const

/** A mock of the Petstore service, from nothing but the exports of `petstore-client/api`. */
const Mock = HttpApiBuilder.group(PetstoreApi, "pets", (handlers) =>
  handlers
    .handle("listPets", () => Effect.succeed({ pets: [rex], next }))
    .handle("createPet", ({ payload }) => Effect.succeed({ pet: { id: 1n, ...payload }, isReplay: false }))
    .handle("getPet", () => Effect.fail(new NotFound()))).pipe(
    Layer.provideMerge([
      Layer.succeed(Auth, (effect) => Effect.provideService(effect, Contract.CurrentKey, key)),
      Layer.succeed(Contract.RateLimit, (effect) => effect),
      Layer.succeed(Contract.RequestBody, (effect) => effect),
      Layer.succeed(Contract.ConcurrencyLimit, (effect) => effect),
      Contract.Sunset.layer,
      Contract.Validation.layer,
      Http.HttpApiMiddleware.layerClient(Auth, ({ next, request }) => next(request)),
      HttpServer.layerServices
    ])
  )

describe("The entry point of the contract", () => {
  it.effect("makes a mock server for a derived client, with exact integers, which names each invalid field", () =>
    Effect.gen(function*() {
      const client = yield* HttpApiTest.groups(PetstoreApi, ["pets"])
      assert.deepStrictEqual(yield* client.listPets({ query: {} }), { pets: [rex], next })
      const created = yield* client.createPet({ payload: { name: "Tom", categoryId: rex.id }, headers: {} })
      assert.deepStrictEqual(created, { pet: { id: 1n, name: "Tom", categoryId: rex.id }, isReplay: false })

      const { handler } = HttpRouter.toWebHandler(Layer.provide(HttpApiBuilder.layer(PetstoreApi), Mock))
      const headers = { "content-type": "application/json" }
      const body = `{"name":1,"categoryId":"1"}`
      const request = new Request("http://mock/v1/pets", { method: "POST", headers, body })
      const response = yield* Effect.promise(() => handler(request))
      const message = "Invalid request: body.name: expected string; body.categoryId: expected a whole number from " +
        "-9223372036854775808 to 9223372036854775807, not a string."
      const error = { code: "invalid_request", message, status: 400 }
      assert.deepStrictEqual([response.status, yield* Effect.promise(() => response.json())], [400, error])
    }).pipe(Effect.provide(Mock)))

  it("validates every request in a slot, which it takes after the body, and declares 413 and 415 only for calls with a body", () => {
    const onEndpoint = ({ endpoint }: { readonly endpoint: Http.HttpApiEndpoint.Top }) => {
      const { middlewares, path, payload } = endpoint
      const names = /(?:Validation|ConcurrencyLimit|RequestBody)$/
      const order = [...middlewares].flatMap(({ key }) => names.exec(key) ?? [])
      // Middleware that is added later runs first, so a body takes a slot only once it has arrived.
      const body = payload.size > 0 ? ["RequestBody"] : []
      const steps = path === "/admin/session" ? [] : ["Validation", "ConcurrencyLimit", ...body]
      assert.deepStrictEqual(order, steps, path)
    }
    HttpApi.reflect(PetstoreApi, { onGroup() {}, onEndpoint })
    HttpApi.reflect(Contract.AdminApi, { onGroup() {}, onEndpoint })
    type BodyError = Contract.PayloadTooLarge | Contract.UnsupportedMediaType
    expectTypeOf<Extract<OperationError<typeof PetstoreApi, "createPet">, BodyError>>().toEqualTypeOf<BodyError>()
    expectTypeOf<Extract<OperationError<typeof PetstoreApi, "listPets" | "getPet">, BodyError>>().toBeNever()
  })

  it("exports each schema that the OpenAPI documents name", () => {
    const documents = [Http.OpenApi.fromApi(PetstoreApi), Http.OpenApi.fromApi(Contract.AdminApi)]
    const names = documents.flatMap(({ components }) => Object.keys(components.schemas))
    assert.includeMembers(Object.keys(Contract), names.filter((name) => name !== "Error"))
  })
})

class ShelterApi extends HttpApi.make("shelter").add(
  HttpApiGroup.make("shelter", { topLevel: true }).add(
    HttpApiEndpoint.get("exact", "/exact", { success: exactJson(Pets) }),
    HttpApiEndpoint.get("plain", "/plain", { success: Pet, error: [NotFound, ApiKeyBanned, PetstoreClientError] })
  )
) {}

describe("Another HttpApi", () => {
  const facts = { requestId: "7", retryAfter: Duration.seconds(3) }
  const later = new UndeclaredError({ code: "later", message: "Later.", status: 403 })
  const errors = [
    [new NotFound({ message: "No." }), 404],
    [new ApiKeyBanned(facts), 429],
    [new PetstoreClientError({ reason: later, ...facts }), 502]
  ] as const
  it.effect.each(errors)("passes on a declared %s with its status", ([error, status]) =>
    Effect.gen(function*() {
      const handlers = HttpApiBuilder.group(ShelterApi, "shelter", (group) =>
        group.handle("exact", () =>
          Effect.succeed([rex])).handle("plain", () => Effect.fail(error)))
      const client = yield* Effect.provide(HttpApiTest.groups(ShelterApi, ["shelter"]), handlers)
      assert.strictEqual((yield* client.plain({ responseMode: "response-only" })).status, status)
      assert.deepStrictEqual<unknown>(yield* Effect.flip(client.plain()), error)
    }).pipe(Effect.provide(HttpServer.layerServices)))

  it("describes the schemas of the contract as they are on the wire", () => {
    const { components: { schemas }, paths } = JSON.parse(JSON.stringify(Http.OpenApi.fromApi(ShelterApi)))
    const schemaOf = (path: string) => paths[path].get.responses["200"].content["application/json"].schema
    const idOf = (pet: { readonly $ref: string }) => schemas[pet.$ref.split("/").at(-1) ?? ""].properties.id
    assert.deepStrictEqual(schemaOf("/exact"), { type: "array", allOf: [{ $ref: "#/components/schemas/Pets" }] })
    assert.deepInclude(idOf(schemas.Pets.items), { type: "integer", format: "int64" })
    // Effect's own codecs write digits in a string.
    assert.deepInclude(idOf(schemaOf("/plain")), { type: "string", format: "int64" })
  })
})
