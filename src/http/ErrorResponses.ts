/** Maps every failure to the Error body of SPEC §7, without internal details. */
import { Cause, Context, Effect, Predicate, Schema } from "effect"
import { HttpServerError, type HttpServerRequest, HttpServerResponse } from "effect/http"
import * as Errors from "../api/Errors.ts"
import { describe } from "../observability/LogLines.ts"
import type { RequestContext } from "./RequestContext.ts"
import { noSuchPath } from "./RequestHead.ts"
import type { RoutesAt } from "./RoutePaths.ts"

type Response = HttpServerResponse.HttpServerResponse

/** Returns the 503 for a failure that is an outage of what the service depends on, or `undefined` for another one. */
export const OutageOf = Context.Reference<(failure: unknown) => Errors.ServiceUnavailable | undefined>(
  "petstore/http/OutageOf",
  { defaultValue: () => () => undefined }
)

const retryAfter = Schema.encodeSync(Errors.RetryAfter)

/** Makes a response with the Error body: exactly `code`, `message` and `status`. */
export const make = (error: Errors.ApiError, headers: Readonly<Record<string, string>> = {}): Response =>
  HttpServerResponse.text(JSON.stringify(Errors.bodyOf(error)), {
    status: error.status,
    contentType: "application/json",
    headers: "retryAfter" in error && error.retryAfter !== undefined
      ? { ...headers, "retry-after": retryAfter(error.retryAfter) }
      : headers
  })

const ofMissingRoute = ({ method, url }: HttpServerRequest.HttpServerRequest, routesAt: RoutesAt): Response => {
  const { methods } = routesAt(url)
  if (methods.length === 0) return make(noSuchPath)
  const allow = methods.join(", ")
  if (method === "OPTIONS") return HttpServerResponse.empty({ status: 204, headers: { allow } })
  return methods.includes(method)
    // The router knows no path with invalid percent-encoding.
    ? make(new Errors.InvalidRequest({ message: "Invalid request: path: expected valid percent-encoding." }))
    : make(new Errors.MethodNotAllowed({ message: `${method} is not allowed here.` }), { allow })
}

/** Returns the error for a request that Node's parser rejects, by the parser's error code. */
export const errorOfParser = (fault: unknown): Errors.ApiError => {
  switch (Predicate.hasProperty(fault, "code") ? fault.code : undefined) {
    case "HPE_HEADER_OVERFLOW":
      return new Errors.HeaderFieldsTooLarge()
    case "HPE_CHUNK_EXTENSIONS_OVERFLOW":
      return new Errors.PayloadTooLarge({ message: "The chunk extensions of the body are larger than its data." })
    case "ERR_TOO_MANY_PIECES":
      return new Errors.PayloadTooLarge({ message: "The body arrives in more than 4,096 pieces. Send larger ones." })
    case "ERR_HTTP_REQUEST_TIMEOUT":
      return new Errors.RequestTimeout()
    case "HPE_PAUSED_H2_UPGRADE":
      return new Errors.HttpVersionNotSupported()
    case "HPE_INVALID_VERSION":
      // With any other reason the text is not a version at all.
      if (Predicate.hasProperty(fault, "reason") && fault.reason === "Invalid HTTP version") {
        return new Errors.HttpVersionNotSupported()
      }
  }
  return new Errors.InvalidRequest({ message: "Invalid request: expected a complete HTTP/1.1 request." })
}

const isApiError = (failure: unknown): failure is Errors.ApiError =>
  Errors.errorClasses.some((error) => failure instanceof error)

/** Returns the response to a failure that is no fault of the service, or `undefined`. */
const ofClientFault = (
  failure: unknown,
  request: HttpServerRequest.HttpServerRequest,
  routesAt: RoutesAt
): Response | undefined => {
  // A check of the head or of the body failed, or the service has no room. The connection ends.
  if (isApiError(failure)) return make(failure, { connection: "close" })
  if (!HttpServerError.isHttpServerError(failure)) return undefined
  const { reason } = failure
  if (reason._tag === "RouteNotFound") return ofMissingRoute(request, routesAt)
  if (reason._tag !== "RequestParseError") return undefined
  return make(reason.reason === "BodyTooLarge" ? new Errors.PayloadTooLarge() : errorOfParser(reason.cause))
}

/** Returns the response to a failure, and logs a fault of the service. */
export const responseOf = (
  cause: Cause.Cause<unknown>,
  request: HttpServerRequest.HttpServerRequest,
  context: RequestContext["Service"],
  routesAt: RoutesAt
): Effect.Effect<Response> => {
  const failure = Cause.squash(cause)
  const response = ofClientFault(failure, request, routesAt)
  if (response !== undefined) return Effect.succeed(response)
  return Effect.flatMap(OutageOf, (outageOf) => {
    const outage = outageOf(failure)
    const log = outage === undefined
      ? Effect.logError("The request failed", cause)
      // During an outage every request has the same cause. One line without a stack trace is enough.
      : Effect.logError(`The request failed: ${describe(cause)}`)
    return Effect.as(
      Effect.annotateLogs(log, { method: request.method, route: context.endpoint?.path ?? "none" }),
      make(outage ?? new Errors.InternalError())
    )
  })
}
