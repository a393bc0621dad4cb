import { assert, it } from "@effect/vitest"
import { Context, Effect, Layer, Redacted, References } from "effect"
import { HttpClient } from "effect/http"
import { PetRepository } from "../../src/pets/PetRepository.ts"
import { RateLimiter } from "../../src/rate-limit/RateLimiter.ts"
import { ApiKeys, layerService } from "../../src/testing.ts"
import { memory, memoryWith } from "../support/Databases.ts"
import { Service, service } from "../support/Service.ts"

const Color = Context.Reference<string>("test/Color", { defaultValue: () => "default" })
const colored = Layer.succeed(Color, "of the layer")

it.live("A Reference set around a server reaches its requests, and a service that its layers hold does not", () => {
  const contexts: Array<Context.Context<never>> = []
  const recordContext = Effect.map(Effect.context(), (context) => void contexts.push(context))
  const limiter = Layer.effect(
    RateLimiter,
    Effect.map(RateLimiter, ({ charge, ...others }) => ({
      ...others,
      charge: (caller, limits) => Effect.andThen(recordContext, charge(caller, limits))
    }))
  ).pipe(Layer.provide(RateLimiter.layerMemory))
  return Effect.gen(function*() {
    const { call, newKey } = yield* Service
    yield* call("/v1/pets", { key: yield* newKey })
    // A request to an unknown path has only the context of the server, and none of a handler.
    yield* call("/none")
    assert.deepStrictEqual(contexts.map((context) => Context.get(context, Color)), ["of the layer", "of the layer"])
    assert.isUndefined(contexts[1] && Context.getOrUndefined(contexts[1], PetRepository))
  }).pipe(Effect.provide(Layer.provide(service(Layer.merge(memory, limiter)), colored)))
})

it.effect("A Reference set around handlers reaches them, except the log fields, which each request sets itself", () => {
  const seen: Array<ReadonlyArray<unknown>> = []
  const pets = memoryWith(({ list }) => ({
    list: Effect.fnUntraced(function*(selection) {
      seen.push([yield* Color, Object.keys(yield* References.CurrentLogAnnotations)])
      return yield* list(selection)
    })
  }))
  const around = Layer.merge(colored, Layer.succeed(References.CurrentLogAnnotations, { of: "the layer" }))
  return Effect.gen(function*() {
    const { key: apiKey } = yield* (yield* ApiKeys).issue({ name: "test", plan: "free" })
    const headers = { authorization: `Bearer ${Redacted.value(apiKey)}` }
    const { status } = yield* HttpClient.get("http://petstore.test/v1/pets", { headers }).pipe(
      Effect.provideService(Color, "of the caller")
    )
    assert.strictEqual(status, 200)
    assert.deepStrictEqual(seen, [["of the layer", ["requestId"]]])
  }).pipe(Effect.provide(layerService.pipe(
    Layer.provide(around),
    Layer.provideMerge(Layer.merge(RateLimiter.layerMemory, pets))
  )))
})
