/**
 * Declares the errors of the API: one class for each `code`, and one JSON body for all of them (SPEC §2 Error, §7).
 *
 * Each class has a `_tag` for `Effect.catchTag`, a default message, and its HTTP status, so that any `HttpApi` can
 * declare it. The JSON body has exactly `code`, `message` and `status`.
 */
import { type Duration, Effect, Schema, SchemaTransformation } from "effect"

/** The body of every error response (SPEC §2 Error). `status` equals the HTTP status. */
export const ErrorBody = Schema.Struct({
  code: Schema.String.annotate({ description: "Machine-readable error code." }),
  message: Schema.String.annotate({ description: "Human-readable description." }),
  status: Schema.Int.check(Schema.isBetween({ minimum: 400, maximum: 599 })).annotate({
    description: "The HTTP status code."
  })
}).annotate({ identifier: "Error" })
export interface ErrorBody extends Schema.Schema.Type<typeof ErrorBody> {}

/** The facts that a client adds to an error from the headers of its response. */
export interface ErrorHeaders {
  /** The `X-Request-Id` of the response. The log of the service has it too. */
  readonly requestId?: string | undefined
  /** The `Retry-After` of the response (RFC 9110 §10.2.3). */
  readonly retryAfter?: Duration.Duration | undefined
}

/** Makes the base of an error class. `code` and `status` are constants, `message` is the default. */
// oxlint-disable-next-line typescript/no-unnecessary-type-parameters -- the type of the class has them
const declareError = <const Tag extends string, const Code extends string, const Status extends number>(
  tag: Tag,
  status: Status,
  code: Code
) =>
// oxlint-disable-next-line typescript/no-unnecessary-type-parameters
<Self>(message: string) => {
  const base = Schema.Error<Self, ErrorHeaders & { readonly _tag: Tag }>(tag)({
    code: Schema.tag(code),
    message: Schema.String.pipe(Schema.withConstructorDefault(Effect.succeed(message))),
    status: Schema.tag(status)
  }, { description: message, httpApiStatus: status })
  // As a field of the schema, the tag would be in the JSON body.
  Object.assign(Reflect.get(Object(base), "prototype"), { _tag: tag })
  return base
}

/** 400: the body, path, query or a header does not decode (SPEC §7). The message names the invalid fields of one. */
export class InvalidRequest extends declareError("InvalidRequest", 400, "invalid_request")<InvalidRequest>(
  "A required field is missing, or a value is invalid."
) {}

/** 401: the request has no bearer token (SPEC §5.3). */
export class MissingApiKey extends declareError("MissingApiKey", 401, "missing_api_key")<MissingApiKey>(
  "Send an API key as a bearer token: Authorization: Bearer psk_…"
) {}

/** 401: the API key is malformed, unknown, expired or revoked (SPEC §5.3). */
export class InvalidApiKey extends declareError("InvalidApiKey", 401, "invalid_api_key")<InvalidApiKey>(
  "The API key is unknown, expired or revoked."
) {}

/** 401: the request to the management port has no bearer token. */
export class MissingAdminToken extends declareError("MissingAdminToken", 401, "missing_admin_token")<MissingAdminToken>(
  "Send the admin token as a bearer token: Authorization: Bearer adm_…"
) {}

/** 401: the bearer token of the request to the management port is not the admin token. */
export class InvalidAdminToken extends declareError("InvalidAdminToken", 401, "invalid_admin_token")<InvalidAdminToken>(
  "The admin token is wrong."
) {}

/** 403: the admin token can only read (`ADMIN_TOKENS`). */
export class ReadOnlyToken extends declareError("ReadOnlyToken", 403, "read_only_token")<ReadOnlyToken>(
  "This admin token can read, and not change anything."
) {}

/** 404: the path, or the pet or API key that it names, does not exist (SPEC §7). */
export class NotFound extends declareError("NotFound", 404, "not_found")<NotFound>(
  "The requested resource could not be found."
) {}

/** 405: the path does not support the method of the request (RFC 9110 §15.5.6). */
export class MethodNotAllowed extends declareError("MethodNotAllowed", 405, "method_not_allowed")<MethodNotAllowed>(
  "The path does not support this method."
) {}

/** 408: the head or the body of the request did not arrive before the timeout (RFC 9110 §15.5.9). */
export class RequestTimeout extends declareError("RequestTimeout", 408, "request_timeout")<RequestTimeout>(
  "The request took too long to arrive."
) {}

/** 409: the current state of the resource does not allow the operation (RFC 9110 §15.5.10). */
export class Conflict extends declareError("Conflict", 409, "conflict")<Conflict>(
  "The resource is in a state that does not allow this."
) {}

/** 410: the operation was removed (SPEC §9.3). */
export class Gone extends declareError("Gone", 410, "gone")<Gone>(
  "This operation was removed. Use GET /v1/pets with the status filter."
) {}

/** 412: the resource has another version than the `If-Match` of the request names (RFC 9110 §15.5.13). */
export class PreconditionFailed
  extends declareError("PreconditionFailed", 412, "precondition_failed")<PreconditionFailed>(
    "The resource has another version than If-Match names."
  )
{}

/** 413: the body is larger than 64 KiB, the maximum that the service reads (RFC 9110 §15.5.14). */
export class PayloadTooLarge extends declareError("PayloadTooLarge", 413, "payload_too_large")<PayloadTooLarge>(
  "The body is larger than 64 KiB."
) {}

/** 415: the body is not uncompressed `application/json` in UTF-8 (RFC 9110 §15.5.16). */
export class UnsupportedMediaType
  extends declareError("UnsupportedMediaType", 415, "unsupported_media_type")<UnsupportedMediaType>(
    "Send the body as application/json, in UTF-8, not compressed."
  )
{}

/** 417: the `Expect` header has a value other than `100-continue` (RFC 9110 §15.5.18). */
export class ExpectationFailed extends declareError("ExpectationFailed", 417, "expectation_failed")<ExpectationFailed>(
  "The header Expect has another value than 100-continue. Send the request without it."
) {}

/** 421: the management port does not serve the host that the request names (RFC 9110 §15.5.20). */
export class MisdirectedRequest
  extends declareError("MisdirectedRequest", 421, "misdirected_request")<MisdirectedRequest>(
    "The management port does not serve this host. Use an IP address, or list the name in MANAGEMENT_ALLOWED_HOSTS."
  )
{}

/** 422: an earlier request used the same `Idempotency-Key` with another body. */
export class IdempotencyKeyReused
  extends declareError("IdempotencyKeyReused", 422, "idempotency_key_reused")<IdempotencyKeyReused>(
    "The Idempotency-Key was used for another pet. Send a new key."
  )
{}

/** 429: the caller exceeded its rate limit (SPEC §8). `Retry-After` has the seconds until a retry can succeed. */
export class RateLimitExceeded extends declareError("RateLimitExceeded", 429, "rate_limit_exceeded")<RateLimitExceeded>(
  "The rate limit is exceeded."
) {}

/** 429: the caller is banned for requests after a 429 (SPEC §5.4, §8). `Retry-After` has the seconds until the end. */
export class ApiKeyBanned extends declareError("ApiKeyBanned", 429, "api_key_banned")<ApiKeyBanned>(
  "The API key is banned for a while."
) {}

/** 429: one address sent too many requests without the admin token. `Retry-After` has the seconds to wait. */
export class TooManyAttempts extends declareError("TooManyAttempts", 429, "too_many_attempts")<TooManyAttempts>(
  "Too many requests without the admin token came from this address."
) {}

/** 431: the head of the request is larger than 16 KiB or has more than 1,000 fields (RFC 6585 §5). */
export class HeaderFieldsTooLarge
  extends declareError("HeaderFieldsTooLarge", 431, "request_header_fields_too_large")<HeaderFieldsTooLarge>(
    "The head of the request is larger than 16 KiB, or has more than 1,000 fields."
  )
{}

/** 500: the service failed. The message contains no internal details. */
export class InternalError extends declareError("InternalError", 500, "internal_error")<InternalError>(
  "The service failed to respond. The fault is not in the request."
) {}

/** 503: a dependency fails, or the service is overloaded or shutting down. `Retry-After` has the seconds to wait. */
export class ServiceUnavailable
  extends declareError("ServiceUnavailable", 503, "service_unavailable")<ServiceUnavailable>(
    "The service cannot respond at the moment. Retry shortly."
  )
{}

/** 505: the HTTP version of the request is neither 1.0 nor 1.1 (RFC 9110 §15.6.6). */
export class HttpVersionNotSupported
  extends declareError("HttpVersionNotSupported", 505, "http_version_not_supported")<HttpVersionNotSupported>(
    "The service does not support this version of HTTP. Use HTTP/1.1."
  )
{}

/** Every error class of the API port and the management port. */
export const errorClasses = [
  InvalidRequest,
  MissingApiKey,
  InvalidApiKey,
  MissingAdminToken,
  InvalidAdminToken,
  ReadOnlyToken,
  NotFound,
  MethodNotAllowed,
  RequestTimeout,
  Conflict,
  Gone,
  PreconditionFailed,
  PayloadTooLarge,
  UnsupportedMediaType,
  ExpectationFailed,
  MisdirectedRequest,
  IdempotencyKeyReused,
  RateLimitExceeded,
  ApiKeyBanned,
  TooManyAttempts,
  HeaderFieldsTooLarge,
  InternalError,
  ServiceUnavailable,
  HttpVersionNotSupported
] as const

/** An error that the service returns, on the API port or on the management port. */
export type ApiError = InstanceType<(typeof errorClasses)[number]>

/**
 * Returns the schema with which an endpoint of this service declares the error class `error`: an {@link ErrorBody}
 * whose `code` identifies the class. Every error then has one schema in the OpenAPI document.
 */
export const errorResponse = <E extends Schema.Codec<ApiError, ErrorBody>>(error: E) =>
  ErrorBody.pipe(Schema.decodeTo(error, SchemaTransformation.passthroughSupertype<E["Encoded"], ErrorBody>()))

/** The errors that every operation can return: 408, 431, 500 and 503. */
export const commonErrors = [
  errorResponse(RequestTimeout),
  errorResponse(HeaderFieldsTooLarge),
  errorResponse(InternalError),
  errorResponse(ServiceUnavailable)
] as const

/** Returns the body of an error. */
export const bodyOf = ({ code, message, status }: ApiError): ErrorBody => ({ code, message, status })
