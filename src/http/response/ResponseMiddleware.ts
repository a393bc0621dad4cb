/**
 * The long way to an answer: by Effect's HTTP server, around all its routes. Whatever they come to goes out with what
 * every answer has: the Error body where it is no success, the rate-limit headers, a request id, and a line in the log.
 */
import { type Context, Effect, Exit, Option } from "effect"
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import type { HttpApi, HttpApiGroup } from "effect/http-api"
import { IncomingMessage } from "node:http"
import { InvalidRequest } from "../../api/Errors.ts"
import type { Decision } from "../../rate-limit/Policy.ts"
import type { FastPath } from "../fast-path/FastPath.ts"
import * as Cors from "../middleware/Cors.ts"
import * as RateLimiting from "../middleware/RateLimiting.ts"
import { AdmissionControl, overloaded } from "../node/AdmissionControl.ts"
import { IncomingRequest } from "../node/IncomingRequest.ts"
import { clientClosedRequest, recordResponse } from "./AccessLog.ts"
import * as CommonHeaders from "./CommonHeaders.ts"
import * as ErrorResponse from "./ErrorResponse.ts"
import { CurrentRequestContext, RequestContext } from "./RequestContext.ts"
import { pathHeadersOf } from "./RoutePaths.ts"

/** What is served beside the operations of the contract. */
const pages = ["/openapi.json", "/docs", "/favicon.ico"]

/** Around all routes of `api`, and around the fast path where Effect's server calls it. */
export const layer = <Id extends string, Groups extends HttpApiGroup.Constraint>(
  api: HttpApi.HttpApi<Id, Groups>,
  fastPath: FastPath
) =>
  HttpRouter.middleware(
    Effect.gen(function*() {
      const answering = ErrorResponse.catchErrors(api, pages)
      const pathHeaders = pathHeadersOf(api)
      const charge = yield* RateLimiting.makeChargeAddress
      const newRequestContext = yield* RequestContext.making
      const edge = yield* CommonHeaders.make
      const cors = yield* Cors.make
      const { all } = yield* AdmissionControl
      const addressOf = yield* RateLimiting.makeAddressCaller

      /** Sends what was answered to a request that is charged, with what every answer has. */
      const finish = Effect.fnUntraced(function*(
        request: HttpServerRequest.HttpServerRequest,
        requestContext: RequestContext,
        decision: Decision,
        response: HttpServerResponse.HttpServerResponse
      ) {
        // A body that came along with its head is read by the end of the turn.
        if (isUnread(request.source)) yield* Effect.yieldNow
        const { headers: { origin }, method } = request
        const answered = { requestId: requestContext.requestId, decision, method, origin }
        const shown = edge(answered, response.headers, pathHeaders(request.url))
        if (isUnread(request.source)) shown.connection = "close"
        yield* recordResponse(method, requestContext, response.status)
        return HttpServerResponse.setHeaders(response, shown)
      })

      const byRoutes = Effect.fnUntraced(function*<E, R>(
        request: HttpServerRequest.HttpServerRequest,
        requestContext: RequestContext,
        httpEffect: Effect.Effect<HttpServerResponse.HttpServerResponse, E, R>
      ) {
        const response = yield* answering(httpEffect).pipe(
          Effect.provideService(CurrentRequestContext, requestContext),
          Effect.annotateLogs({ requestId: requestContext.requestId })
        )
        if (requestContext.decision !== undefined) {
          return yield* finish(request, requestContext, requestContext.decision, response)
        }
        const peer = Option.getOrElse(request.remoteAddress, () => "")
        // A fault is ours; and a preflight is the browser's, for each URL anew, of a page that may call.
        const isFree = response.status >= 500 ||
          (response.status === 204 && cors.isPreflight(request.method, request.headers))
        const caller = addressOf(peer, request.headers["x-forwarded-for"])
        const decision = yield* charge(caller, isFree)
        // For as long as its response is not flushed, the request counts for its address.
        if (yield* Effect.isFailure(requestContext.slot.assign(caller))) {
          return yield* finish(request, requestContext, decision, ErrorResponse.make(overloaded, retryShortly))
        }
        return yield* finish(
          request,
          requestContext,
          decision,
          // Who is refused is to hold no connection either: there are only so many.
          decision.allowed
            ? response
            : ErrorResponse.make(RateLimiting.limitExceeded(decision), { connection: "close" })
        )
      })

      return (httpEffect) =>
        Effect.flatMap(HttpServerRequest.HttpServerRequest, (request) => {
          const requestContext =
            (request.source instanceof IncomingRequest ? request.source.requestContext : undefined) ??
              newRequestContext(headersOf(request)["x-request-id"])
          const { outcome, route } = requestContext
          // A request that the fast path began has a route, and may be charged already: it is not refused again.
          const refused = route === undefined
            ? (all.isFull ? Effect.die(overloaded) : refusal(request))
            : outcome
          // The dispatcher leaves all to Effect: what is traced, and what comes once a shutdown has begun.
          const call = route === undefined && refused === undefined && request.source instanceof IncomingMessage
            ? fastPath(request.source)
            : undefined
          if (call !== undefined) requestContext.route = call.endpoint.path
          const served = call && Effect.updateContext(
            Effect.interruptible(call.serve),
            (services: Context.Context<never>) => call.addTo(services)
          )
          const answer = byRoutes(request, requestContext, refused ?? served ?? httpEffect)
          // Taken and given back in one step, so that no interruption between them leaks a slot.
          return Effect.acquireUseRelease(
            Effect.sync(() => requestContext.slot.start()),
            () => answer,
            (_, exit) => {
              requestContext.slot.end()
              return Exit.hasInterrupts(exit)
                ? recordResponse(request.method, requestContext, clientClosedRequest)
                : Effect.void
            }
          )
        })
    }),
    { global: true }
  )

const badPath = Effect.succeed(
  ErrorResponse.make(new InvalidRequest({ message: "Invalid request: path: expected no ; and no # in it." }))
)

const retryShortly = { "retry-after": "1", connection: "close" }

/** As Node has them, where there is a Node: Effect's own are made when first read. */
const headersOf = (request: HttpServerRequest.HttpServerRequest) =>
  request.source instanceof IncomingMessage ? request.source.headers : request.headers

/** The router would end the path there, and take what follows for the query. */
const refusal = (request: HttpServerRequest.HttpServerRequest) => /^[^?]*[;#]/.test(request.url) ? badPath : undefined

/** What is not read of a request is in the way of the next on its connection. */
const isUnread = (source: object): boolean =>
  source instanceof IncomingMessage && !source.complete &&
  (source.headers["content-length"] !== undefined || source.headers["transfer-encoding"] !== undefined)
