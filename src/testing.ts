/** The module `petstore-client/testing`: an in-memory service with the real handlers and middleware. */
import { ConfigProvider, Effect, Layer } from "effect"
import { SecureRandom } from "effect/crypto"
import { HttpClient, HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import { ApiKeys } from "./api-keys/ApiKeys.ts"
import { AuditLog } from "./api-keys/AuditLog.ts"
import { KeyUsage } from "./api-keys/KeyUsage.ts"
import { KeyVerifier } from "./api-keys/KeyVerifier.ts"
import type { Limits, Plan } from "./api/Plans.ts"
import { type Options, PetstoreClient } from "./client/PetstoreClient.ts"
import * as ApiPort from "./http/ApiPort.ts"
import { GracefulShutdown } from "./http/GracefulShutdown.ts"
import * as PortMiddleware from "./http/PortMiddleware.ts"
import { routerConfig } from "./http/RoutePaths.ts"
import { PetRepository } from "./pets/PetRepository.ts"
import { RateLimiter } from "./rate-limit/RateLimiter.ts"
import {
  Faults,
  layerFaultyClient,
  layerFaultyPets,
  makeTestService,
  type SentRequest,
  TestService,
  withoutInfoLogs
} from "./test-service/TestService.ts"

export { ApiKeys, KeyVerifier, PetRepository, RateLimiter, type SentRequest, TestService }

export const layerMemory: Layer.Layer<PetRepository | ApiKeys | KeyVerifier | RateLimiter> = Layer.mergeAll(
  PetRepository.layerMemory,
  ApiKeys.layerMemory,
  RateLimiter.layerMemory
).pipe(Layer.provide(SecureRandom.layerWebCrypto))

/**
 * An `HttpClient` that runs the real handlers and middleware in this process, on the pets, keys and limits that you
 * provide. It reads no environment variables, so tests behave the same on every machine. It serves no documents.
 */
export const layerService: Layer.Layer<
  HttpClient.HttpClient,
  never,
  PetRepository | ApiKeys | KeyVerifier | RateLimiter
> = Layer
  .effect(
    HttpClient.HttpClient,
    Effect.gen(function*() {
      const handleRequest = yield* HttpRouter.toHttpEffect(
        Layer.merge(ApiPort.routes, PortMiddleware.layer(yield* ApiPort.makeHooks([])))
      )
      return HttpClient.make((request) =>
        handleRequest.pipe(
          Effect.provideService(HttpServerRequest.HttpServerRequest, HttpServerRequest.fromClientRequest(request)),
          Effect.scoped,
          // As in Effect's server, only the route can be interrupted, and the hooks around it still record the request.
          Effect.uninterruptible,
          withoutInfoLogs,
          Effect.map((response) => HttpServerResponse.toClientResponse(response, { request })),
          Effect.orDie
        )
      )
    })
  ).pipe(
    Layer.provide(Layer.succeed(HttpRouter.RouterConfig, routerConfig)),
    Layer.provide([GracefulShutdown.layer, AuditLog.layerMemory, KeyUsage.layerMemory]),
    Layer.provide(SecureRandom.layerWebCrypto),
    Layer.provide(ConfigProvider.layer(ConfigProvider.fromUnknown({}))),
    Layer.orDie
  )

type PlanOrLimits =
  | { readonly plan?: Exclude<Plan, "enterprise">; readonly limits?: never }
  | { readonly plan?: "enterprise"; readonly limits: Limits }

interface Services {
  readonly pets?: Layer.Layer<PetRepository>
  readonly apiKeys?: Layer.Layer<ApiKeys | KeyVerifier>
  readonly rateLimiter?: Layer.Layer<RateLimiter>
}

/**
 * Provides a client of a new in-memory service, and `TestService` to inject faults. The client uses `apiKey`, or a new
 * API key if there is none. `pets`, `apiKeys` and `rateLimiter` replace parts of the service. The layer provides them
 * too.
 */
export const layerTest = (
  {
    apiKey,
    apiKeys = Layer.provide(ApiKeys.layerMemory, SecureRandom.layerWebCrypto),
    limits,
    pets = PetRepository.layerMemory,
    plan = limits === undefined ? "free" : "enterprise",
    rateLimiter = RateLimiter.layerMemory,
    ...options
  }: Partial<Omit<Options, "baseUrl">> & PlanOrLimits & Services = {}
): Layer.Layer<PetstoreClient | TestService | PetRepository | ApiKeys | KeyVerifier | RateLimiter> =>
  Layer.unwrap(Effect.gen(function*() {
    const issue = Effect.orDie((yield* ApiKeys).issue({ name: "test", plan, ...limits && { limits } }))
    const secret = apiKey ?? (yield* withoutInfoLogs(issue)).key
    return Layer.merge(
      PetstoreClient.layerHttp({ ...options, baseUrl: "http://petstore.test", apiKey: secret }),
      Layer.effect(TestService, makeTestService(secret))
    )
  })).pipe(
    Layer.provide(Layer.provide(layerFaultyClient, layerService)),
    Layer.provideMerge(Layer.provide(layerFaultyPets, pets)),
    Layer.provide(Faults.layer),
    Layer.provideMerge(Layer.merge(apiKeys, rateLimiter)),
    Layer.fresh
  )
