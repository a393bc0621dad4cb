/** The failures of a client: the errors that the contract declares, and {@link PetstoreClientError} for the others. */
import { Clock, Data, Duration, Effect, Option, Schema } from "effect"
import { Headers, HttpClientError, type HttpClientRequest, type HttpClientResponse } from "effect/http"
import { type ApiError, ErrorBody } from "../api/Errors.ts"

/** No complete response arrived within the timeout. The service may have done the work. */
export class Unreachable extends Data.TaggedError("Unreachable")<{
  readonly message: string
  readonly cause: unknown
}> {}

/** The response is not one that this client can read. Another server may listen at the address. */
export class UnexpectedResponse extends Data.TaggedError("UnexpectedResponse")<{
  readonly message: string
  readonly status: number
  readonly cause: unknown
}> {}

/** The service returned an error that this version of the client does not declare for the call. */
export class UndeclaredError extends Data.TaggedError("UndeclaredError")<{
  readonly code: string
  readonly message: string
  readonly status: number
  readonly requestId: string | undefined
  readonly retryAfter: Duration.Duration | undefined
}> {}

/** The arguments of the call do not fit the contract. The client sent nothing. */
export class InvalidInput extends Data.TaggedError("InvalidInput")<{
  readonly message: string
  readonly cause: Schema.SchemaError
}> {}

/** The reasons of a `PetstoreClientError`, for `Effect.catchReason`. */
export type PetstoreClientErrorReason = Unreachable | UnexpectedResponse | UndeclaredError | InvalidInput

/** A call failed without an error that the contract declares for it. `message` says what happened. */
export class PetstoreClientError extends Data.TaggedError("PetstoreClientError")<{
  readonly reason: PetstoreClientErrorReason
  readonly cause: unknown
}> {
  constructor(reason: PetstoreClientErrorReason) {
    super({ reason, cause: reason.cause })
  }

  override get message(): string {
    return this.reason.message
  }
}

/** Whether a response with this status leaves open if a later request succeeds: 408, 429, and 5xx but 505. */
export const isRetryableStatus = (status: number): boolean =>
  status === 408 || status === 429 || (status >= 500 && status !== 505)

/** Whether the same call can succeed later: after 408, 429 and 5xx but 505, and without a response. */
export const isRetryable = (error: ApiError | PetstoreClientError): boolean => {
  const cause = error._tag === "PetstoreClientError" ? error.reason : error
  return "status" in cause ? isRetryableStatus(cause.status) : cause._tag === "Unreachable"
}

/** The wait that `Retry-After` names: it holds seconds or a date (RFC 9110 §10.2.3). `now` is in epoch milliseconds. */
export const retryAfterOf = (headers: Headers.Headers, now: number): Duration.Duration | undefined => {
  const value = headers["retry-after"]
  if (value === undefined) return undefined
  const waitMs = /^\d+$/.test(value) ? Number(value) * 1000 : Date.parse(value) - now
  return Duration.millis(Math.max(0, waitMs || 0))
}

/** Returns the error for a request without a complete response within the timeout. */
export const timedOut = (timeout: Duration.Duration): PetstoreClientError =>
  new PetstoreClientError(
    new Unreachable({ message: `No response within ${Duration.format(timeout)}`, cause: undefined })
  )

/** Returns the error for a request that failed without a complete response. */
export const fromRequest = (error: unknown): PetstoreClientError => {
  if (Schema.isSchemaError(error)) {
    const message = `The request cannot be sent: ${error.message}`
    return new PetstoreClientError(new InvalidInput({ message, cause: error }))
  }
  const request = HttpClientError.isHttpClientError(error) ? error.request : undefined
  const message = request === undefined ? innermostMessage(error) : `${describe(request)}: ${innermostMessage(error)}`
  return new PetstoreClientError(new Unreachable({ message, cause: error }))
}

const describe = ({ method, url }: HttpClientRequest.HttpClientRequest): string => `${method} ${url}`

/** The message of the innermost cause that has one. */
const innermostMessage = (error: unknown): string => {
  let message = "no response"
  const first = HttpClientError.isHttpClientError(error) ? error.reason : error
  for (let cause = first; cause instanceof Error; cause = cause.cause) message = cause.message || message
  return message
}

const readErrorBody = Schema.decodeUnknownOption(Schema.fromJsonString(ErrorBody))

/** Fails for a response that is no success. `error` is the declared error in its body, or why it has none. */
export const fromResponse = <E extends ApiError>(
  error: E | HttpClientError.HttpClientError | Schema.SchemaError,
  response: HttpClientResponse.HttpClientResponse
): Effect.Effect<never, E | PetstoreClientError> =>
  Effect.flatMap(
    Effect.all([Clock.currentTimeMillis, Effect.orElseSucceed(response.text, () => "")]),
    ([now, text]): Effect.Effect<never, E | PetstoreClientError> => {
      const { headers, request, status } = response
      const facts = { requestId: headers["x-request-id"], retryAfter: retryAfterOf(headers, now) }
      if (!HttpClientError.isHttpClientError(error) && !Schema.isSchemaError(error)) {
        // The error was decoded for this call alone.
        return Effect.fail(Object.assign(error, facts))
      }
      const body = readErrorBody(text)
      if (Option.isSome(body) && body.value.status === status) {
        return Effect.fail(new PetstoreClientError(new UndeclaredError({ ...body.value, ...facts })))
      }
      const message =
        `${describe(request)} returned ${status} with ${headers["content-type"] ?? "no type"}, which is ` +
        "no response of the Petstore service that this version of the client can read. Check the address."
      return Effect.fail(new PetstoreClientError(new UnexpectedResponse({ message, status, cause: error })))
    }
  )
