/**
 * The errors of the API: one body for all (SPEC §2 Error, §7), one class for each `code`.
 *
 * A class has its `_tag` for `Effect.catchTag`; the wire has exactly `code`, `message` and `status`.
 */
import { Effect, Schema, SchemaTransformation } from "effect"
import { HttpApiSchema } from "effect/http-api"

/** The body of every answer that is not a success (SPEC §2 Error). `status` equals the HTTP status. */
export const ErrorBody = Schema.Struct({
  code: Schema.String.annotate({ description: "Machine-readable error code." }),
  message: Schema.String.annotate({ description: "Human-readable description." }),
  status: Schema.Int.check(Schema.isBetween({ minimum: 400, maximum: 599 })).annotate({
    description: "The HTTP status code."
  })
}).annotate({ identifier: "Error" })
export type ErrorBody = typeof ErrorBody.Type

const fields = <const Code extends string, const Status extends number>(code: Code, status: Status) => ({
  code: Schema.tag(code),
  message: Schema.String,
  status: Schema.tag(status)
})

/** The fields of an error with a default message. */
const fieldsSaying = <const Code extends string, const Status extends number>(
  code: Code,
  status: Status,
  message: string
) => ({
  ...fields(code, status),
  message: Schema.String.pipe(Schema.withConstructorDefault(Effect.succeed(message)))
})

/** The body, the path or the query does not decode (SPEC §7: 400). The message names each field and what it must be. */
export class InvalidRequest extends Schema.Error<InvalidRequest>("InvalidRequest")(fields("invalid_request", 400), {
  description: "A required field is missing, or a value is invalid."
}) {
  readonly _tag = "InvalidRequest"
}

/** The request has no bearer credential (SPEC §5.3). */
export class MissingApiKey extends Schema.Error<MissingApiKey>("MissingApiKey")(
  fieldsSaying("missing_api_key", 401, "Send an API key as a bearer token: Authorization: Bearer psk_…"),
  { description: "The API key is missing." }
) {
  readonly _tag = "MissingApiKey"
}

/** The API key is malformed, unknown, expired or revoked (SPEC §5.3). */
export class InvalidApiKey extends Schema.Error<InvalidApiKey>("InvalidApiKey")(
  fieldsSaying("invalid_api_key", 401, "The API key is unknown, expired or revoked."),
  { description: "The API key is invalid." }
) {
  readonly _tag = "InvalidApiKey"
}

/** A request to the management port has no admin token. */
export class MissingAdminToken extends Schema.Error<MissingAdminToken>("MissingAdminToken")(
  fieldsSaying("missing_admin_token", 401, "Send the admin token as a bearer token: Authorization: Bearer adm_…"),
  { description: "The admin token is missing." }
) {
  readonly _tag = "MissingAdminToken"
}

/** A request to the management port has another token than the admin token. */
export class InvalidAdminToken extends Schema.Error<InvalidAdminToken>("InvalidAdminToken")(
  fieldsSaying("invalid_admin_token", 401, "The admin token is wrong."),
  { description: "The admin token is wrong." }
) {
  readonly _tag = "InvalidAdminToken"
}

/** No such animal, or no such path (SPEC §7: 404). */
export class NotFound extends Schema.Error<NotFound>("NotFound")(fields("not_found", 404), {
  description: "The requested resource could not be found."
}) {
  readonly _tag = "NotFound"
}

/** The path exists, but not for this method (RFC 9110 §15.5.6). */
export class MethodNotAllowed
  extends Schema.Error<MethodNotAllowed>("MethodNotAllowed")(fields("method_not_allowed", 405))
{
  readonly _tag = "MethodNotAllowed"
}

/** The head or the body of the request took too long to arrive (RFC 9110 §15.5.9). */
export class RequestTimeout extends Schema.Error<RequestTimeout>("RequestTimeout")(
  fieldsSaying("request_timeout", 408, "The request took too long to arrive."),
  { description: "The request took too long to arrive." }
) {
  readonly _tag = "RequestTimeout"
}

/** The operation was removed (SPEC §9.3). */
export class Gone extends Schema.Error<Gone>("Gone")(
  fieldsSaying("gone", 410, "This operation was removed. Use GET /v1/pets with the status filter."),
  { description: "The operation was removed." }
) {
  readonly _tag = "Gone"
}

/** What the request asks for does not fit the state of the resource (RFC 9110 §15.5.10). */
export class Conflict extends Schema.Error<Conflict>("Conflict")(fields("conflict", 409), {
  description: "The resource is in a state that does not allow this."
}) {
  readonly _tag = "Conflict"
}

/** The body is larger than the service reads (RFC 9110 §15.5.14). */
export class PayloadTooLarge extends Schema.Error<PayloadTooLarge>("PayloadTooLarge")(
  fieldsSaying("payload_too_large", 413, "The body is larger than 64 KiB."),
  { description: "The body is larger than 64 KiB." }
) {
  readonly _tag = "PayloadTooLarge"
}

/** The body is not `application/json` (RFC 9110 §15.5.16). */
export class UnsupportedMediaType extends Schema.Error<UnsupportedMediaType>("UnsupportedMediaType")(
  fieldsSaying("unsupported_media_type", 415, "Send the body as application/json, in UTF-8, not compressed."),
  { description: "The body is not application/json." }
) {
  readonly _tag = "UnsupportedMediaType"
}

/** The service expects nothing of a request but 100-continue (RFC 9110 §15.5.18). */
export class ExpectationFailed extends Schema.Error<ExpectationFailed>("ExpectationFailed")(
  fieldsSaying("expectation_failed", 417, "Expect nothing but 100-continue."),
  { description: "The request expects something else than 100-continue." }
) {
  readonly _tag = "ExpectationFailed"
}

/** The port does not serve the host that the request names (RFC 9110 §15.5.20). */
export class MisdirectedRequest extends Schema.Error<MisdirectedRequest>("MisdirectedRequest")(
  fieldsSaying(
    "misdirected_request",
    421,
    "The management port does not serve this host. Use an IP address, or list the name in MANAGEMENT_ALLOWED_HOSTS."
  ),
  { description: "The port does not serve the host that the request names." }
) {
  readonly _tag = "MisdirectedRequest"
}

/** The `Idempotency-Key` came before, with another body. */
export class IdempotencyKeyReused extends Schema.Error<IdempotencyKeyReused>("IdempotencyKeyReused")(
  fieldsSaying("idempotency_key_reused", 422, "The Idempotency-Key was used for another animal."),
  { description: "The Idempotency-Key came before, with another body." }
) {
  readonly _tag = "IdempotencyKeyReused"
}

/** The plan's limit is used up (SPEC §8). `Retry-After` says when to come back. */
export class RateLimitExceeded
  extends Schema.Error<RateLimitExceeded>("RateLimitExceeded")(fields("rate_limit_exceeded", 429), {
    description: "The rate limit is exceeded."
  })
{
  readonly _tag = "RateLimitExceeded"
}

/** Too many requests came after a 429 (SPEC §5.4, §8). `Retry-After` says when the ban ends. */
export class ApiKeyBanned extends Schema.Error<ApiKeyBanned>("ApiKeyBanned")(fields("api_key_banned", 429), {
  description: "The API key is banned for a while."
}) {
  readonly _tag = "ApiKeyBanned"
}

/** Too many requests without the admin token came from one address. `Retry-After` says when to retry. */
export class TooManyAttempts extends Schema.Error<TooManyAttempts>("TooManyAttempts")(
  fields("too_many_attempts", 429),
  { description: "Too many requests without the admin token came from this address." }
) {
  readonly _tag = "TooManyAttempts"
}

/** The head of the request is larger than 16 KiB, or has more than 1,000 fields (RFC 6585 §5). */
export class HeaderFieldsTooLarge extends Schema.Error<HeaderFieldsTooLarge>("HeaderFieldsTooLarge")(
  fieldsSaying(
    "request_header_fields_too_large",
    431,
    "The head of the request is larger than 16 KiB, or has more than 1,000 fields."
  ),
  { description: "The head of the request is too large." }
) {
  readonly _tag = "HeaderFieldsTooLarge"
}

/** A fault of the service. The message says nothing of its inside. */
export class InternalError extends Schema.Error<InternalError>("InternalError")(
  fieldsSaying("internal_error", 500, "The service failed to answer. The fault is ours."),
  { description: "The service failed. The fault is not the caller's." }
) {
  readonly _tag = "InternalError"
}

/** Something that the service needs does not answer. `Retry-After` says when to come back. */
export class ServiceUnavailable extends Schema.Error<ServiceUnavailable>("ServiceUnavailable")(
  fieldsSaying("service_unavailable", 503, "The service cannot answer at the moment. Retry shortly."),
  { description: "The service cannot answer at the moment." }
) {
  readonly _tag = "ServiceUnavailable"
}

/** The request has another version of HTTP than 1.1 or 1.0 (RFC 9110 §15.6.6). */
export class HttpVersionNotSupported extends Schema.Error<HttpVersionNotSupported>("HttpVersionNotSupported")(
  fieldsSaying("http_version_not_supported", 505, "The service does not support this version of HTTP. Use HTTP/1.1."),
  { description: "The HTTP version is not supported." }
) {
  readonly _tag = "HttpVersionNotSupported"
}

/** Every error that the service answers with. */
export type ApiError =
  | InvalidRequest
  | MissingApiKey
  | InvalidApiKey
  | MissingAdminToken
  | InvalidAdminToken
  | NotFound
  | MethodNotAllowed
  | RequestTimeout
  | Conflict
  | Gone
  | PayloadTooLarge
  | UnsupportedMediaType
  | ExpectationFailed
  | MisdirectedRequest
  | IdempotencyKeyReused
  | RateLimitExceeded
  | ApiKeyBanned
  | TooManyAttempts
  | HeaderFieldsTooLarge
  | InternalError
  | ServiceUnavailable
  | HttpVersionNotSupported

/** `error` as an endpoint declares it: on the wire an {@link ErrorBody}, told apart by its `code`. */
export const errorResponse = <
  E extends Schema.Codec<ApiError, ErrorBody> & {
    readonly fields: { readonly status: { readonly schema: Schema.Literal<number> } }
  }
>(error: E) =>
  ErrorBody.pipe(
    Schema.decodeTo(error, SchemaTransformation.passthroughSupertype<E["Encoded"], ErrorBody>()),
    HttpApiSchema.status(error.fields.status.schema.literal)
  )

/** What any operation may answer, whatever it does. */
export const commonErrors = [
  errorResponse(RequestTimeout),
  errorResponse(HeaderFieldsTooLarge),
  errorResponse(InternalError),
  errorResponse(ServiceUnavailable)
] as const

/** An example of each error that an operation of `/v1` may answer, for the OpenAPI document. */
export const examples: ReadonlyArray<ErrorBody> = [
  new InvalidRequest({ message: "Invalid request: body.name: expected string; body.categoryId: required." }),
  new MissingApiKey(),
  new InvalidApiKey(),
  new NotFound({ message: "There is no pet 7." }),
  new RequestTimeout(),
  new Gone(),
  new PayloadTooLarge(),
  new UnsupportedMediaType(),
  new ExpectationFailed(),
  new IdempotencyKeyReused(),
  new RateLimitExceeded({ message: "The limit of 60 requests a minute is used up. Retry in 12 seconds." }),
  new ApiKeyBanned({ message: "The API key is banned for requests after a 429. Retry in 60 seconds." }),
  new HeaderFieldsTooLarge(),
  new InternalError(),
  new ServiceUnavailable()
].map(({ code, message, status }) => ({ code, message, status }))
