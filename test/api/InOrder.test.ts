import { assert, expectTypeOf, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { HttpRouter, HttpServer } from "effect/http"
import { HttpApiBuilder, HttpApiEndpoint } from "effect/http-api"
import { inOrder } from "../../src/api/InOrder.ts"
import * as Middleware from "../../src/api/OperationMiddleware.ts"
import { PetstoreApi } from "../../src/api/PetstoreApi.ts"

const { Auth, ConcurrencyLimit, CurrentKey, RateLimit, RequestBody, Sunset, Validation } = Middleware
const key = { id: "key_mock", plan: "free", limits: { perMinute: 1, perDay: 1 } } as const
const rex = { name: "Rex", categoryId: 1n }

const requests = [
  ["GET", "/v1/pets", "Auth RateLimit ConcurrencyLimit Validation handler"],
  ["POST", "/v1/pets", "Auth RateLimit RequestBody ConcurrencyLimit Validation handler"],
  ["GET", "/v1/pets/1", "Auth RateLimit ConcurrencyLimit Validation Sunset handler"]
] as const

it.effect.each(requests)("%s %s runs the middleware in its order", ([method, path, order]) => {
  const names: Array<string> = []
  const record = (name: string) => Effect.sync(() => void names.push(name))
  const recorded = (name: string) => <A, E, R>(httpEffect: Effect.Effect<A, E, R>) =>
    Effect.andThen(record(name), httpEffect)
  const handlers = HttpApiBuilder.group(PetstoreApi, "pets", (group) =>
    group.handleAll({
      listPets: () => Effect.as(record("handler"), { pets: [] }),
      createPet: () => Effect.as(record("handler"), { pet: { id: 1n, ...rex }, isReplay: false }),
      getPet: () => Effect.as(record("handler"), { id: 1n, ...rex })
    }))
  const routes = HttpApiBuilder.layer(PetstoreApi).pipe(
    Layer.provide(handlers),
    Layer.provide([
      Layer.succeed(Auth, (httpEffect) => recorded("Auth")(Effect.provideService(httpEffect, CurrentKey, key))),
      Layer.succeed(RateLimit, recorded("RateLimit")),
      Layer.succeed(RequestBody, recorded("RequestBody")),
      Layer.succeed(ConcurrencyLimit, recorded("ConcurrencyLimit")),
      Layer.succeed(Validation, recorded("Validation")),
      Layer.succeed(Sunset, recorded("Sunset"))
    ]),
    Layer.provide(HttpServer.layerServices)
  )
  const { handler } = HttpRouter.toWebHandler(routes, { disableLogger: true })
  const body = method === "POST" ? { body: `{"name":"Rex","categoryId":1}` } : {}
  const request = new Request(`http://test${path}`, {
    method,
    headers: { "content-type": "application/json" },
    ...body
  })
  return Effect.map(Effect.promise(() => handler(request)), ({ status }) => {
    assert.strictEqual(status, method === "POST" ? 201 : 200)
    assert.strictEqual(names.join(" "), order)
  })
})

it("Middleware that requires a service does not compile unless middleware before it provides the service", () => {
  const endpoint = HttpApiEndpoint.get("a", "/a")
  type Required<E> = E extends { readonly "~Middleware": unknown } ? HttpApiEndpoint.MiddlewareServices<E> : "none"
  const ordered = endpoint.pipe(inOrder(Auth, RateLimit))
  expectTypeOf<Required<typeof ordered>>().toBeNever()
  // @ts-expect-error: `RateLimit` runs before `Auth` here.
  assert.isFunction(inOrder(RateLimit, Auth))
  // @ts-expect-error: nothing provides `CurrentKey`.
  assert.isFunction(inOrder(Validation, RateLimit))
})
