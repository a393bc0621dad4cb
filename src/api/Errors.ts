/**
 * Declares the errors of the API: one class for each `code`, and one JSON body for all of them (SPEC §2 Error, §7).
 *
 * An endpoint declares them with {@link errorResponse}: the JSON body has exactly `code`, `message` and `status`, and
 * the `Retry-After` header has `retryAfter`. A class alone is a schema with all fields of its errors, for RPC and queues.
 */
import { Clock, Duration, Effect, Schema, SchemaTransformation } from "effect"
import { HttpApiSchema } from "effect/http-api"

/** The body of every error response (SPEC §2 Error). `status` equals the HTTP status. */
export const ErrorBody = Schema.Struct({
  code: Schema.String.annotate({ description: "Machine-readable error code." }),
  message: Schema.String.annotate({ description: "Human-readable description." }),
  status: Schema.Int.check(Schema.isBetween({ minimum: 400, maximum: 599 })).annotate({
    description: "The HTTP status code."
  })
}).annotate({ identifier: "Error" })
export interface ErrorBody extends Schema.Schema.Type<typeof ErrorBody> {}

// oxlint-disable typescript/no-unnecessary-type-parameters -- the types of the classes have them
/** Declares an error class with more fields than the body has. `message` is the default. */
const declareErrorWith = <
  const Tag extends string,
  const Code extends string,
  const Status extends number,
  const Fields extends Schema.Struct.Fields
>(fields: Fields, tag: Tag, status: Status, code: Code) =>
<Self>(message: string) =>
  Schema.TaggedError<Self>()(tag, {
    code: Schema.tag(code),
    message: Schema.String.pipe(Schema.withConstructorDefault(Effect.succeed(message))),
    status: Schema.tag(status),
    requestId: Schema.optionalKey(Schema.String),
    ...fields
  }, { description: message, httpApiStatus: status })

/** Declares an error class. A client takes `requestId` from the `X-Request-Id` of the response. */
const declareError = <const Tag extends string, const Code extends string, const Status extends number>(
  tag: Tag,
  status: Status,
  code: Code
) => declareErrorWith({}, tag, status, code)
// oxlint-enable typescript/no-unnecessary-type-parameters

/** The field of errors that say how long to wait. */
const optionalWait = { retryAfter: Schema.optionalKey(Schema.Duration) }

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
  "This operation was removed. Use GET /v1/pets."
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
    "This Idempotency-Key already created a different pet. Send the original body to get that pet, or a new " +
      "Idempotency-Key to create another."
  )
{}

/** 429: the caller exceeded its rate limit (SPEC §8). After `retryAfter`, a retry can succeed. */
export class RateLimitExceeded
  extends declareErrorWith(optionalWait, "RateLimitExceeded", 429, "rate_limit_exceeded")<RateLimitExceeded>(
    "The rate limit is exceeded."
  )
{}

/** 429: the caller is banned for requests after a 429 (SPEC §5.4, §8), for `retryAfter`. */
export class ApiKeyBanned extends declareErrorWith(optionalWait, "ApiKeyBanned", 429, "api_key_banned")<ApiKeyBanned>(
  "The API key is banned for a while."
) {}

/** 429: one address sent too many requests without the admin token. */
export class TooManyAttempts
  extends declareErrorWith(optionalWait, "TooManyAttempts", 429, "too_many_attempts")<TooManyAttempts>(
    "Too many requests without the admin token came from this address."
  )
{}

/** 431: the head of the request is larger than 16 KiB or has more than 1,000 fields (RFC 6585 §5). */
export class HeaderFieldsTooLarge
  extends declareError("HeaderFieldsTooLarge", 431, "request_header_fields_too_large")<HeaderFieldsTooLarge>(
    "The URL and the headers are larger than 16 KiB, or there are more than 1,000 headers."
  )
{}

/** 500: the service failed. The message contains no internal details. */
export class InternalError extends declareError("InternalError", 500, "internal_error")<InternalError>(
  "The service failed to respond. The fault is not in the request."
) {}

/** 503: a dependency fails, or the service is overloaded or shutting down. By default, `retryAfter` is a second. */
export class ServiceUnavailable extends declareErrorWith(
  {
    retryAfter: Schema.Duration.pipe(Schema.withConstructorDefault(Effect.succeed(Duration.seconds(1))))
  },
  "ServiceUnavailable",
  503,
  "service_unavailable"
)<ServiceUnavailable>(
  "The service cannot respond at the moment. Retry shortly."
) {}

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

/** Returns the body of an error. */
export const bodyOf = ({ code, message, status }: ApiError): ErrorBody => ({ code, message, status })

/** The wait in a `Retry-After` header: seconds, or a date (RFC 9110 §10.2.3). An invalid value means no wait. */
export const RetryAfter = Schema.String.pipe(
  Schema.decodeTo(
    Schema.Duration,
    SchemaTransformation.transformEffect({
      decode: (text) =>
        /^\d+$/.test(text)
          ? Effect.succeed(Duration.seconds(Number(text)))
          : Effect.map(Clock.currentTimeMillis, (now) => Duration.millis(Math.max(0, Date.parse(text) - now || 0))),
      encode: (wait) => Effect.succeed(String(Math.ceil(Duration.toSeconds(wait))))
    })
  )
)

/** Messages of examples, for errors whose message names the fault of one request. */
const exampleMessages: Readonly<Record<string, string>> = {
  invalid_request: "Invalid request: body.name: expected string; body.categoryId: required.",
  conflict: "Key key_4fTq9XbLw2ZkPn7R is revoked.",
  rate_limit_exceeded: "The API key has used its limit of 60 requests per minute. Retry in 12 seconds.",
  api_key_banned: "The API key is banned, because it kept sending requests after 429 responses. Retry in 60 seconds."
}

const isErrorBody = Schema.is(ErrorBody)

/** The values of the headers of an error. */
interface ErrorHeaders {
  readonly "x-request-id"?: string
  readonly "retry-after"?: Duration.Duration
}

const waitOf = (error: ApiError): ErrorHeaders =>
  "retryAfter" in error && error.retryAfter !== undefined ? { "retry-after": error.retryAfter } : {}

/** A class of errors. Its constructor ignores fields that its errors do not have. */
interface ErrorClass extends Schema.ConstraintCodec<ApiError, unknown> {
  new(
    fields?: { readonly message?: string; readonly requestId?: string; readonly retryAfter?: Duration.Duration }
  ): ApiError
  readonly fields: object
}

const requestIdHeader = { "x-request-id": Schema.optionalKey(Schema.String) }
const waitHeaders = { ...requestIdHeader, "retry-after": Schema.optionalKey(RetryAfter) }

/**
 * Makes the schema with which an endpoint declares the errors of one status: an {@link ErrorBody} whose `code`
 * identifies the class. An endpoint cannot have a second schema of the same status, because these have headers.
 */
export const errorResponse = <const Classes extends readonly [ErrorClass, ...ReadonlyArray<ErrorClass>]>(
  ...classes: Classes
) => {
  const defaults = classes.map((Error) => new Error())
  const [{ status } = new classes[0]()] = defaults
  const examples = defaults.map((error) => bodyOf({ ...error, message: exampleMessages[error.code] ?? error.message }))
  const errorBody = Schema.declare(isErrorBody, { toCodecJson: () => undefined }).check(
    Schema.makeFilter((value) => value.status === status && defaults.some(({ code }) => code === value.code), {
      expected: defaults.map(({ code }) => code).join(" or "),
      representation: { id: "petstore/errorResponse", payload: null, schemas: [ErrorBody.ast] },
      toJsonSchema: ({ schemas }) => ({ allOf: schemas, examples })
    })
  ).pipe(HttpApiSchema.status(status))
  const decode = ({ code, message }: ErrorBody, headers: ErrorHeaders): Classes[number]["Type"] => {
    const Error = classes[defaults.findIndex((error) => error.code === code)] ?? classes[0]
    const { "retry-after": retryAfter, "x-request-id": requestId } = headers
    return new Error({ message, ...requestId !== undefined && { requestId }, ...retryAfter && { retryAfter } })
  }
  const isOneOf = Schema.is(Schema.Union(classes))
  const errors = Schema.declare((error): error is Classes[number]["Type"] => isOneOf(error))
  const description = defaults.map(({ message }) => message).join(", or: ").replaceAll("., or: ", ", or: ")
  return classes.some(({ fields }) => "retryAfter" in fields)
    ? errors.pipe(
      HttpApiSchema.encodeToWithHeaders<typeof errors, typeof errorBody, typeof waitHeaders>(
        { body: errorBody, headers: waitHeaders },
        {
          decode: ({ body, headers }) => decode(body, headers),
          encode: (error) => ({
            body: bodyOf(error),
            headers: waitOf(error)
          })
        }
      )
    ).annotate({ description })
    : errors.pipe(
      HttpApiSchema.encodeToWithHeaders<typeof errors, typeof errorBody, typeof requestIdHeader>({
        body: errorBody,
        headers: requestIdHeader
      }, {
        decode: ({ body, headers }) => decode(body, headers),
        encode: (error) => ({ body: bodyOf(error), headers: {} })
      })
    ).annotate({ description })
}

/** The 503 of operations and of their middleware, which must share one schema. */
export const serviceUnavailable = errorResponse(ServiceUnavailable)

/** The errors that every operation can return: 408, 431, 500 and 503. */
export const commonErrors = [
  errorResponse(RequestTimeout),
  errorResponse(HeaderFieldsTooLarge),
  errorResponse(InternalError),
  serviceUnavailable
] as const
