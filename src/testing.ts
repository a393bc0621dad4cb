/**
 * For the tests of those who consume the service: all of it in memory, and a client that it answers without a socket.
 * Handlers and middleware are the service's own, so that a 400, 401, 404 or 429 is what it would be.
 */
import { ConfigProvider, Effect, Layer, Redacted, References } from "effect"
import { SecureRandom } from "effect/crypto"
import { HttpClient, HttpRouter, HttpServer, HttpServerRequest, HttpServerResponse } from "effect/http"
import { ApiKeys } from "./api-keys/ApiKeys.ts"
import type { Limits, Plan } from "./api/Plans.ts"
import { type Options, PetstoreClient } from "./client/PetstoreClient.ts"
import { routes } from "./http/ApiServer.ts"
import { AdmissionControl } from "./http/node/AdmissionControl.ts"
import { GracefulShutdown } from "./http/node/GracefulShutdown.ts"
import { routerConfig } from "./http/response/RoutePaths.ts"
import { PetRepository } from "./pets/PetRepository.ts"
import { RateLimiter } from "./rate-limit/RateLimiter.ts"

export { ApiKeys, PetRepository, RateLimiter }

/** The services in this process's memory. */
export const layerMemory: Layer.Layer<PetRepository | ApiKeys | RateLimiter> = Layer.mergeAll(
  PetRepository.layerMemory,
  ApiKeys.layerMemory,
  RateLimiter.layerMemory
).pipe(Layer.provide(SecureRandom.layerWebCrypto))

/** An `HttpClient` whose every request the service answers, in this process. */
const layerHttpClient = Layer.effect(
  HttpClient.HttpClient,
  Effect.gen(function*() {
    const answer = yield* HttpRouter.toHttpEffect(routes)
    return HttpClient.make((request) =>
      answer.pipe(
        Effect.provideService(HttpServerRequest.HttpServerRequest, HttpServerRequest.fromClientRequest(request)),
        Effect.scoped,
        // A line for each request is nobody's news there; a fault is.
        Effect.provideService(References.MinimumLogLevel, "Warn"),
        Effect.map((response) => HttpServerResponse.toClientResponse(response, { request })),
        Effect.orDie
      )
    )
  })
).pipe(
  Layer.provide(Layer.succeed(HttpRouter.RouterConfig, routerConfig)),
  Layer.provide(HttpServer.layerServices),
  Layer.provide([AdmissionControl.layer, GracefulShutdown.layer]),
  Layer.provide(SecureRandom.layerWebCrypto),
  // Nothing of the environment changes what a test sees.
  Layer.provide(ConfigProvider.layer(ConfigProvider.fromUnknown({}))),
  Layer.orDie
)

/** A plan, or limits of its own: then it is on Enterprise. */
type Allowance =
  | { readonly plan?: Exclude<Plan, "enterprise">; readonly limits?: never }
  | { readonly plan?: "enterprise"; readonly limits: Limits }

/**
 * A client of a service of its own, with a new key: on plan Free unless `plan` or `limits` say otherwise, or whatever
 * `apiKey` is. Its services are there too, to fill and to look into.
 */
export const layerTest = (
  { apiKey, limits, plan = limits === undefined ? "free" : "enterprise", ...options }:
    & Partial<Omit<Options, "baseUrl">>
    & Allowance = {}
): Layer.Layer<PetstoreClient | PetRepository | ApiKeys | RateLimiter> =>
  Layer.unwrap(Effect.gen(function*() {
    const apiKeys = yield* ApiKeys
    const key = apiKey ??
      (yield* Effect.orDie(apiKeys.issue({ name: "test", plan, ...limits && { limits } }))).key
    return PetstoreClient.layerHttp({
      ...options,
      baseUrl: "http://petstore.test",
      apiKey: Redacted.make(Redacted.value(key))
    })
  })).pipe(
    Layer.provide(layerHttpClient),
    Layer.provideMerge(layerMemory),
    Layer.fresh
  )
