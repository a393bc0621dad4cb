/** Whatever an answer failed with, as an error of the contract: none of its inside gets out. */
import { Cause } from "effect"
import { HttpServerError, type HttpServerRequest } from "effect/http"
import { HttpApi } from "effect/http-api"
import { SqlError } from "effect/sql"
import * as Errors from "../api/Errors.ts"
import { PetstoreApi } from "../api/PetstoreApi.ts"

/** What HttpApi and the platform fail with, and the defects of handlers. */
export const fromCause = (
  cause: Cause.Cause<unknown>,
  request: HttpServerRequest.HttpServerRequest
): Errors.ApiError => {
  const failure = Cause.squash(cause)
  if (SqlError.isSqlError(failure)) return failure.reason.isRetryable || isUnreachable(failure) ? unavailable : internal
  if (!HttpServerError.isHttpServerError(failure)) return internal
  switch (failure.reason._tag) {
    case "RouteNotFound":
      return allowedMethods(request.url).length === 0
        ? new Errors.NotFound({ message: "There is nothing at this path." })
        : new Errors.MethodNotAllowed({ message: `${request.method} is not allowed here.` })
    case "RequestParseError":
      return failure.reason.reason === "BodyTooLarge"
        ? new Errors.PayloadTooLarge({ message: "The body is larger than 64 KiB." })
        : new Errors.InvalidRequest({ message: "The request could not be read." })
    default:
      return internal
  }
}

const internal = new Errors.InternalError({ message: "The service failed to answer. The fault is ours." })
const unavailable = new Errors.ServiceUnavailable({
  message: "The service cannot answer at the moment. Retry shortly."
})

const isUnreachable = ({ reason }: SqlError.SqlError): boolean =>
  reason._tag === "ConnectionError" || reason._tag === "AuthenticationError" || reason._tag === "AuthorizationError"

const operations: Array<{ readonly method: string; readonly path: RegExp }> = []
HttpApi.reflect(PetstoreApi, {
  onGroup() {},
  onEndpoint({ endpoint }) {
    operations.push({ method: endpoint.method, path: new RegExp(`^${endpoint.path.replace(/:\w+/g, "[^/]*")}$`) })
  }
})

/** The methods that the path of `url` has operations for (RFC 9110 §10.2.1); none if there is no such path. */
export const allowedMethods = (url: string): ReadonlyArray<string> => {
  const [path = ""] = url.split("?", 1)
  return operations
    .filter((operation) => operation.path.test(path))
    .flatMap(({ method }) => method === "GET" ? ["GET", "HEAD"] : [method])
}
