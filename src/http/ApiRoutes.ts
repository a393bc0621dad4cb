/** The API port without a server: the contract with its handlers and middleware, and the parts of each response. */
import { type Config, Context, Effect, Layer } from "effect"
import { HttpServer, type HttpServerResponse } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import { PathHeaders } from "../api/OperationMiddleware.ts"
import { PetstoreApi } from "../api/PetstoreApi.ts"
import { exposedHeaders, fixedHeaders } from "../api/ResponseHeaders.ts"
import { corsOrigins } from "../config/Setting.ts"
import { RateLimiter } from "../rate-limit/RateLimiter.ts"
import { clientAborted, recordResponse } from "./AccessLog.ts"
import { type Call, type ChargedDecision, headerOf, type RequestHead } from "./Call.ts"
import { clientNetwork } from "./ClientAddress.ts"
import * as ErrorResponses from "./ErrorResponses.ts"
import * as Middleware from "./Middleware.ts"
import * as PetHandlers from "./PetHandlers.ts"
import * as RateLimiting from "./RateLimiting.ts"
import * as Responses from "./Responses.ts"
import { makeRoutesAt } from "./RoutePaths.ts"

type Response = HttpServerResponse.HttpServerResponse
type Headers = Readonly<Record<string, string>>

/** The pages beside the operations. */
const pages = ["/", "/openapi.json", "/docs"]

/** The headers of cross-origin requests that the service accepts. Clients send trace context unasked. */
const acceptedHeaders = "Authorization, Content-Type, Idempotency-Key, X-Request-Id, b3, traceparent, tracestate"

/** Returns the headers of responses to pages of other origins (Fetch §3.2), which `origins` names, or `*` for all. */
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

/** Makes the part of the responses that differs from the management port: charges, headers and the access log. */
export const makePort = Effect.gen(function*(): Effect.gen.Return<Responses.Port, Config.ConfigError, RateLimiter> {
  const limiter = yield* RateLimiter
  const corsHeaders = makeCorsHeaders(new Set(yield* corsOrigins.config))
  const routesAt = makeRoutesAt(PetstoreApi, pages)

  /** Adds the headers of the port to the response to a charged request, and writes the access log. */
  const send = (head: RequestHead, call: Call, decision: ChargedDecision, response: Response) => {
    const { headers: own } = response
    const headers: Record<string, string> = {
      // A document has its own caching, and may have its own policy.
      ...fixedHeaders,
      ...own,
      ...RateLimiting.headers(decision),
      "x-request-id": call.requestId,
      ...corsHeaders(head.method, headerOf(head, "origin"), own.allow),
      ...call.endpoint === undefined
        ? routesAt(head.url).headers
        : Context.getOrUndefined(call.endpoint.annotations, PathHeaders)
    }
    if (own.vary !== undefined && headers.vary !== own.vary) headers.vary = `${own.vary}, ${headers.vary}`
    return Effect.as(recordResponse(head, call, response.status), Responses.withHeaders(response, headers))
  }

  /** Charges a request without a valid key to its address. */
  const charge = (head: RequestHead, call: Call, response: Response) => {
    const isPreflight = response.status === 204 && headerOf(head, "access-control-request-method") !== undefined &&
      corsHeaders(head.method, headerOf(head, "origin"))?.["access-control-allow-origin"] !== undefined
    // A fault is the service's, and a browser repeats a preflight for each URL: neither is charged.
    const isFree = (response.status >= 500 && response.status !== 505) || isPreflight
    return Effect.flatMap(RateLimiting.chargeAddress(limiter, `address:${clientNetwork(head)}`, isFree), (decision) => {
      if (decision.allowed) return send(head, call, decision, response)
      // A rejected client must not hold one of the limited connections.
      const rejection = ErrorResponses.make(RateLimiting.limitExceeded(decision), { connection: "close" })
      return send(head, call, decision, rejection)
    })
  }

  return {
    routesAt,
    finish: (head, call, response) =>
      call.decision === undefined ? charge(head, call, response) : send(head, call, call.decision, response),
    abort: (head, call) => recordResponse(head, call, clientAborted)
  }
})

const operations = HttpApiBuilder.layer(PetstoreApi).pipe(
  Layer.provide(PetHandlers.layer),
  Layer.provide(Middleware.layer),
  Layer.provide(HttpServer.layerServices)
)

/** The routes of the operations, with the middleware of the port around them and around all other routes. */
export const layer = (port: Responses.Port) => Layer.merge(operations, Responses.layer(port))
