/** One error class per `code` (SPEC §7). An HTTP body contains only the `code`, `message` and `status` of an error. */
import { type Cause, Duration, Effect, Schema } from "effect"
import { adminTokenPrefix, keyPrefix } from "./Brand.ts"

/** The body of every error response, except to HEAD (SPEC §2 Error). `status` equals the HTTP status. */
export const ErrorBody = Schema.Struct({
  /** The machine-readable code, such as `not_found`. Branch on it. */
  code: Schema.String.annotate({ description: "Machine-readable error code." }),
  /** The description for people. The wording can change. */
  message: Schema.String.annotate({ description: "Human-readable description." }),
  /** The HTTP status. */
  status: Schema.Int.check(Schema.isBetween({ minimum: 400, maximum: 599 }))
    .annotate({ description: "The HTTP status code." })
}).annotate({ identifier: "Error" })
export interface ErrorBody extends Schema.Schema.Type<typeof ErrorBody> {}

export const requestLimits = { bodyBytes: 16_384, headBytes: 16_384, headerFields: 100 }

export const errors = {
  InvalidRequest: ["invalid_request", 400, "A required field is missing, or a value is invalid."],
  MissingApiKey: ["missing_api_key", 401, `Send an API key as a bearer token: Authorization: Bearer ${keyPrefix}…`],
  InvalidApiKey: [
    "invalid_api_key",
    401,
    "The API key is unknown, disabled, expired, revoked or rotated, or of another environment. Ask the operator."
  ],
  MissingAdminToken: ["missing_admin_token", 401, `Send an admin token: Authorization: Bearer ${adminTokenPrefix}…`],
  InvalidAdminToken: ["invalid_admin_token", 401, "The admin token is wrong."],
  ReadOnlyToken: ["read_only_token", 403, "This admin token is read-only. Use one that may change keys."],
  NotFound: ["not_found", 404, "The requested resource could not be found."],
  MethodNotAllowed: ["method_not_allowed", 405, "The path does not support this method."],
  RequestTimeout: ["request_timeout", 408, "The request took too long to arrive."],
  Conflict: ["conflict", 409, "The resource is in a state that does not allow this."],
  Gone: ["gone", 410, "This operation was removed."],
  PreconditionFailed: ["precondition_failed", 412, "The resource's version does not match If-Match. Read it again."],
  PayloadTooLarge: ["payload_too_large", 413, `The body is larger than ${requestLimits.bodyBytes / 1024} KiB.`],
  UnsupportedMediaType: ["unsupported_media_type", 415, "Send the body as application/json, in UTF-8, not compressed."],
  ExpectationFailed: [
    "expectation_failed",
    417,
    "The Expect header has a value other than 100-continue. Send the request without it."
  ],
  MisdirectedRequest: [
    "misdirected_request",
    421,
    "The management port does not serve this host. Use an IP address, or list the name in MANAGEMENT_ALLOWED_HOSTS."
  ],
  IdempotencyKeyReused: [
    "idempotency_key_reused",
    422,
    "This Idempotency-Key was used with a different body. Send the original body to get the first response, or a new " +
    "Idempotency-Key to create another."
  ],
  RateLimitExceeded: ["rate_limit_exceeded", 429, "The rate limit is exceeded."],
  ApiKeyBanned: ["api_key_banned", 429, "The API key is temporarily banned. Wait for the seconds in Retry-After."],
  TooManyAttempts: ["too_many_attempts", 429, "Too many requests without a valid admin token came from this address."],
  HeaderFieldsTooLarge: [
    "request_header_fields_too_large",
    431,
    `The URL and the headers together are larger than ${requestLimits.headBytes / 1024} KiB, or there are more than ` +
    `${requestLimits.headerFields} headers.`
  ],
  InternalError: ["internal_error", 500, "The fault is in the service, not in the request. Report the X-Request-Id."],
  ServiceUnavailable: ["service_unavailable", 503, "The service cannot respond at the moment. Retry shortly."],
  HttpVersionNotSupported: [
    "http_version_not_supported",
    505,
    "The service does not support this version of HTTP. Use HTTP/1.1."
  ]
} as const

// oxlint-disable typescript/no-unnecessary-type-parameters -- callers must pass `Self`
const declareErrorWith =
  <const Fields extends Schema.Struct.Fields>(fields: Fields) =>
  <Self>() =>
  <const Tag extends keyof typeof errors>(tag: Tag) => {
    const [code, status, message]: readonly [typeof errors[Tag][0], typeof errors[Tag][1], string] = errors[tag]
    return Schema.TaggedError<Self>()(tag, {
      /** The machine-readable code. */
      code: Schema.tag(code),
      /** The service's description of the error, for people. The wording can change. */
      message: Schema.String.pipe(Schema.withConstructorDefault(Effect.succeed(message))),
      /** The HTTP status. */
      status: Schema.tag(status),
      // The client sets the next two fields when it decodes a response. The service never does.
      /** The `X-Request-Id` of the response. */
      requestId: Schema.optionalKey(Schema.String),
      /** The `code` of the response, if a newer service sent one that this version does not know. */
      unknownCode: Schema.optionalKey(Schema.String),
      ...fields
    }, { description: message, httpApiStatus: status })
  }
// oxlint-enable typescript/no-unnecessary-type-parameters

const declareError = declareErrorWith({})
const declareErrorWithWait = declareErrorWith({
  /** The wait that the service asks for in `Retry-After`. Defaults to 1 s. */
  retryAfter: Schema.Duration.pipe(Schema.withConstructorDefault(Effect.succeed(Duration.seconds(1))))
})

/**
 * 400: the request is invalid (SPEC §7). The service checks a request part by part. The message names only the faults
 * of the first invalid part.
 */
export class InvalidRequest extends declareError<InvalidRequest>()("InvalidRequest") {}
/** 401: the request has no API key as a bearer token (SPEC §5.3). */
export class MissingApiKey extends declareError<MissingApiKey>()("MissingApiKey") {}
/** 401: the API key is malformed, unknown, disabled, expired, revoked or rotated, or an admin token (SPEC §5.3). */
export class InvalidApiKey extends declareError<InvalidApiKey>()("InvalidApiKey") {}
/** 401: the request has no admin token as a bearer token. */
export class MissingAdminToken extends declareError<MissingAdminToken>()("MissingAdminToken") {}
/** 401: the admin token is wrong. */
export class InvalidAdminToken extends declareError<InvalidAdminToken>()("InvalidAdminToken") {}
/** 403: the admin token is read-only (`read:` in `ADMIN_TOKENS`), and the request would change something. */
export class ReadOnlyToken extends declareError<ReadOnlyToken>()("ReadOnlyToken") {}
/** 404: no such path or resource (SPEC §7). */
export class NotFound extends declareError<NotFound>()("NotFound") {}
/** 405: the path has no such method. */
export class MethodNotAllowed extends declareError<MethodNotAllowed>()("MethodNotAllowed") {}
/** 408: the request took too long to arrive. */
export class RequestTimeout extends declareError<RequestTimeout>()("RequestTimeout") {}
/** 409: the state of the resource does not allow the change, or the `Idempotency-Key` already issued an API key. */
export class Conflict extends declareError<Conflict>()("Conflict") {}
/** 410: the operation was removed (SPEC §9.3). */
export class Gone extends declareError<Gone>()("Gone") {}
/** 412: `If-Match` does not match the current version of the resource (RFC 9110 §15.5.13). */
export class PreconditionFailed extends declareError<PreconditionFailed>()("PreconditionFailed") {}
/** 413: the body is larger than 16 KiB, arrives in too many pieces, or has too long chunk extensions. */
export class PayloadTooLarge extends declareError<PayloadTooLarge>()("PayloadTooLarge") {}
/** 415: the headers do not declare the body as uncompressed `application/json` in UTF-8. */
export class UnsupportedMediaType extends declareError<UnsupportedMediaType>()("UnsupportedMediaType") {}
/** 417: the `Expect` header has a value other than `100-continue`. */
export class ExpectationFailed extends declareError<ExpectationFailed>()("ExpectationFailed") {}
/** 421: the management port does not serve the host of the request. */
export class MisdirectedRequest extends declareError<MisdirectedRequest>()("MisdirectedRequest") {}
/** 422: the idempotency key was used with a different body. */
export class IdempotencyKeyReused extends declareError<IdempotencyKeyReused>()("IdempotencyKeyReused") {}
/** 429: the caller exceeded its rate limit (SPEC §8), and may retry after `retryAfter`. */
export class RateLimitExceeded extends declareErrorWithWait<RateLimitExceeded>()("RateLimitExceeded") {}
/**
 * 429: the API key is banned, because its clients kept sending requests after 429s (SPEC §8). `retryAfter` is the wait
 * until the ban has ended and used-up limits have reset.
 */
export class ApiKeyBanned extends declareErrorWithWait<ApiKeyBanned>()("ApiKeyBanned") {}
/** 429: too many requests without a valid admin token came from the client's address. */
export class TooManyAttempts extends declareErrorWithWait<TooManyAttempts>()("TooManyAttempts") {}
/** 431: the URL and the headers together are larger than 16 KiB, or there are more than 100 headers. */
export class HeaderFieldsTooLarge extends declareError<HeaderFieldsTooLarge>()("HeaderFieldsTooLarge") {}
/** 500: the service failed. The message has no internal details. */
export class InternalError extends declareError<InternalError>()("InternalError") {}
/**
 * 503: the service is overloaded or shutting down, or its database does not respond or rejects writes. `retryAfter`
 * defaults to 1 s.
 */
export class ServiceUnavailable extends declareErrorWithWait<ServiceUnavailable>()("ServiceUnavailable") {}
/** 505: the version of HTTP is not supported. */
export class HttpVersionNotSupported extends declareError<HttpVersionNotSupported>()("HttpVersionNotSupported") {}

/** Any error of the API: the fields of the classes above. Only the classes with a wait have `retryAfter`. */
export interface ApiError extends ErrorBody, Cause.YieldableError {
  /** The name of the class, such as `NotFound`. */
  readonly _tag: keyof typeof errors
  /** The description for people. The wording can change. */
  readonly message: string
  /** The `X-Request-Id` of the response. */
  readonly requestId?: string
  /** The `code` of the response, if a newer service sent one that this version does not know. */
  readonly unknownCode?: string
  /** The wait that the service asks for in `Retry-After`. */
  readonly retryAfter?: Duration.Duration
}

export const isErrorBody = Schema.is(ErrorBody)

export const isApiError = (failure: unknown): failure is ApiError =>
  isErrorBody(failure) && "_tag" in failure && String(failure._tag) in errors

export const bodyOf = ({ code, message, status }: ApiError): ErrorBody => ({ code, message, status })
