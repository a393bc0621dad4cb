import { assert, expectTypeOf, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { HttpRouter, HttpServer } from "effect/http"
import { HttpApiEndpoint } from "effect/http-api"
import { inOrder } from "../../src/api/InOrder.ts"
import * as Middleware from "../../src/api/OperationMiddleware.ts"
import { layerMemory } from "../../src/collection/Collection.ts"
import { PetRepository } from "../../src/pets/PetRepository.ts"
import { makeStores, routes } from "../../src/resources.ts"

const { Auth, ConcurrencyLimit, CurrentKey, RateLimit, RequestBody, Sunset, Validation } = Middleware
const key = { id: "key_mock", plan: "free", limits: { perMinute: 1, perDay: 1 } } as const

const requests = [
  ["GET", "/v1/pets", "Auth RateLimit ConcurrencyLimit Validation"],
  ["POST", "/v1/pets", "Auth RateLimit RequestBody ConcurrencyLimit Validation"],
  ["GET", "/v1/pets/1", "Auth RateLimit ConcurrencyLimit Validation Sunset"]
] as const

it.effect.each(requests)("%s %s runs the middleware in its order", ([method, path, order]) => {
  const names: Array<string> = []
  const recorded = (name: string) => <A, E, R>(httpEffect: Effect.Effect<A, E, R>) =>
    Effect.andThen(Effect.sync(() => void names.push(name)), httpEffect)
  const rex = Layer.effectDiscard(PetRepository.use((pets) => pets.create({ name: "Rex", categoryId: 1n })))
  const layer = routes.pipe(
    Layer.merge(rex),
    Layer.provide([
      Layer.succeed(Auth, (httpEffect) => recorded("Auth")(Effect.provideService(httpEffect, CurrentKey, key))),
      Layer.succeed(RateLimit, recorded("RateLimit")),
      Layer.succeed(RequestBody, recorded("RequestBody")),
      Layer.succeed(ConcurrencyLimit, recorded("ConcurrencyLimit")),
      Layer.succeed(Validation, recorded("Validation")),
      Layer.succeed(Sunset, recorded("Sunset"))
    ]),
    Layer.provide([makeStores(layerMemory), HttpServer.layerServices])
  )
  const { handler } = HttpRouter.toWebHandler(layer, { disableLogger: true })
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
