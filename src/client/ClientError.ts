import { Duration, Effect, Option, Schema } from "effect"
import { Headers, HttpClientError, type HttpClientRequest, type HttpClientResponse } from "effect/http"
import { title } from "../api/Brand.ts"
import { type ApiError, ErrorBody, RetryAfter } from "../api/Errors.ts"

const withCause = { message: Schema.String, cause: Schema.optionalKey(Schema.Defect()) }

/** The connection failed, or no complete response arrived in time. The service may have processed the request. */
export class Unreachable extends Schema.TaggedError<Unreachable>()("Unreachable", withCause) {}

/** The response does not fit the API. Perhaps another server listens at the address. */
export class UnexpectedResponse
  extends Schema.TaggedError<UnexpectedResponse>()("UnexpectedResponse", { ...withCause, status: Schema.Int })
{}

/** The service returned an error that the API does not declare for this operation. The service may be newer. */
export class UndeclaredError extends Schema.TaggedError<UndeclaredError>()("UndeclaredError", ErrorBody.fields) {}

/** An argument or a header is invalid, so the client sent no request. */
export class InvalidInput extends Schema.TaggedError<InvalidInput>()("InvalidInput", withCause) {}

/** The `reason` of a `PetstoreClientError`. Handle it with `Effect.catchReason`. */
export const PetstoreClientErrorReason = Schema.Union([Unreachable, UnexpectedResponse, UndeclaredError, InvalidInput])
export type PetstoreClientErrorReason = typeof PetstoreClientErrorReason.Type

/** A failure other than the API's declared errors. An endpoint of your own `HttpApi` that fails with it returns 502. */
export class PetstoreClientError extends Schema.TaggedError<PetstoreClientError>()("PetstoreClientError", {
  reason: PetstoreClientErrorReason,
  /** The `X-Request-Id` of the response. */
  requestId: Schema.optionalKey(Schema.String),
  retryAfter: Schema.optionalKey(Schema.Duration)
}, { httpApiStatus: 502 }) {
  override readonly cause = this.reason

  override get message(): string {
    return this.reason.message
  }
}

export const isRetryableStatus = (status: number): boolean =>
  status === 408 || status === 429 || (status >= 500 && status !== 505)

/** Whether a retry may succeed: true after 408, 429, a 5xx other than 505, or no response. */
export const isRetryable = (error: ApiError | PetstoreClientError): boolean => {
  const cause = error._tag === "PetstoreClientError" ? error.reason : error
  return "status" in cause ? isRetryableStatus(cause.status) : cause._tag === "Unreachable"
}

export const retryAfterOf = (headers: Headers.Headers): Effect.Effect<Duration.Duration | undefined> => {
  const value = headers["retry-after"]
  return value === undefined ? Effect.undefined : Effect.orDie(Schema.decodeEffect(RetryAfter)(value))
}

export const withTimeout = <A, E, R>(effect: Effect.Effect<A, E, R>, timeout: Duration.Input) =>
  Effect.timeoutOrElse(effect, {
    duration: timeout,
    orElse: () => {
      const message = `No response within ${Duration.format(Duration.fromInputUnsafe(timeout))}`
      return Effect.fail(new PetstoreClientError({ reason: new Unreachable({ message }) }))
    }
  })

export const fromRequest = (error: unknown): PetstoreClientError => new PetstoreClientError({ reason: reasonOf(error) })

const reasonOf = (error: unknown): InvalidInput | Unreachable => {
  const invalid = "The request cannot be sent: "
  if (Schema.isSchemaError(error)) return new InvalidInput({ message: invalid + error.message, cause: error })
  if (!HttpClientError.isHttpClientError(error)) {
    return new Unreachable({ message: innermostMessage(error), cause: error })
  }
  const { message, reason, request } = error
  return reason._tag === "EncodeError"
    ? new InvalidInput({ message: invalid + (reason.description ?? message) })
    : new Unreachable({ message: `${describe(request)}: ${innermostMessage(reason)}`, cause: error })
}

const describe = ({ method, url }: HttpClientRequest.HttpClientRequest): string => `${method} ${url}`

const innermostMessage = (error: unknown): string => {
  let message = "no response"
  for (let cause = error; cause instanceof Error; cause = cause.cause) message = cause.message || message
  return message
}

const readErrorBody = Schema.decodeUnknownOption(Schema.fromJsonString(ErrorBody))

export type Mismatch = HttpClientError.HttpClientError | Schema.SchemaError

export const isMismatch = (error: unknown): error is Mismatch =>
  HttpClientError.isHttpClientError(error) || Schema.isSchemaError(error)

/** Without a `response`, encoding the request failed. With a `response`, decoding it failed. */
export const fromMismatch = Effect.fnUntraced(function*(
  cause: Mismatch,
  response: Option.Option<HttpClientResponse.HttpClientResponse>
) {
  if (Option.isNone(response)) return fromRequest(cause)
  const { headers, request, status, text } = response.value
  const requestId = headers["x-request-id"]
  const retryAfter = yield* retryAfterOf(headers)
  const body = readErrorBody(yield* Effect.orElseSucceed(text, () => ""))
  const message = `${describe(request)} returned ${status} with ${headers["content-type"] ?? "no type"}, which ` +
    `this version of the client cannot read as a ${title} response. Check the address.`
  return new PetstoreClientError({
    reason: Option.isSome(body) && body.value.status === status
      ? new UndeclaredError(body.value)
      : new UnexpectedResponse({ message, status, cause }),
    ...requestId !== undefined && { requestId },
    ...retryAfter !== undefined && { retryAfter }
  })
})
