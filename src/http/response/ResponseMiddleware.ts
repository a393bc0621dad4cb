/**
 * The middleware around all routes of Effect's HTTP server. Each response leaves with the Error body if it is no
 * success, the common headers, a request id, and a log line.
 */
import { type Context, Effect, Exit, Option } from "effect"
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import type { HttpApi, HttpApiGroup } from "effect/http-api"
import { InvalidRequest } from "../../api/Errors.ts"
import type { Caller } from "../../rate-limit/CallerStates.ts"
import { AdmissionControl, overloaded } from "../admission/AdmissionControl.ts"
import * as Cors from "../middleware/Cors.ts"
import * as RateLimiting from "../middleware/RateLimiting.ts"
import { clientClosedRequest, recordResponse } from "./AccessLog.ts"
import * as CommonHeaders from "./CommonHeaders.ts"
import * as ErrorResponse from "./ErrorResponse.ts"
import { addRequestContext, type ChargedDecision, RequestContext } from "./RequestContext.ts"
import { pathHeadersOf, pathOf } from "./RoutePaths.ts"
import { isServerSource } from "./ServerSource.ts"
import * as ServerSpan from "./ServerSpan.ts"

/** The pages beside the operations of the contract. */
const pages = ["/", "/openapi.json", "/docs", "/favicon.ico"]

/** A request that the fast path serves, and the path of its endpoint as the contract writes it. */
export interface FastCall {
  readonly route: string
  readonly serve: Effect.Effect<HttpServerResponse.HttpServerResponse>
}

/** The differences between the service and the service in memory. */
export interface Environment {
  /** Returns the call of the fast path for the source of a request, or `undefined` for one that the routes serve. */
  readonly fastCallOf: (source: object) => FastCall | undefined
  readonly outageOf: ErrorResponse.OutageOf
}

/**
 * The middleware around all routes of `api`. It calls the fast path for requests that the dispatcher left to Effect's
 * server.
 */
export const layer = <Id extends string, Groups extends HttpApiGroup.Constraint>(
  api: HttpApi.HttpApi<Id, Groups>,
  { fastCallOf, outageOf }: Environment
) =>
  HttpRouter.middleware(
    Effect.gen(function*() {
      const catchErrors = ErrorResponse.catchErrors(api, pages, outageOf)
      const pathHeaders = pathHeadersOf(api)
      const charge = yield* RateLimiting.makeChargeAddress
      const newRequestContext = yield* RequestContext.making
      const startSpan = yield* ServerSpan.makeStart
      const commonHeaders = yield* CommonHeaders.make
      const cors = yield* Cors.make
      const { all } = yield* AdmissionControl
      const addressOf = yield* RateLimiting.makeAddressCaller

      const beginRequest = (request: HttpServerRequest.HttpServerRequest): RequestContext => {
        const headers = headersOf(request)
        const requestContext = newRequestContext(headers["x-request-id"])
        const peer = Option.getOrUndefined(request.remoteAddress)
        requestContext.span = startSpan({ headers, method: request.method, peer, url: request.url })
        return requestContext
      }

      /** Logs the response to a charged request and adds the common headers. */
      const finish = Effect.fnUntraced(function*(
        request: HttpServerRequest.HttpServerRequest,
        requestContext: RequestContext,
        decision: ChargedDecision,
        response: HttpServerResponse.HttpServerResponse
      ) {
        // A body that arrives with its head is complete at the end of the turn.
        if (isUnread(request.source)) yield* Effect.yieldNow
        const { headers: { origin }, method } = request
        const facts = { requestId: requestContext.requestId, decision, method, origin }
        const headers = commonHeaders(facts, response.headers, pathHeaders(request.url))
        if (isUnread(request.source)) headers.connection = "close"
        yield* recordResponse(request, requestContext, response.status)
        return HttpServerResponse.setHeaders(response, headers)
      })

      const byRoutes = Effect.fnUntraced(function*<E, R>(
        request: HttpServerRequest.HttpServerRequest,
        requestContext: RequestContext,
        httpEffect: Effect.Effect<HttpServerResponse.HttpServerResponse, E, R>
      ) {
        const response = yield* catchErrors(httpEffect).pipe(
          Effect.updateContext((services: Context.Context<R | HttpServerRequest.HttpServerRequest>) =>
            addRequestContext(services, requestContext)
          ),
          Effect.annotateLogs({ requestId: requestContext.requestId })
        )
        if (requestContext.decision !== undefined) {
          return yield* finish(request, requestContext, requestContext.decision, response)
        }
        const peer = Option.getOrElse(request.remoteAddress, () => "")
        // A fault is the service's, and a browser repeats a preflight for each URL: neither is charged.
        const isFree = response.status >= 500 ||
          (response.status === 204 && cors.isPreflight(request.method, request.headers))
        const address = addressOf(peer, request.headers["x-forwarded-for"])
        // The pages have a limit of their own, so that a visitor has all requests left for the first calls.
        const caller: Caller = pages.includes(pathOf(request.url)) ? `${address} pages` : address
        const decision = yield* charge(caller, isFree)
        // The request counts for its address until its response is flushed.
        if (yield* Effect.isFailure(requestContext.slot.assign(caller))) {
          return yield* finish(request, requestContext, decision, ErrorResponse.make(overloaded, retryShortly))
        }
        return yield* finish(
          request,
          requestContext,
          decision,
          // A rejected client must not hold one of the limited connections.
          decision.allowed
            ? response
            : ErrorResponse.make(RateLimiting.limitExceeded(decision), { connection: "close" })
        )
      })

      return (httpEffect) =>
        Effect.flatMap(HttpServerRequest.HttpServerRequest, (request) => {
          const requestContext = (isServerSource(request.source) ? request.source.requestContext : undefined) ??
            beginRequest(request)
          const { outcome, route } = requestContext
          // A request that the fast path began has a route and may be charged already. It is not rejected here.
          const rejected = route === undefined
            ? (all.isFull ? Effect.die(overloaded) : rejectPath(request))
            : outcome
          // The dispatcher leaves two kinds of requests to Effect's server: traced ones, and those after a shutdown
          // began.
          const call = route === undefined && rejected === undefined ? fastCallOf(request.source) : undefined
          if (call !== undefined) requestContext.route = call.route
          const response = byRoutes(request, requestContext, rejected ?? call?.serve ?? httpEffect)
          // Acquired and released in one step, so that no interruption between them leaks a slot.
          return Effect.acquireUseRelease(
            Effect.sync(() => requestContext.slot.start()),
            () => response,
            (_, exit) => {
              requestContext.slot.end()
              return Exit.hasInterrupts(exit)
                ? recordResponse(request, requestContext, clientClosedRequest)
                : Effect.void
            }
          )
        })
    }),
    { global: true }
  )

const badPath = Effect.succeed(
  ErrorResponse.make(new InvalidRequest({ message: "Invalid request: path: expected no ; and no #." }))
)

const retryShortly = { "retry-after": "1", connection: "close" }

/** Reads Node's headers where there are any. Effect makes its own when they are first read, which costs time. */
const headersOf = (request: HttpServerRequest.HttpServerRequest) =>
  isServerSource(request.source) ? request.source.headers : request.headers

/** Rejects `;` and `#` in a path. The router would end the path there and read the rest as the query. */
const rejectPath = (request: HttpServerRequest.HttpServerRequest) =>
  /^[^?]*[;#]/.test(request.url) ? badPath : undefined

/** Whether a part of the request's body is unread. The next request on the connection could not begin before it. */
const isUnread = (source: object): boolean =>
  isServerSource(source) && !source.complete &&
  (source.headers["content-length"] !== undefined || source.headers["transfer-encoding"] !== undefined)
