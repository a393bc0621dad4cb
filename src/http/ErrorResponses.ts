import { Cause, Effect, Option, Schema } from "effect"
import { HttpServerError, type HttpServerRequest, HttpServerResponse } from "effect/http"
import * as Errors from "../api/Errors.ts"
import { RetryAfter } from "../api/ErrorSchemas.ts"
import type { RequestContext } from "./RequestContext.ts"
import { missingPath, type RoutesAt } from "./RoutePaths.ts"

type Response = HttpServerResponse.HttpServerResponse

const retryAfter = Schema.encodeSync(RetryAfter)

export const make = (context: RequestContext, error: Errors.ApiError, headers: Record<string, string> = {}) => {
  context.failed(error)
  return HttpServerResponse.text(JSON.stringify(Errors.bodyOf(error)), {
    status: error.status,
    contentType: "application/json",
    headers: { ...headers, ...error.retryAfter && { "retry-after": retryAfter(error.retryAfter) } }
  })
}

const ofMissingRoute = (
  { method, url }: HttpServerRequest.HttpServerRequest,
  context: RequestContext,
  routesAt: RoutesAt
): Response => {
  const { methods } = routesAt(url)
  if (methods.length === 0) return make(context, missingPath(url, routesAt))
  const allow = methods.join(", ")
  if (method === "OPTIONS") return HttpServerResponse.empty({ status: 204, headers: { allow } })
  const message = `${method} is not allowed here. Use one of ${allow}.`
  return methods.includes(method)
    // The route exists, so the router must have failed to decode the path's percent-encoding.
    ? make(context, new Errors.InvalidRequest({ message: "Invalid request: path: expected valid percent-encoding." }))
    : make(context, new Errors.MethodNotAllowed({ message }), { allow })
}

/**
 * Returns the response to a failure that HttpApi does not handle. API errors, such as those of `headError` and
 * `/readyz`, get their own status. Requests without a route get 404, 405 or 400. OPTIONS of a known path gets 204. A
 * request that a stop of the process interrupts gets 503.
 * Other failures and defects are logged and get 500.
 */
export const responseOf = (
  cause: Cause.Cause<unknown>,
  request: HttpServerRequest.HttpServerRequest,
  context: RequestContext,
  routesAt: RoutesAt
): Effect.Effect<Response> => {
  const failure = Option.getOrUndefined(Cause.findErrorOption(cause))
  // Close the connection: after a faulty head, the next bytes may not be a new request. This also closes it after the
  // 503 of `/readyz` and the 412 of a document, although their heads are not faulty.
  if (Errors.isApiError(failure)) return Effect.succeed(make(context, failure, { connection: "close" }))
  if (Cause.hasInterruptsOnly(cause)) {
    return Effect.succeed(make(context, new Errors.ServiceUnavailable({ message: "The service is shutting down." })))
  }
  if (HttpServerError.isHttpServerError(failure) && failure.reason._tag === "RouteNotFound") {
    return Effect.succeed(ofMissingRoute(request, context, routesAt))
  }
  return Effect.logError("The request failed", cause).pipe(
    Effect.annotateLogs({ method: request.method, route: context.endpoint?.path ?? "none" }),
    Effect.as(make(context, new Errors.InternalError()))
  )
}
