/**
 * The errors of the API: one class per `code`, and one JSON body for all (SPEC §2 Error, §7).
 *
 * Endpoints declare them with {@link errorResponse}, whose body has exactly `code`, `message` and `status`. A class
 * itself is a schema with all fields of the error, for RPC and queues.
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

/** The code, the status and the default message of each class. */
const errors = {
  InvalidRequest: ["invalid_request", 400, "A required field is missing, or a value is invalid."],
  MissingApiKey: ["missing_api_key", 401, "Send an API key as a bearer token: Authorization: Bearer psk_…"],
  InvalidApiKey: ["invalid_api_key", 401, "The API key is unknown, expired or revoked."],
  MissingAdminToken: [
    "missing_admin_token",
    401,
    "Send the admin token as a bearer token: Authorization: Bearer adm_…"
  ],
  InvalidAdminToken: ["invalid_admin_token", 401, "The admin token is wrong."],
  ReadOnlyToken: ["read_only_token", 403, "This admin token can read, and not change anything."],
  NotFound: ["not_found", 404, "The requested resource could not be found."],
  MethodNotAllowed: ["method_not_allowed", 405, "The path does not support this method."],
  RequestTimeout: ["request_timeout", 408, "The request took too long to arrive."],
  Conflict: ["conflict", 409, "The resource is in a state that does not allow this."],
  Gone: ["gone", 410, "This operation was removed. Use GET /v1/pets."],
  PreconditionFailed: ["precondition_failed", 412, "The resource has another version than If-Match names."],
  PayloadTooLarge: ["payload_too_large", 413, "The body is larger than 64 KiB."],
  UnsupportedMediaType: ["unsupported_media_type", 415, "Send the body as application/json, in UTF-8, not compressed."],
  ExpectationFailed: [
    "expectation_failed",
    417,
    "The header Expect has another value than 100-continue. Send the request without it."
  ],
  MisdirectedRequest: [
    "misdirected_request",
    421,
    "The management port does not serve this host. Use an IP address, or list the name in MANAGEMENT_ALLOWED_HOSTS."
  ],
  IdempotencyKeyReused: [
    "idempotency_key_reused",
    422,
    "This Idempotency-Key already created a different pet. Send the original body to get that pet, or a new " +
    "Idempotency-Key to create another."
  ],
  RateLimitExceeded: ["rate_limit_exceeded", 429, "The rate limit is exceeded."],
  ApiKeyBanned: ["api_key_banned", 429, "The API key is banned for a while."],
  TooManyAttempts: ["too_many_attempts", 429, "Too many requests without the admin token came from this address."],
  HeaderFieldsTooLarge: [
    "request_header_fields_too_large",
    431,
    "The URL and the headers are larger than 16 KiB, or there are more than 1,000 headers."
  ],
  InternalError: ["internal_error", 500, "The service failed to respond. The fault is not in the request."],
  ServiceUnavailable: ["service_unavailable", 503, "The service cannot respond at the moment. Retry shortly."],
  HttpVersionNotSupported: [
    "http_version_not_supported",
    505,
    "The service does not support this version of HTTP. Use HTTP/1.1."
  ]
} as const

type ErrorTable = typeof errors

// oxlint-disable typescript/no-unnecessary-type-parameters -- the types of the classes have them
const declareErrorWith =
  <const Fields extends Schema.Struct.Fields>(fields: Fields) =>
  <Self>() =>
  <const Tag extends keyof ErrorTable>(tag: Tag) => {
    const [code, status, message]: readonly [ErrorTable[Tag][0], ErrorTable[Tag][1], string] = errors[tag]
    return Schema.TaggedError<Self>()(tag, {
      code: Schema.tag(code),
      message: Schema.String.pipe(Schema.withConstructorDefault(Effect.succeed(message))),
      status: Schema.tag(status),
      // Only clients set it, from `X-Request-Id`.
      requestId: Schema.optionalKey(Schema.String),
      ...fields
    }, { description: message, httpApiStatus: status })
  }
// oxlint-enable typescript/no-unnecessary-type-parameters

const declareError = declareErrorWith({})
const declareErrorWithWait = declareErrorWith({ retryAfter: Schema.optionalKey(Schema.Duration) })
const declareErrorWithDefaultWait = declareErrorWith({
  retryAfter: Schema.Duration.pipe(Schema.withConstructorDefault(Effect.succeed(Duration.seconds(1))))
})

/** 400: the path, query, headers or body do not decode (SPEC §7). The message names each invalid field. */
export class InvalidRequest extends declareError<InvalidRequest>()("InvalidRequest") {}
/** 401: the request has no bearer token (SPEC §5.3). */
export class MissingApiKey extends declareError<MissingApiKey>()("MissingApiKey") {}
/** 401: the API key is malformed, unknown, expired, disabled or revoked (SPEC §5.3). */
export class InvalidApiKey extends declareError<InvalidApiKey>()("InvalidApiKey") {}
/** 401 on the management port: the request has no bearer token. */
export class MissingAdminToken extends declareError<MissingAdminToken>()("MissingAdminToken") {}
/** 401 on the management port: the bearer token is not an admin token. */
export class InvalidAdminToken extends declareError<InvalidAdminToken>()("InvalidAdminToken") {}
/** 403: the admin token can only read (`ADMIN_TOKENS`). */
export class ReadOnlyToken extends declareError<ReadOnlyToken>()("ReadOnlyToken") {}
/** 404: the path, or the pet or API key that it names, does not exist (SPEC §7). */
export class NotFound extends declareError<NotFound>()("NotFound") {}
/** 405: the path does not support the method of the request (RFC 9110 §15.5.6). */
export class MethodNotAllowed extends declareError<MethodNotAllowed>()("MethodNotAllowed") {}
/** 408: the head or the body of the request did not arrive in time (RFC 9110 §15.5.9). */
export class RequestTimeout extends declareError<RequestTimeout>()("RequestTimeout") {}
/** 409: the current state of the resource does not allow the operation (RFC 9110 §15.5.10). */
export class Conflict extends declareError<Conflict>()("Conflict") {}
/** 410: the operation was removed (SPEC §9.3). */
export class Gone extends declareError<Gone>()("Gone") {}
/** 412: the version of the resource is not one in `If-Match` (RFC 9110 §15.5.13). */
export class PreconditionFailed extends declareError<PreconditionFailed>()("PreconditionFailed") {}
/** 413: the body is larger than 64 KiB (RFC 9110 §15.5.14). */
export class PayloadTooLarge extends declareError<PayloadTooLarge>()("PayloadTooLarge") {}
/** 415: the body is not uncompressed `application/json` in UTF-8 (RFC 9110 §15.5.16). */
export class UnsupportedMediaType extends declareError<UnsupportedMediaType>()("UnsupportedMediaType") {}
/** 417: `Expect` has a value other than `100-continue` (RFC 9110 §15.5.18). */
export class ExpectationFailed extends declareError<ExpectationFailed>()("ExpectationFailed") {}
/** 421: the management port does not serve the requested host (RFC 9110 §15.5.20). */
export class MisdirectedRequest extends declareError<MisdirectedRequest>()("MisdirectedRequest") {}
/** 422: an earlier request used the same `Idempotency-Key` with another body. */
export class IdempotencyKeyReused extends declareError<IdempotencyKeyReused>()("IdempotencyKeyReused") {}
/** 429: the caller exceeded its rate limit (SPEC §8). A retry can succeed after `retryAfter`. */
export class RateLimitExceeded extends declareErrorWithWait<RateLimitExceeded>()("RateLimitExceeded") {}
/** 429: the caller is banned, until `retryAfter` has passed, because it kept sending after a 429 (SPEC §5.4, §8). */
export class ApiKeyBanned extends declareErrorWithWait<ApiKeyBanned>()("ApiKeyBanned") {}
/** 429: one address sent too many requests without the admin token. */
export class TooManyAttempts extends declareErrorWithWait<TooManyAttempts>()("TooManyAttempts") {}
/** 431: the request's head is larger than 16 KiB or has more than 1,000 fields (RFC 6585 §5). */
export class HeaderFieldsTooLarge extends declareError<HeaderFieldsTooLarge>()("HeaderFieldsTooLarge") {}
/** 500: the service failed. The message has no internal details. */
export class InternalError extends declareError<InternalError>()("InternalError") {}
/** 503: the service is overloaded or shutting down, or its database fails. `retryAfter` is one second by default. */
export class ServiceUnavailable extends declareErrorWithDefaultWait<ServiceUnavailable>()("ServiceUnavailable") {}
/** 505: the HTTP version of the request is neither 1.0 nor 1.1 (RFC 9110 §15.6.6). */
export class HttpVersionNotSupported extends declareError<HttpVersionNotSupported>()("HttpVersionNotSupported") {}

/** All error classes. */
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

/** Any error of the API port or the management port. */
export type ApiError = InstanceType<(typeof errorClasses)[number]>

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

const exampleMessages: Readonly<Record<string, string>> = {
  invalid_request: "Invalid request: body.name: expected string; body.categoryId: required.",
  conflict: "Key key_4fTq9XbLw2ZkPn7R is revoked.",
  rate_limit_exceeded: "The API key has used its limit of 60 requests per minute. Retry in 12 seconds.",
  api_key_banned: "The API key is banned, because it kept sending requests after 429 responses. Retry in 60 seconds."
}

const isErrorBody = Schema.is(ErrorBody)

const idHeader = { "x-request-id": Schema.optionalKey(Schema.String) }
const waitHeaders = { ...idHeader, "retry-after": Schema.optionalKey(RetryAfter) }
interface ErrorHeaders extends Schema.Schema.Type<Schema.Struct<typeof waitHeaders>> {}

/** The constructor ignores fields that the class does not declare. */
interface ErrorClass extends Schema.ConstraintCodec<ApiError, unknown> {
  new(
    fields?: { readonly message?: string; readonly requestId?: string; readonly retryAfter?: Duration.Duration }
  ): ApiError
  readonly fields: object
}

const waitOf = (error: ApiError): ErrorHeaders =>
  "retryAfter" in error && error.retryAfter !== undefined ? { "retry-after": error.retryAfter } : {}

/**
 * Makes the schema with which an endpoint declares the errors of one status: an {@link ErrorBody} whose `code`
 * identifies the class. Pass all classes of a status together: an endpoint cannot have two schemas of one status,
 * because these have headers.
 */
export const errorResponse = <const Classes extends readonly [ErrorClass, ...ReadonlyArray<ErrorClass>]>(
  ...classes: Classes
) => {
  const defaults = classes.map((Error) => new Error())
  const [{ status } = new classes[0]()] = defaults
  const examples = defaults.map((error) => bodyOf({ ...error, message: exampleMessages[error.code] ?? error.message }))
  const body = Schema.declare(isErrorBody, { toCodecJson: () => undefined }).check(
    Schema.makeFilter((value) => value.status === status && defaults.some(({ code }) => code === value.code), {
      expected: defaults.map(({ code }) => code).join(" or "),
      representation: { id: "petstore/errorResponse", payload: null, schemas: [ErrorBody.ast] },
      toJsonSchema: ({ schemas }) => ({ allOf: schemas, examples })
    })
  ).pipe(HttpApiSchema.status(status))
  const decode = (
    { body: { code, message }, headers }: { readonly body: ErrorBody; readonly headers: ErrorHeaders }
  ): Classes[number]["Type"] => {
    const Error = classes[defaults.findIndex((error) => error.code === code)] ?? classes[0]
    const { "retry-after": retryAfter, "x-request-id": requestId } = headers
    return new Error({ message, ...requestId !== undefined && { requestId }, ...retryAfter && { retryAfter } })
  }
  const isOneOf = Schema.is(Schema.Union(classes))
  const errorSchema = Schema.declare((error): error is Classes[number]["Type"] => isOneOf(error))
  const description = defaults.map(({ message }) => message).join(", or: ").replaceAll("., or: ", ", or: ")
  const hasWait = classes.some(({ fields }) => "retryAfter" in fields)
  return errorSchema.pipe(
    HttpApiSchema.encodeToWithHeaders<typeof errorSchema, typeof body, typeof waitHeaders | typeof idHeader>(
      { body, headers: hasWait ? waitHeaders : idHeader },
      { decode, encode: (error) => ({ body: bodyOf(error), headers: waitOf(error) }) }
    )
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
