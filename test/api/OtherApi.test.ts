/** Tests the contract without this service and its client: a mock server, and another API with its schemas and errors. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { HttpRouter, HttpServer } from "effect/http"
import {
  HttpApi,
  HttpApiBuilder,
  HttpApiEndpoint,
  HttpApiGroup,
  HttpApiMiddleware,
  HttpApiTest,
  OpenApi
} from "effect/http-api"
import * as Contract from "../../src/api/entry.ts"

const { Auth, exactJson, NotFound, Pet, Pets, PetstoreApi } = Contract

const rex = { id: 9223372036854775807n, name: "Rex", categoryId: 1n, status: "available" } as const

const key = { id: "key_mock", plan: "free", limits: Contract.planLimits.free } as const

/** A mock of the Petstore service, from nothing but the exports of `petstore-client/api`. */
const Mock = HttpApiBuilder.group(PetstoreApi, "pets", (handlers) =>
  handlers
    .handle("listPets", () => Effect.succeed({ pets: [rex], next: { cursor: rex.id } }))
    .handle("createPet", ({ payload }) => Effect.succeed({ pet: { id: 1n, ...payload }, isReplay: false }))
    .handle("getPet", () => Effect.fail(new NotFound()))).pipe(
    Layer.provideMerge([
      Layer.succeed(Auth, (effect) => Effect.provideService(effect, Contract.CurrentKey, key)),
      Layer.succeed(Contract.RateLimit, (effect) => effect),
      Layer.succeed(Contract.Sunset, (effect) => effect),
      Contract.Validation.layer,
      HttpApiMiddleware.layerClient(Auth, ({ next, request }) => next(request)),
      HttpServer.layerServices
    ])
  )

class ShelterApi extends HttpApi.make("shelter").add(
  HttpApiGroup.make("shelter", { topLevel: true }).add(
    HttpApiEndpoint.get("exact", "/exact", { success: exactJson(Pets) }),
    HttpApiEndpoint.get("plain", "/plain", { success: Pet, error: NotFound })
  )
) {}

describe("The entry of the contract", () => {
  it.effect("makes a mock server for a derived client, with exact integers and with the errors of the contract", () =>
    Effect.gen(function*() {
      const client = yield* HttpApiTest.groups(PetstoreApi, ["pets"])
      assert.deepStrictEqual(yield* client.listPets({ query: {} }), { pets: [rex], next: { cursor: rex.id } })
      const { text } = yield* client.listPets({ query: {}, responseMode: "response-only" })
      assert.strictEqual(yield* text, `[{"id":9223372036854775807,"name":"Rex","categoryId":1,"status":"available"}]`)
      const created = yield* client.createPet({ payload: { name: "Tom", categoryId: rex.id }, headers: {} })
      assert.deepStrictEqual(created, { pet: { id: 1n, name: "Tom", categoryId: rex.id }, isReplay: false })
      const missing = { code: "not_found", message: "The requested resource could not be found.", status: 404 } as const
      const params = { petId: 1n }
      assert.deepInclude(yield* Effect.flip(client.getPet({ params })), { _tag: "NotFound", ...missing })
      const { json, status } = yield* client.getPet({ params, responseMode: "response-only" })
      assert.deepStrictEqual([status, yield* json], [404, missing])
    }).pipe(Effect.provide(Mock)))

  it.effect("makes a mock server that names each invalid field in a typed 400", () =>
    Effect.gen(function*() {
      const { handler } = HttpRouter.toWebHandler(Layer.provide(HttpApiBuilder.layer(PetstoreApi), Mock))
      const request = new Request("http://mock/v1/pets", {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: `{"name":1,"categoryId":"1"}`
      })
      const response = yield* Effect.promise(() => handler(request))
      assert.deepStrictEqual([response.status, yield* Effect.promise(() => response.json())], [400, {
        code: "invalid_request",
        message: "Invalid request: body.name: expected string; body.categoryId: expected an int64 integer.",
        status: 400
      }])
    }).pipe(Effect.provide(Mock)))

  it("exports each schema that the OpenAPI document names", () => {
    const names = Object.keys(Contract.openApiDocument.components.schemas).filter((name) => name !== "Error")
    assert.includeMembers(Object.keys(Contract), names)
  })

  it("describes its schemas and errors in the document of another HttpApi as they are on the wire", () => {
    const { components: { schemas }, paths } = JSON.parse(JSON.stringify(OpenApi.fromApi(ShelterApi)))
    const schemaOf = (path: string) => paths[path].get.responses["200"].content["application/json"].schema
    const idOf = (pet: { readonly $ref: string }) => schemas[pet.$ref.split("/").at(-1) ?? ""].properties.id
    assert.deepStrictEqual(schemaOf("/exact"), { type: "array", allOf: [{ $ref: "#/components/schemas/Pets" }] })
    assert.deepInclude(idOf(schemas.Pets.items), { type: "integer", format: "int64" })
    assert.hasAllKeys(paths["/plain"].get.responses, ["200", "404"])
    // Effect's own codecs write digits in a string.
    assert.deepInclude(idOf(schemaOf("/plain")), { type: "string", format: "int64" })
  })
})
