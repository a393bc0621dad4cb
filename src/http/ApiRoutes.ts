import { type Config, Context, Effect, Layer } from "effect"
import { HttpServer, type HttpServerResponse } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import { PathHeaders } from "../api/OperationMiddleware.ts"
import { PetstoreApi } from "../api/PetstoreApi.ts"
import { exposedHeaders, fixedHeaders } from "../api/ResponseHeaders.ts"
import { corsOrigins, trustedProxies } from "../config/Setting.ts"
import { RateLimiter } from "../rate-limit/RateLimiter.ts"
import { recordAbort, recordResponse } from "./AccessLog.ts"
import { clientNetwork } from "./ClientAddress.ts"
import * as ErrorResponses from "./ErrorResponses.ts"
import * as Middleware from "./Middleware.ts"
import * as PetHandlers from "./PetHandlers.ts"
import * as RateLimiting from "./RateLimiting.ts"
import type { ChargedDecision, RequestContext } from "./RequestContext.ts"
import { headerOf, type RequestHead } from "./RequestHead.ts"
import * as Responses from "./Responses.ts"
import { makeRoutesAt } from "./RoutePaths.ts"

type Response = HttpServerResponse.HttpServerResponse
type Headers = Readonly<Record<string, string>>

/**
 * The request headers that CORS allows. `b3`, `traceparent` and `tracestate` are among them, because tracing libraries
 * add them to every request.
 */
const acceptedHeaders = "Authorization, Content-Type, Idempotency-Key, X-Request-Id, b3, traceparent, tracestate"

const makeCorsHeaders =
  (origins: ReadonlySet<string>) => (method: string, origin: string | undefined, allow = ""): Headers | undefined => {
    if (origins.size === 0) return undefined
    if (origin === undefined || !(origins.has("*") || origins.has(origin))) return { vary: "Origin" }
    const granted = { vary: "Origin", "access-control-allow-origin": origin }
    return method !== "OPTIONS"
      ? { ...granted, "access-control-expose-headers": exposedHeaders.join(", ") }
      : {
        ...granted,
        "access-control-allow-methods": allow,
        "access-control-allow-headers": acceptedHeaders,
        "access-control-max-age": "86400"
      }
  }

/** `pages` are the paths of documents that the port serves too. */
export const makeHooks = Effect.fnUntraced(
  function*(pages: ReadonlyArray<string>): Effect.gen.Return<Responses.PortHooks, Config.ConfigError, RateLimiter> {
    const limiter = yield* RateLimiter
    const corsHeaders = makeCorsHeaders(new Set(yield* corsOrigins.config))
    const routesAt = makeRoutesAt(PetstoreApi, pages)

    const send = (
      head: RequestHead,
      context: RequestContext["Service"],
      decision: ChargedDecision,
      response: Response
    ) => {
      const { headers: own } = response
      const headers: Record<string, string> = {
        ...fixedHeaders,
        ...own,
        ...RateLimiting.headers(decision),
        "x-request-id": context.requestId,
        ...corsHeaders(head.method, headerOf(head, "origin"), own.allow),
        ...context.endpoint === undefined
          ? routesAt(head.url).headers
          : Context.getOrUndefined(context.endpoint.annotations, PathHeaders)
      }
      if (own.vary !== undefined && headers.vary !== own.vary) headers.vary = `${own.vary}, ${headers.vary}`
      return Effect.as(recordResponse(head, context, response), Responses.withHeaders(response, headers))
    }

    const chargeAddress = (head: RequestHead, isFree: boolean) =>
      RateLimiting.chargeAddress(limiter, `address:${clientNetwork(head)}`, isFree)

    const chargeAndSend = (head: RequestHead, context: RequestContext["Service"], response: Response) => {
      const isPreflight = response.status === 204 && headerOf(head, "access-control-request-method") !== undefined &&
        corsHeaders(head.method, headerOf(head, "origin"))?.["access-control-allow-origin"] !== undefined
      // Do not charge the address for an allowed CORS preflight, which browsers send on their own, or for a server
      // error. A 505 is charged, because the client chose the HTTP version.
      const isFree = (response.status >= 500 && response.status !== 505) || isPreflight
      return Effect.flatMap(chargeAddress(head, isFree), (decision) => {
        if (decision.allowed) return send(head, context, decision, response)
        // Close the connection, so that an address over its rate limit cannot keep it open.
        const rejection = ErrorResponses.make(RateLimiting.rejectionOf(decision), { connection: "close" })
        return send(head, context, decision, rejection)
      })
    }

    return {
      routesAt,
      trustedProxies: yield* trustedProxies.config,
      finish: (head, context, response) =>
        context.decision === undefined
          ? chargeAndSend(head, context, response)
          : send(head, context, context.decision, response),
      // Charge early disconnects too. Otherwise a client could cause lookups of API keys without limit.
      abort: (head, context) =>
        Effect.andThen(
          context.decision === undefined ? chargeAddress(head, false) : Effect.void,
          recordAbort(head, context)
        )
    }
  }
)

const operations = HttpApiBuilder.layer(PetstoreApi).pipe(
  Layer.provide(PetHandlers.layer),
  Layer.provide(Middleware.layer),
  Layer.provide(HttpServer.layerServices)
)

/** The API routes, wrapped in the middleware of the API port, which also runs for unmatched routes. */
export const layer = (hooks: Responses.PortHooks) => Layer.merge(operations, Responses.layer(hooks))
