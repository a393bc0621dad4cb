import { type Config, Context, Effect, Layer } from "effect"
import { type HttpRouter, HttpServer, type HttpServerResponse } from "effect/http"
import type { HttpApi, HttpApiGroup } from "effect/http-api"
import { Deprecation, type operationMiddleware, Sunset } from "../api/OperationMiddleware.ts"
import { fixedHeaders } from "../api/ResponseHeaders.ts"
import { corsOrigins, trustedProxies } from "../config/SettingForms.ts"
import * as LimitHeaders from "../rate-limit/LimitHeaders.ts"
import type { Decision } from "../rate-limit/Policy.ts"
import { RateLimiter } from "../rate-limit/RateLimiter.ts"
import * as AccessLog from "./AccessLog.ts"
import * as Auth from "./Auth.ts"
import * as ConcurrencyLimit from "./ConcurrencyLimit.ts"
import { makeCorsHeaders } from "./Cors.ts"
import * as RateLimit from "./RateLimit.ts"
import * as RequestBody from "./RequestBody.ts"
import type { RequestContext } from "./RequestContext.ts"
import { headerOf, type RequestHead } from "./RequestHead.ts"
import { type PortHooks, withHeaders } from "./RequestLifecycle.ts"
import { makeRoutesAt, managementPort } from "./RoutePaths.ts"
import * as Validation from "./Validation.ts"

type Response = HttpServerResponse.HttpServerResponse

const middleware = Layer.mergeAll(
  Auth.layer,
  RateLimit.layer,
  RequestBody.layer,
  ConcurrencyLimit.layer,
  Validation.layer,
  Sunset.layer
)

/** The services that the routes of an API of `makeApi` may require, apart from the stores of its resources. */
export type RouteServices =
  | Context.Service.Identifier<typeof operationMiddleware[number]>
  | HttpRouter.HttpRouter
  | Layer.Success<typeof HttpServer.layerServices>

/** Provides `routes`, which come from `HttpApiBuilder.layer`, with the middleware that their operations declare. */
export const layer = <Stores>(routes: Layer.Layer<never, never, Stores | RouteServices>) =>
  routes.pipe(Layer.provide([middleware, HttpServer.layerServices]))

export const makeHooks = Effect.fnUntraced(
  function*<Id extends string, Groups extends HttpApiGroup.Constraint>(
    api: HttpApi.HttpApi<Id, Groups>,
    pages: ReadonlyArray<string>
  ): Effect.gen.Return<PortHooks, Config.ConfigError, RateLimiter> {
    const limiter = yield* RateLimiter
    const record = yield* AccessLog.make
    const corsHeaders = makeCorsHeaders(api, new Set(yield* corsOrigins.config))
    const routesAt = makeRoutesAt(api, pages, managementPort)

    const addHeadersAndLog = (head: RequestHead, context: RequestContext, decision: Decision, response: Response) => {
      const { headers: own } = response
      const endpoint = context.endpoint ?? routesAt(head.url, head.method).endpoint
      const limits = LimitHeaders.headers(decision, context.keyDecision === undefined ? "address" : "key")
      const cors = corsHeaders(head.method, headerOf(head, "origin"), own.allow)
      const deprecation = endpoint && Context.getOrUndefined(endpoint.annotations, Deprecation)?.headers
      const idAndVary = {
        "x-request-id": context.requestId,
        ...own.vary !== undefined && cors !== undefined && { vary: `${own.vary}, ${cors.vary}` }
      }
      return record(head, context, withHeaders(response, fixedHeaders, own, limits, cors, deprecation, idAndVary))
    }

    // Allowed CORS preflights do not count against the address, because the browser sends them, not the web page.
    const isPreflight = (head: RequestHead, { status }: Response): boolean =>
      status === 204 && headerOf(head, "access-control-request-method") !== undefined &&
      corsHeaders(head.method, headerOf(head, "origin"))?.["access-control-allow-origin"] !== undefined

    return {
      routesAt,
      trustedProxies: yield* trustedProxies.config,
      completeResponse: (head, context, response) => {
        if (context.keyDecision !== undefined) return addHeadersAndLog(head, context, context.keyDecision, response)
        const limited = RateLimit.limitAddress(limiter, head, context, response, isPreflight(head, response))
        return Effect.flatMap(limited, (limit) => addHeadersAndLog(head, context, limit.decision, limit.response))
      },
      // If the connection closes before an API key is charged, the request counts against the address, so that
      // disconnecting does not avoid the rate limit. The recorded status is 499, as in nginx.
      abort: (head, context) =>
        Effect.andThen(
          context.keyDecision === undefined ? RateLimit.chargeAddress(limiter, head) : Effect.void,
          record(head, context, { status: 499 })
        )
    }
  }
)
