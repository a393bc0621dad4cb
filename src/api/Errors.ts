/**
 * Declares the errors of the API: one class for each `code`, and one JSON body for all of them (SPEC §2 Error, §7).
 *
 * Each class has a `_tag` for `Effect.catchTag`. The JSON body has exactly `code`, `message` and `status`. A class that
 * the API port returns has an `example`, for the OpenAPI document and the API reference.
 */
import { Effect, Schema, SchemaTransformation } from "effect"
import { HttpApiSchema } from "effect/http-api"

/** The body of every error response (SPEC §2 Error). `status` equals the HTTP status. */
export const ErrorBody = Schema.Struct({
  code: Schema.String.annotate({ description: "Machine-readable error code." }),
  message: Schema.String.annotate({ description: "Human-readable description." }),
  status: Schema.Int.check(Schema.isBetween({ minimum: 400, maximum: 599 })).annotate({
    description: "The HTTP status code."
  })
}).annotate({ identifier: "Error" })
export type ErrorBody = typeof ErrorBody.Type

/** Returns the fields of an error class: `code` and `status` are constants, the caller supplies `message`. */
const fields = <const Code extends string, const Status extends number>(code: Code, status: Status) => ({
  code: Schema.tag(code),
  message: Schema.String,
  status: Schema.tag(status),
  /** The `X-Request-Id` of the response, which the client adds. The log of the service has it too. */
  requestId: Schema.optionalKey(Schema.String),
  /** The seconds in the `Retry-After` of the response, which the client adds (RFC 9110 §10.2.3). */
  retryAfter: Schema.optionalKey(Schema.Int)
})

/** Returns the fields of an error class whose `message` has a default. */
const fieldsWithDefaultMessage = <const Code extends string, const Status extends number>(
  code: Code,
  status: Status,
  message: string
) => ({
  ...fields(code, status),
  message: Schema.String.pipe(Schema.withConstructorDefault(Effect.succeed(message)))
})

/**
 * 400: the body, the path, the query or a header does not decode (SPEC §7).
 *
 * The message names each invalid field and the value that the schema expects there.
 */
export class InvalidRequest extends Schema.Error<InvalidRequest>("InvalidRequest")(fields("invalid_request", 400), {
  description: "A required field is missing, or a value is invalid."
}) {
  readonly _tag = "InvalidRequest"
  static readonly example = new InvalidRequest({
    message: "Invalid request: body.name: expected string; body.categoryId: required."
  })
}

/** 401: the request has no bearer token (SPEC §5.3). */
export class MissingApiKey extends Schema.Error<MissingApiKey>("MissingApiKey")(
  fieldsWithDefaultMessage("missing_api_key", 401, "Send an API key as a bearer token: Authorization: Bearer psk_…"),
  { description: "The API key is missing." }
) {
  readonly _tag = "MissingApiKey"
  static readonly example = new MissingApiKey()
}

/** 401: the API key is malformed, unknown, expired or revoked (SPEC §5.3). */
export class InvalidApiKey extends Schema.Error<InvalidApiKey>("InvalidApiKey")(
  fieldsWithDefaultMessage("invalid_api_key", 401, "The API key is unknown, expired or revoked."),
  { description: "The API key is invalid." }
) {
  readonly _tag = "InvalidApiKey"
  static readonly example = new InvalidApiKey()
}

/** 401: the request to the management port has no bearer token. */
export class MissingAdminToken extends Schema.Error<MissingAdminToken>("MissingAdminToken")(
  fieldsWithDefaultMessage(
    "missing_admin_token",
    401,
    "Send the admin token as a bearer token: Authorization: Bearer adm_…"
  ),
  { description: "The admin token is missing." }
) {
  readonly _tag = "MissingAdminToken"
}

/** 401: the bearer token of the request to the management port is not the admin token. */
export class InvalidAdminToken extends Schema.Error<InvalidAdminToken>("InvalidAdminToken")(
  fieldsWithDefaultMessage("invalid_admin_token", 401, "The admin token is wrong."),
  { description: "The admin token is wrong." }
) {
  readonly _tag = "InvalidAdminToken"
}

/** 404: the path, or the pet or API key that it names, does not exist (SPEC §7). */
export class NotFound extends Schema.Error<NotFound>("NotFound")(fields("not_found", 404), {
  description: "The requested resource could not be found."
}) {
  readonly _tag = "NotFound"
  static readonly example = new NotFound({ message: "There is no pet 7." })
}

/** 405: the path does not support the method of the request (RFC 9110 §15.5.6). */
export class MethodNotAllowed
  extends Schema.Error<MethodNotAllowed>("MethodNotAllowed")(fields("method_not_allowed", 405))
{
  readonly _tag = "MethodNotAllowed"
  static readonly example = new MethodNotAllowed({ message: "PUT is not allowed here." })
}

/** 408: the head or the body of the request did not arrive before the timeout (RFC 9110 §15.5.9). */
export class RequestTimeout extends Schema.Error<RequestTimeout>("RequestTimeout")(
  fieldsWithDefaultMessage("request_timeout", 408, "The request took too long to arrive."),
  { description: "The request took too long to arrive." }
) {
  readonly _tag = "RequestTimeout"
  static readonly example = new RequestTimeout()
}

/** 410: the operation was removed (SPEC §9.3). */
export class Gone extends Schema.Error<Gone>("Gone")(
  fieldsWithDefaultMessage("gone", 410, "This operation was removed. Use GET /v1/pets with the status filter."),
  { description: "The operation was removed." }
) {
  readonly _tag = "Gone"
  static readonly example = new Gone()
}

/** 409: the current state of the resource does not allow the operation (RFC 9110 §15.5.10). */
export class Conflict extends Schema.Error<Conflict>("Conflict")(fields("conflict", 409), {
  description: "The resource is in a state that does not allow this."
}) {
  readonly _tag = "Conflict"
}

/** 412: the resource has another version than the `If-Match` of the request names (RFC 9110 §15.5.13). */
export class PreconditionFailed
  extends Schema.Error<PreconditionFailed>("PreconditionFailed")(fields("precondition_failed", 412), {
    description: "The resource has another version than If-Match names."
  })
{
  readonly _tag = "PreconditionFailed"
}

/** 413: the body is larger than 64 KiB, the maximum that the service reads (RFC 9110 §15.5.14). */
export class PayloadTooLarge extends Schema.Error<PayloadTooLarge>("PayloadTooLarge")(
  fieldsWithDefaultMessage("payload_too_large", 413, "The body is larger than 64 KiB."),
  { description: "The body is larger than 64 KiB." }
) {
  readonly _tag = "PayloadTooLarge"
  static readonly example = new PayloadTooLarge()
}

/** 415: the body is not uncompressed `application/json` in UTF-8 (RFC 9110 §15.5.16). */
export class UnsupportedMediaType extends Schema.Error<UnsupportedMediaType>("UnsupportedMediaType")(
  fieldsWithDefaultMessage(
    "unsupported_media_type",
    415,
    "Send the body as application/json, in UTF-8, not compressed."
  ),
  { description: "The body is not application/json." }
) {
  readonly _tag = "UnsupportedMediaType"
  static readonly example = new UnsupportedMediaType()
}

/** 417: the `Expect` header has a value other than `100-continue` (RFC 9110 §15.5.18). */
export class ExpectationFailed extends Schema.Error<ExpectationFailed>("ExpectationFailed")(
  fieldsWithDefaultMessage(
    "expectation_failed",
    417,
    "The header Expect has another value than 100-continue. Send the request without it."
  ),
  { description: "The request expects something else than 100-continue." }
) {
  readonly _tag = "ExpectationFailed"
  static readonly example = new ExpectationFailed()
}

/** 421: the management port does not serve the host that the request names (RFC 9110 §15.5.20). */
export class MisdirectedRequest extends Schema.Error<MisdirectedRequest>("MisdirectedRequest")(
  fieldsWithDefaultMessage(
    "misdirected_request",
    421,
    "The management port does not serve this host. Use an IP address, or list the name in MANAGEMENT_ALLOWED_HOSTS."
  ),
  { description: "The port does not serve the host that the request names." }
) {
  readonly _tag = "MisdirectedRequest"
}

/** 422: an earlier request used the same `Idempotency-Key` with another body. */
export class IdempotencyKeyReused extends Schema.Error<IdempotencyKeyReused>("IdempotencyKeyReused")(
  fieldsWithDefaultMessage(
    "idempotency_key_reused",
    422,
    "The Idempotency-Key was used for another pet. Send a new key."
  ),
  { description: "The Idempotency-Key was used for another body." }
) {
  readonly _tag = "IdempotencyKeyReused"
  static readonly example = new IdempotencyKeyReused()
}

/** 429: the caller exceeded its rate limit (SPEC §8). `Retry-After` has the seconds until a retry can succeed. */
export class RateLimitExceeded
  extends Schema.Error<RateLimitExceeded>("RateLimitExceeded")(fields("rate_limit_exceeded", 429), {
    description: "The rate limit is exceeded."
  })
{
  readonly _tag = "RateLimitExceeded"
  static readonly example = new RateLimitExceeded({
    message: "The limit of 60 requests a minute is used up. Retry in 12 seconds."
  })
}

/**
 * 429: the caller is banned, since it sent too many requests after a 429 (SPEC §5.4, §8).
 *
 * `Retry-After` has the seconds until the ban ends.
 */
export class ApiKeyBanned extends Schema.Error<ApiKeyBanned>("ApiKeyBanned")(fields("api_key_banned", 429), {
  description: "The API key is banned for a while."
}) {
  readonly _tag = "ApiKeyBanned"
  static readonly example = new ApiKeyBanned({
    message: "The API key is banned for requests after a 429. Retry in 60 seconds."
  })
}

/**
 * 429: one address sent too many requests without the admin token to the management port.
 *
 * `Retry-After` has the seconds until a retry can succeed.
 */
export class TooManyAttempts extends Schema.Error<TooManyAttempts>("TooManyAttempts")(
  fields("too_many_attempts", 429),
  { description: "Too many requests without the admin token came from this address." }
) {
  readonly _tag = "TooManyAttempts"
}

/** 431: the head of the request is larger than 16 KiB or has more than 1,000 fields (RFC 6585 §5). */
export class HeaderFieldsTooLarge extends Schema.Error<HeaderFieldsTooLarge>("HeaderFieldsTooLarge")(
  fieldsWithDefaultMessage(
    "request_header_fields_too_large",
    431,
    "The head of the request is larger than 16 KiB, or has more than 1,000 fields."
  ),
  { description: "The head of the request is too large." }
) {
  readonly _tag = "HeaderFieldsTooLarge"
  static readonly example = new HeaderFieldsTooLarge()
}

/** 500: the service failed. The message contains no internal details. */
export class InternalError extends Schema.Error<InternalError>("InternalError")(
  fieldsWithDefaultMessage("internal_error", 500, "The service failed to respond. The fault is not in the request."),
  { description: "The service failed. The fault is not the caller's." }
) {
  readonly _tag = "InternalError"
  static readonly example = new InternalError()
}

/**
 * 503: a dependency of the service does not respond, or the service is overloaded or shutting down.
 *
 * `Retry-After` has the seconds that the client should wait before it retries.
 */
export class ServiceUnavailable extends Schema.Error<ServiceUnavailable>("ServiceUnavailable")(
  fieldsWithDefaultMessage("service_unavailable", 503, "The service cannot respond at the moment. Retry shortly."),
  { description: "The service cannot respond at the moment." }
) {
  readonly _tag = "ServiceUnavailable"
  static readonly example = new ServiceUnavailable()
}

/** 505: the HTTP version of the request is neither 1.0 nor 1.1 (RFC 9110 §15.6.6). */
export class HttpVersionNotSupported extends Schema.Error<HttpVersionNotSupported>("HttpVersionNotSupported")(
  fieldsWithDefaultMessage(
    "http_version_not_supported",
    505,
    "The service does not support this version of HTTP. Use HTTP/1.1."
  ),
  { description: "The HTTP version is not supported." }
) {
  readonly _tag = "HttpVersionNotSupported"
  static readonly example = new HttpVersionNotSupported()
}

/** Every error class of the API port and the management port. */
export const errorClasses = [
  InvalidRequest,
  MissingApiKey,
  InvalidApiKey,
  MissingAdminToken,
  InvalidAdminToken,
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
 * Returns the schema with which an endpoint declares the error class `error`.
 *
 * The JSON is an {@link ErrorBody}; its `code` identifies the class. The HTTP status is the `status` of the class.
 */
export const errorResponse = <
  E extends Schema.Codec<ApiError, ErrorBody> & {
    readonly fields: { readonly status: { readonly schema: Schema.Literal<number> } }
  }
>(error: E) =>
  ErrorBody.pipe(
    Schema.decodeTo(error, SchemaTransformation.passthroughSupertype<E["Encoded"], ErrorBody>()),
    HttpApiSchema.status(error.fields.status.schema.literal)
  )

/** The errors that every operation can return: 408, 431, 500 and 503. */
export const commonErrors = [
  errorResponse(RequestTimeout),
  errorResponse(HeaderFieldsTooLarge),
  errorResponse(InternalError),
  errorResponse(ServiceUnavailable)
] as const

/** One example of each error of the API port, for the OpenAPI document and the API reference. */
export const examples: ReadonlyArray<ErrorBody> = errorClasses
  .flatMap((error) => "example" in error ? [error.example] : [])
  .map(({ code, message, status }) => ({ code, message, status }))
