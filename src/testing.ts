/**
 * Runs the whole service in memory, with a client that needs no socket, for the tests of applications that call it.
 *
 * The handlers and middleware are those of the real service, so tests get the real 400, 401, 404 and 429 responses.
 */
import { ConfigProvider, Effect, Layer, Redacted } from "effect"
import { SecureRandom } from "effect/crypto"
import {
  HttpClient,
  HttpClientError,
  type HttpClientRequest,
  HttpRouter,
  HttpServerRequest,
  HttpServerResponse
} from "effect/http"
import { ApiKeys } from "./api-keys/ApiKeys.ts"
import type { Limits, Plan } from "./api/Plans.ts"
import { type Options, PetstoreClient } from "./client/PetstoreClient.ts"
import * as ApiRoutes from "./http/ApiRoutes.ts"
import { GracefulShutdown } from "./http/Responses.ts"
import { routerConfig } from "./http/RoutePaths.ts"
import { PetRepository } from "./pets/PetRepository.ts"
import { RateLimiter } from "./rate-limit/RateLimiter.ts"
import {
  describeRequest,
  Faults,
  layerPets,
  makeTestService,
  type SentRequest,
  TestService,
  withoutInfoLogs
} from "./test-service/TestService.ts"

export { ApiKeys, PetRepository, RateLimiter, type SentRequest, TestService }

/** The pets, API keys and rate limits, all in the memory of this process. */
export const layerMemory: Layer.Layer<PetRepository | ApiKeys | RateLimiter> = Layer.mergeAll(
  PetRepository.layerMemory,
  ApiKeys.layerMemory,
  RateLimiter.layerMemory
).pipe(Layer.provide(SecureRandom.layerWebCrypto))

/** An `HttpClient` that passes each request to the service in this process. */
const layerHttpClient = Layer.effect(
  HttpClient.HttpClient,
  Effect.gen(function*() {
    const faults = yield* Faults
    const handleRequest = yield* HttpRouter.toHttpEffect(ApiRoutes.layer(yield* ApiRoutes.makePort))
    const handle = (request: HttpClientRequest.HttpClientRequest) =>
      handleRequest.pipe(
        Effect.provideService(HttpServerRequest.HttpServerRequest, HttpServerRequest.fromClientRequest(request)),
        Effect.scoped,
        withoutInfoLogs,
        Effect.map((response) => HttpServerResponse.toClientResponse(response, { request })),
        Effect.orDie
      )
    return HttpClient.make(Effect.fnUntraced(function*(request, url) {
      const sent = describeRequest(request, url)
      faults.sent.push(sent)
      yield* Effect.sleep(faults.delay)
      const response = yield* handle(request)
      if (faults.lostResponses > 0) {
        faults.lostResponses--
        return yield* new HttpClientError.HttpClientError({
          reason: new HttpClientError.TransportError({ request, description: "The response was lost" })
        })
      }
      sent.status = response.status
      return response
    }))
  })
).pipe(
  Layer.provide(Layer.succeed(HttpRouter.RouterConfig, routerConfig)),
  Layer.provide(GracefulShutdown.layer),
  Layer.provide(SecureRandom.layerWebCrypto),
  // The service reads no environment variable, so that tests give the same result on every machine.
  Layer.provide(ConfigProvider.layer(ConfigProvider.fromUnknown({}))),
  Layer.orDie
)

/** The plan of the test key, or its own limits, which put the key on plan Enterprise. */
type PlanOrLimits =
  | { readonly plan?: Exclude<Plan, "enterprise">; readonly limits?: never }
  | { readonly plan?: "enterprise"; readonly limits: Limits }

/**
 * A client, and a new service in memory for it alone.
 *
 * The client uses `apiKey`. Without one it uses a new key on plan Free, or with the `plan` or `limits` of the options.
 * The layer also provides `TestService`, which provokes faults and reports requests, and the service's pets, keys and
 * limits, to insert and inspect data.
 */
export const layerTest = (
  { apiKey, limits, plan = limits === undefined ? "free" : "enterprise", ...options }:
    & Partial<Omit<Options, "baseUrl">>
    & PlanOrLimits = {}
): Layer.Layer<PetstoreClient | TestService | PetRepository | ApiKeys | RateLimiter> =>
  Layer.unwrap(Effect.gen(function*() {
    const apiKeys = yield* ApiKeys
    const key = apiKey ??
      (yield* withoutInfoLogs(Effect.orDie(apiKeys.issue({ name: "test", plan, ...limits && { limits } })))).key
    const secret = Redacted.make(Redacted.value(Effect.isEffect(key) ? yield* key : key))
    return Layer.merge(
      PetstoreClient.layerHttp({ ...options, baseUrl: "http://petstore.test", apiKey: secret }),
      Layer.effect(TestService, makeTestService(secret))
    )
  })).pipe(
    Layer.provide(layerHttpClient),
    Layer.provideMerge(layerPets),
    Layer.provide(Faults.layer),
    Layer.provideMerge(Layer.merge(ApiKeys.layerMemory, RateLimiter.layerMemory)),
    Layer.provide(SecureRandom.layerWebCrypto),
    Layer.fresh
  )
