import { Cause, Effect, Predicate, Schema } from "effect"
import { HttpServerError, type HttpServerRequest, HttpServerResponse } from "effect/http"
import * as Errors from "../api/Errors.ts"
import type { RequestContext } from "./RequestContext.ts"
import { missingPath, type RoutesAt } from "./RoutePaths.ts"

type Response = HttpServerResponse.HttpServerResponse

const retryAfter = Schema.encodeSync(Errors.RetryAfter)

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
  if (methods.length === 0) return make(missingPath(url, routesAt))
  const allow = methods.join(", ")
  if (method === "OPTIONS") return HttpServerResponse.empty({ status: 204, headers: { allow } })
  return methods.includes(method)
    // The path and the method exist, so the router must have failed to decode the percent-encoding.
    ? make(new Errors.InvalidRequest({ message: "Invalid request: path: expected valid percent-encoding." }))
    : make(new Errors.MethodNotAllowed({ message: `${method} is not allowed here. Use one of ${allow}.` }), { allow })
}

const latin1 = new TextDecoder("latin1")

/** Finds the unknown method in the packet that Node rejected. `bytesParsed` may point into the middle of it. */
const unknownMethod = (fault: unknown): string | undefined => {
  if (!Predicate.hasProperty(fault, "rawPacket") || !Predicate.hasProperty(fault, "bytesParsed")) return undefined
  const bytes = fault.rawPacket instanceof Uint8Array ? latin1.decode(fault.rawPacket) : ""
  const at = Number(fault.bytesParsed)
  const [start = ""] = /[A-Z]*$/.exec(bytes.slice(Math.max(0, at - 20), at)) ?? []
  return /^([A-Z]{1,20}) \S+ HTTP\/1\.[01]\r\n/.exec(start + bytes.slice(at))?.[1]
}

export const errorOfParser = (fault: unknown): Errors.ApiError => {
  switch (Predicate.hasProperty(fault, "code") ? fault.code : undefined) {
    case "HPE_INVALID_METHOD": {
      const method = unknownMethod(fault)
      if (method === undefined) break
      return new Errors.MethodNotAllowed({ message: `${method} is not allowed here.` })
    }
    case "HPE_HEADER_OVERFLOW":
      return new Errors.HeaderFieldsTooLarge()
    case "HPE_CHUNK_EXTENSIONS_OVERFLOW":
      return new Errors.PayloadTooLarge({ message: "A chunk extension is over 16 KiB. Send no chunk extensions." })
    case "ERR_TOO_MANY_CHUNKS":
      return new Errors.PayloadTooLarge({ message: "The body came in over 4,096 chunks or packets. Send larger ones." })
    case "ERR_HTTP_REQUEST_TIMEOUT":
      return new Errors.RequestTimeout()
    case "HPE_PAUSED_H2_UPGRADE":
      return new Errors.HttpVersionNotSupported()
    case "HPE_INVALID_VERSION":
      // Node reports unsupported and malformed HTTP versions with this same code. Only this `reason` means unsupported,
      // which gets 505. A malformed version, such as `HTTP/1.x`, gets 400.
      if (Predicate.hasProperty(fault, "reason") && fault.reason === "Invalid HTTP version") {
        return new Errors.HttpVersionNotSupported()
      }
  }
  return new Errors.InvalidRequest({ message: "Invalid request: malformed HTTP (method, URL encoding or a header)." })
}

const isApiError = (failure: unknown): failure is Errors.ApiError =>
  Errors.errorClasses.some((error) => failure instanceof error)

const ofClientError = (
  failure: unknown,
  request: HttpServerRequest.HttpServerRequest,
  routesAt: RoutesAt
): Response | undefined => {
  // An error of `headError` or `/readyz`. Close the connection, because bytes after a faulty head cannot be trusted.
  if (isApiError(failure)) return make(failure, { connection: "close" })
  if (!HttpServerError.isHttpServerError(failure)) return undefined
  const { reason } = failure
  if (reason._tag === "RouteNotFound") return ofMissingRoute(request, routesAt)
  if (reason._tag !== "RequestParseError") return undefined
  return make(reason.reason === "BodyTooLarge" ? new Errors.PayloadTooLarge() : errorOfParser(reason.cause))
}

export const responseOf = (
  cause: Cause.Cause<unknown>,
  request: HttpServerRequest.HttpServerRequest,
  context: RequestContext["Service"],
  routesAt: RoutesAt
): Effect.Effect<Response> => {
  const response = ofClientError(Cause.squash(cause), request, routesAt)
  return response !== undefined ? Effect.succeed(response) : Effect.logError("The request failed", cause).pipe(
    Effect.annotateLogs({ method: request.method, route: context.endpoint?.path ?? "none" }),
    Effect.as(make(new Errors.InternalError()))
  )
}
