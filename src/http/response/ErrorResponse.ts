/** Error responses: every failure becomes the Error body of SPEC §7, without internal details. */
import { Cause, Effect, Predicate } from "effect"
import { HttpIncomingMessage, HttpServerError, HttpServerRequest, HttpServerResponse } from "effect/http"
import type { HttpApi, HttpApiGroup } from "effect/http-api"
import * as Errors from "../../api/Errors.ts"
import { describe } from "../../observability/LogLines.ts"
import * as JsonBody from "../middleware/JsonBody.ts"
import { methodsOf } from "./RoutePaths.ts"

/** Serializes the Error body: exactly `code`, `message` and `status`. */
export const bodyOf = ({ code, message, status }: Errors.ApiError): string => JSON.stringify({ code, message, status })

/** Makes a response with the Error body. */
export const make = (
  error: Errors.ApiError,
  headers: Readonly<Record<string, string>> = {}
): HttpServerResponse.HttpServerResponse =>
  HttpServerResponse.text(bodyOf(error), { status: error.status, headers, contentType: "application/json" })

/** Returns the 503 for a failure that is an outage of what the service depends on, or `undefined` for another one. */
export type OutageOf = (failure: unknown) => Errors.ServiceUnavailable | undefined

/** Turns every failure of the routes of `api`, and of the `pages` beside it, into an error response. */
export const catchErrors = <Id extends string, Groups extends HttpApiGroup.Constraint>(
  api: HttpApi.HttpApi<Id, Groups>,
  pages: ReadonlyArray<string>,
  outageOf: OutageOf
) => {
  const allowedMethods = methodsOf(api, pages)

  const toResponse = (
    failure: unknown,
    request: HttpServerRequest.HttpServerRequest
  ): HttpServerResponse.HttpServerResponse => {
    const outage = failure instanceof Errors.ServiceUnavailable ? failure : outageOf(failure)
    if (outage !== undefined) return make(outage, { "retry-after": "1" })
    if (!HttpServerError.isHttpServerError(failure)) return make(internal)
    switch (failure.reason._tag) {
      case "RouteNotFound": {
        const allow = request.url === "*" && request.method !== "OPTIONS" ? [] : allowedMethods(request.url)
        if (allow.length === 0) return make(new Errors.NotFound({ message: "There is nothing at this path." }))
        if (request.method === "OPTIONS") {
          return HttpServerResponse.empty({ status: 204, headers: { allow: allow.join(", ") } })
        }
        return allow.includes(request.method)
          // The router knows no path with invalid percent-encoding.
          ? make(new Errors.InvalidRequest({ message: "Invalid request: path: expected valid percent-encoding." }))
          : make(new Errors.MethodNotAllowed({ message: `${request.method} is not allowed here.` }), {
            allow: allow.join(", ")
          })
      }
      case "RequestParseError":
        return make(
          failure.reason.reason === "BodyTooLarge" ? JsonBody.payloadTooLarge : errorOfParser(failure.reason.cause)
        )
      default:
        return make(internal)
    }
  }

  return <E, R>(httpEffect: Effect.Effect<HttpServerResponse.HttpServerResponse, E, R>) =>
    httpEffect.pipe(
      Effect.catchCause((cause) =>
        Effect.flatMap(HttpServerRequest.HttpServerRequest, (request) => {
          if (Cause.hasInterruptsOnly(cause)) return Effect.failCause(cause)
          const failure = Cause.squash(cause)
          const response = toResponse(failure, request)
          // An overload is not logged as an error: the access log and the metrics show it.
          if (response.status < 500 || failure instanceof Errors.ServiceUnavailable) return Effect.succeed(response)
          // During an outage every request has the same cause. One line without a stack trace is enough.
          const log = response.status === 503
            ? Effect.logError(`The request failed: ${describe(cause)}`)
            : Effect.logError("The request failed", cause)
          return Effect.as(log, response)
        })
      ),
      Effect.map(addRequiredHeaders),
      Effect.provideService(HttpIncomingMessage.MaxBodySize, JsonBody.maxSize)
    )
}

/** Returns the error for a request that Node's parser rejects, by the parser's error code. */
export const errorOfParser = (fault: unknown): Errors.ApiError => {
  switch (Predicate.hasProperty(fault, "code") ? fault.code : undefined) {
    case "HPE_HEADER_OVERFLOW":
      return new Errors.HeaderFieldsTooLarge()
    case "HPE_CHUNK_EXTENSIONS_OVERFLOW":
      return new Errors.PayloadTooLarge({ message: "The chunk extensions of the body are larger than its data." })
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

/** Adds the headers that HTTP requires for a status, and replaces HttpApi's own 415. */
export const addRequiredHeaders = (
  response: HttpServerResponse.HttpServerResponse
): HttpServerResponse.HttpServerResponse => {
  switch (response.status) {
    case 401:
      return HttpServerResponse.setHeader(response, "www-authenticate", "Bearer")
    case 415:
      // HttpApi responds in plain text to an empty body of another type.
      return make(JsonBody.unsupportedMediaType)
    default:
      return response
  }
}

const internal = new Errors.InternalError()
