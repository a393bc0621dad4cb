/** Declares the responses of the error classes in `Errors.ts`. Classes with the same status can share a schema. */
import { Clock, Duration, Effect, Schema, SchemaGetter } from "effect"
import { HttpApiSchema } from "effect/http-api"
import { type ApiError, bodyOf, ErrorBody, isErrorBody, type RateLimitExceeded } from "./Errors.ts"
import { HeaderFieldsTooLarge, InternalError, RequestTimeout, ServiceUnavailable } from "./Errors.ts"

/**
 * The `Retry-After` header: seconds, or a date that `Date.parse` reads (RFC 9110 §10.2.3). Encodes to whole seconds,
 * rounded up. A past date and any other text decode to zero.
 */
export const RetryAfter = Schema.String.pipe(Schema.decodeTo(Schema.Duration, {
  decode: SchemaGetter.transformEffect((text) =>
    /^\d+$/.test(text)
      ? Effect.succeed(Duration.seconds(Number(text)))
      : Effect.map(Clock.currentTimeMillis, (now) => Duration.millis(Math.max(0, Date.parse(text) - now || 0)))
  ),
  encode: SchemaGetter.transform((wait) => String(Math.ceil(Duration.toSeconds(wait))))
}))

const exampleMessages: Readonly<Record<string, string>> = {
  invalid_request: "Invalid request: body.name: expected string.",
  conflict: "Key key_4fTq9XbLw2ZkPn7R is revoked.",
  rate_limit_exceeded: "The API key has used its limit of 60 requests per minute. Retry in 12 seconds.",
  api_key_banned: "The API key is temporarily banned for continued requests after 429 responses. Retry in 60 seconds."
}

const idHeader = { "x-request-id": Schema.optionalKey(Schema.String) }
const waitHeaders = { ...idHeader, "retry-after": Schema.optionalKey(RetryAfter) }
interface ErrorHeaders extends Schema.Struct.Type<typeof waitHeaders> {}

const headersOf = ({ retryAfter }: ApiError): ErrorHeaders => retryAfter ? { "retry-after": retryAfter } : {}

interface ErrorClass extends Schema.ConstraintCodec<ApiError, unknown> {
  new(fields?: Partial<Pick<RateLimitExceeded, "message" | "requestId" | "retryAfter" | "unknownCode">>): ApiError
  readonly fields: object
}

/**
 * Declares the response for errors that share an HTTP status. Clients tell them apart by the body's `code`. An
 * unknown `code`, which a newer service may send, decodes to the first class, with `unknownCode` set.
 */
export const errorResponse = <const Classes extends readonly [ErrorClass, ...ReadonlyArray<ErrorClass>]>(
  ...classes: Classes
) => {
  const defaults = classes.map((Error) => new Error())
  const [{ status } = new classes[0]()] = defaults
  const examples = defaults.map((error) => bodyOf({ ...error, message: exampleMessages[error.code] ?? error.message }))
  const body = Schema.declare(isErrorBody, { toCodecJson: () => undefined }).check(
    Schema.makeFilter((value) => value.status === status, {
      expected: defaults.map(({ code }) => code).join(" or "),
      representation: { id: "petstore/errorResponse", payload: null, schemas: [ErrorBody.ast] },
      toJsonSchema: ({ schemas }) => ({ allOf: schemas, examples })
    })
  ).pipe(HttpApiSchema.status(status))
  const decode = (
    { body: { code, message }, headers }: { readonly body: ErrorBody; readonly headers: ErrorHeaders }
  ): Classes[number]["Type"] => {
    const known = classes[defaults.findIndex((error) => error.code === code)]
    const Error = known ?? classes[0]
    const { "retry-after": retryAfter, "x-request-id": requestId } = headers
    return new Error({
      message,
      ...requestId !== undefined && { requestId },
      ...retryAfter && { retryAfter },
      ...known === undefined && { unknownCode: code }
    })
  }
  const isOneOf = Schema.is(Schema.Union(classes))
  const errorSchema = Schema.declare((error): error is Classes[number]["Type"] => isOneOf(error))
  const description = defaults.map(({ message }) => message).join(", or: ").replaceAll("., or: ", ", or: ")
  const hasWait = classes.some(({ fields }) => "retryAfter" in fields)
  return errorSchema.pipe(
    HttpApiSchema.encodeToWithHeaders<typeof errorSchema, typeof body, typeof waitHeaders | typeof idHeader>(
      { body, headers: hasWait ? waitHeaders : idHeader },
      { decode, encode: (error) => ({ body: bodyOf(error), headers: headersOf(error) }) }
    )
  ).annotate({ description })
}

/**
 * Shared by endpoints and middleware, because Effect recognizes duplicate schemas only if they are the same object.
 * Otherwise, a response in the OpenAPI document would list its schema twice.
 */
export const [requestTimeout, serviceUnavailable] = [errorResponse(RequestTimeout), errorResponse(ServiceUnavailable)]

export const commonErrors = [
  requestTimeout,
  errorResponse(HeaderFieldsTooLarge),
  errorResponse(InternalError),
  serviceUnavailable
] as const
