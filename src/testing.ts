/** The module `petstore-client/testing`: the service in memory, with its real handlers and middleware. */
import { ConfigProvider, Context, Effect, Layer, Redacted, References, Scope, Tracer } from "effect"
import { SecureRandom } from "effect/crypto"
import { HttpClient, HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import { ApiKeys } from "./api-keys/ApiKeys.ts"
import { AuditLog, CurrentOperator } from "./api-keys/AuditLog.ts"
import { KeyUsage } from "./api-keys/KeyUsage.ts"
import { KeyVerifier } from "./api-keys/KeyVerifier.ts"
import { AdminAuth } from "./api/AdminApi.ts"
import type { Limits, Plan } from "./api/Plans.ts"
import { AdminClient } from "./client/AdminClient.ts"
import { type Options, PetstoreClient } from "./client/PetstoreClient.ts"
import * as Collection from "./collection/Collection.ts"
import * as ApiRoutes from "./http/ApiRoutes.ts"
import * as RequestLifecycle from "./http/RequestLifecycle.ts"
import * as AdminHandlers from "./management/AdminHandlers.ts"
import * as HeldServices from "./node-server/HeldServices.ts"
import { PetRepository } from "./pets/PetRepository.ts"
import { RateLimiter } from "./rate-limit/RateLimiter.ts"
import { api, makeStores, routes } from "./resources.ts"
import { Faults, faultyStores, layerFaultyClient } from "./test-service/TestService.ts"
import { makeTestService, type SentRequest, TestService, withoutInfoLogs } from "./test-service/TestService.ts"

export { ApiKeys, AuditLog, KeyUsage, KeyVerifier, PetRepository, RateLimiter, type SentRequest, TestService }
export type { Created, Idempotency, Page, Range } from "./collection/Collection.ts"
export type { Filters, Item } from "./collection/Table.ts"
export type { Decision, Window } from "./rate-limit/Policy.ts"
export type { Caller, Counting } from "./rate-limit/RateLimiter.ts"

type Parts = Layer.Success<ReturnType<typeof makeStores>> | ApiKeys | KeyVerifier | AuditLog | KeyUsage | RateLimiter

/** The services that the handlers and middleware of the API need, in memory. */
export const layerMemory: Layer.Layer<Parts> = Layer.mergeAll(
  makeStores(Collection.layerMemory),
  ApiKeys.layerMemory,
  RateLimiter.layerMemory
).pipe(Layer.provide(SecureRandom.layerWebCrypto))

type Routes = Effect.Success<ReturnType<typeof HttpRouter.toHttpEffect>>

/** An `HttpClient` that runs the routes in this process. They read no environment variables: tests are reproducible. */
const layerInProcess = <E, R>(makeRoutes: Effect.Effect<Routes, E, R>) =>
  Layer.effect(
    HttpClient.HttpClient,
    Effect.gen(function*() {
      const handleRequest = yield* makeRoutes
      // As with a server, the layer's context precedes the caller's, for example if both set the same Reference.
      const ofServer = HeldServices.omit(yield* Effect.context()).pipe(
        Context.omit(Scope.Scope, Tracer.ParentSpan, References.CurrentLogAnnotations)
      )
      return HttpClient.make((request) =>
        handleRequest.pipe(
          Effect.updateContext((ofCaller: Context.Context<Scope.Scope | HttpServerRequest.HttpServerRequest>) =>
            Context.merge(ofCaller, ofServer)
          ),
          Effect.provideService(HttpServerRequest.HttpServerRequest, HttpServerRequest.fromClientRequest(request)),
          Effect.scoped,
          // As in Effect's server, only route handlers are interruptible, so that `PortHooks.abort` can run after them.
          Effect.uninterruptible,
          withoutInfoLogs,
          Effect.map((response) => HttpServerResponse.toClientResponse(response, { request })),
          Effect.orDie
        )
      )
    })
  ).pipe(
    Layer.provide([RequestLifecycle.GracefulShutdown.layer, SecureRandom.layerWebCrypto]),
    Layer.provide(ConfigProvider.layer(ConfigProvider.fromUnknown({}))),
    Layer.orDie
  )

/**
 * An `HttpClient` that runs the API's real handlers and middleware in this process, on services that you provide. Does
 * not serve documents such as `/docs`.
 */
export const layerService: Layer.Layer<HttpClient.HttpClient, never, Parts> = layerInProcess(
  Effect.flatMap(ApiRoutes.makeHooks(api, []), (hooks) => RequestLifecycle.toHttpEffect(ApiRoutes.layer(routes), hooks))
)

const anyToken = Layer.succeed(AdminAuth, {
  adminToken: Effect.provideService(CurrentOperator, { operator: "test", mayChange: true, address: null })
})

/** An in-process `AdminClient` on services that you provide. Its operator in the audit log is `test`. */
export const layerAdmin: Layer.Layer<AdminClient, never, Parts> = AdminClient.layerHttp({
  baseUrl: "http://petstore.test",
  token: Redacted.make("test")
}).pipe(
  Layer.provide(layerInProcess(RequestLifecycle.toHttpEffect(AdminHandlers.layer, AdminHandlers.makeHooks([])))),
  Layer.provide([anyToken, Layer.succeed(AdminHandlers.IsSingleProcess, true)])
)

type PlanOrLimits =
  | { readonly plan?: Exclude<Plan, "enterprise">; readonly limits?: never }
  | { readonly plan?: "enterprise"; readonly limits: Limits }

interface Services {
  readonly pets?: Layer.Layer<PetRepository>
  readonly apiKeys?: Layer.Layer<ApiKeys | KeyVerifier, never, SecureRandom.SecureRandom>
  readonly rateLimiter?: Layer.Layer<RateLimiter>
}

/**
 * Provides a `PetstoreClient` that calls a service in this process, and `TestService`, which injects faults into that
 * service. Without `apiKey`, the service issues an API key with `plan` or `limits` for the client. The parts of the
 * service are in memory, unless `pets`, `apiKeys` or `rateLimiter` replace them. The layer also provides these parts.
 */
export const layerTest = (
  {
    apiKey,
    apiKeys = ApiKeys.layerMemory,
    limits,
    pets,
    plan = limits === undefined ? "free" : "enterprise",
    rateLimiter = RateLimiter.layerMemory,
    ...options
  }: Partial<Omit<Options, "baseUrl">> & PlanOrLimits & Services = {}
): Layer.Layer<PetstoreClient | TestService | Parts> => {
  const givenStores: Layer.Layer<never> = pets ?? Layer.empty
  const stores = Layer.unwrap(Effect.map(Layer.build(givenStores), (given) => makeStores(faultyStores(given))))
  return Layer.unwrap(Effect.gen(function*() {
    const issue = Effect.orDie((yield* ApiKeys).issue({ name: "test", plan, ...limits && { limits } }))
    const secret = apiKey ?? (yield* withoutInfoLogs(issue)).key
    return Layer.merge(
      PetstoreClient.layerHttp({ ...options, baseUrl: "http://petstore.test", apiKey: secret }),
      Layer.effect(TestService, makeTestService(secret))
    )
  })).pipe(
    Layer.provide(Layer.provide(layerFaultyClient, layerService)),
    Layer.provideMerge(stores),
    Layer.provide(Faults.layer),
    Layer.provideMerge(Layer.mergeAll(
      Layer.provide(apiKeys, SecureRandom.layerWebCrypto),
      rateLimiter,
      AuditLog.layerMemory,
      KeyUsage.layerMemory
    )),
    Layer.fresh
  )
}
