/** Turns each call of a client into a complete response within the timeout, or an error with a cause. */
import { Clock, Context, Data, Duration, Effect, Schema } from "effect"
import { HttpClient, HttpClientError, type HttpClientRequest, type HttpClientResponse } from "effect/http"
import type * as Errors from "../api/Errors.ts"
import { type KnownLimits, retryAfterMs } from "./KnownLimits.ts"
import { defaultPolicy, type RetryPolicy, withRetries } from "./Retry.ts"

/** A call failed without an error response of the API. `message` says what happened. */
export class PetstoreClientError extends Data.TaggedError("PetstoreClientError")<{
  /**
   * - `unreachable`: no complete response arrived.
   * - `unexpected_answer`: the response is not one of the Petstore service; another server may listen at the address.
   * - `invalid_input`: the client cannot encode the arguments of the call.
   */
  readonly reason: "unreachable" | "unexpected_answer" | "invalid_input"
  readonly message: string
  readonly cause: unknown
}> {}

/** The retries and the timeout of a client's calls. */
export interface Timeout {
  /** Overrides parts of `defaultPolicy` (`Retry.ts`). */
  readonly retry?: Partial<RetryPolicy> | undefined
  /** The max duration of one attempt. The default is 30 seconds. */
  readonly timeout?: Duration.Input | undefined
}

/**
 * Wraps a client so that each response is complete, arrives within the timeout, and is retried as `retry` and the
 * limits allow.
 */
export const withOutcome =
  ({ retry, timeout = "30 seconds" }: Timeout, limits: KnownLimits) =>
  (client: HttpClient.HttpClient): HttpClient.HttpClient =>
    client.pipe(
      HttpClient.transform((attempt, request) =>
        Effect.gen(function*() {
          const response = yield* attempt
          // A response whose body breaks off counts as no response, so the body is read here.
          yield* Effect.mapError(response.text, (cause) => transportError(request, "The response is incomplete", cause))
          return response
        })
      ),
      HttpClient.transform((attempt, request) =>
        Effect.timeoutOrElse(attempt, {
          duration: timeout,
          orElse: () =>
            Effect.fail(
              transportError(request, `No response within ${Duration.format(Duration.fromInputUnsafe(timeout))}`)
            )
        })
      ),
      withRetries({ ...defaultPolicy, ...retry }, limits),
      HttpClient.tap((response) =>
        Effect.map(CurrentCall, (call) => {
          call.response = response
        })
      )
    )

const transportError = (request: HttpClientRequest.HttpClientRequest, description: string, cause?: unknown) =>
  new HttpClientError.HttpClientError({
    reason: new HttpClientError.TransportError({ request, description, cause })
  })

/** Holds the last response of the call in flight. */
const CurrentCall = Context.Reference<{ response: HttpClientResponse.HttpClientResponse | undefined }>(
  "petstore/Client/CurrentCall",
  { defaultValue: () => ({ response: undefined }) }
)

/** A failure that is not an error response of the API. */
type NonApiError = HttpClientError.HttpClientError | Schema.SchemaError

const isNonApiError = (error: unknown): error is NonApiError =>
  Schema.isSchemaError(error) || HttpClientError.isHttpClientError(error)

/**
 * Turns a failure that is not an error of the API into a `PetstoreClientError` that says what happened. Adds to an
 * error of the API what its response says beside the body.
 */
export const describeError = <A, E extends Errors.ApiError>(
  request: Effect.Effect<A, E | NonApiError>
): Effect.Effect<A, E | PetstoreClientError> =>
  Effect.suspend(() => {
    const call: typeof CurrentCall.Service = { response: undefined }
    return request.pipe(
      Effect.provideService(CurrentCall, call),
      Effect.catch((error): Effect.Effect<never, E | PetstoreClientError> =>
        isNonApiError(error)
          ? Effect.fail(toClientError(error, call.response))
          : Effect.flatMap(Clock.currentTimeMillis, (now) => Effect.fail(addHeaders(error, call.response, now)))
      )
    )
  })

/** Adds the request id and the wait from the headers. The error was decoded for this call alone. */
const addHeaders = <E extends Errors.ApiError>(
  error: E,
  response: HttpClientResponse.HttpClientResponse | undefined,
  now: number
): E => {
  const requestId = response?.headers["x-request-id"]
  return Object.assign(error, {
    ...requestId !== undefined && { requestId },
    ...response?.headers["retry-after"] !== undefined && { retryAfter: Math.ceil(retryAfterMs(response, now) / 1000) }
  })
}

const toClientError = (
  cause: NonApiError,
  response: HttpClientResponse.HttpClientResponse | undefined
): PetstoreClientError => {
  if (response !== undefined) {
    const { headers, request: { method, url }, status } = response
    const message = `${method} ${url} returned ${status} with ${headers["content-type"] ?? "no type"}, ` +
      "which is not a response of the Petstore service. Check the address."
    return new PetstoreClientError({ reason: "unexpected_answer", message, cause })
  }
  return HttpClientError.isHttpClientError(cause)
    ? new PetstoreClientError({
      reason: "unreachable",
      message: `${cause.request.method} ${cause.request.url}: ${innermostMessage(cause)}`,
      cause
    })
    : new PetstoreClientError({
      reason: "invalid_input",
      message: `The request cannot be sent: ${cause.message}`,
      cause
    })
}

/** The message of the innermost cause that has one. */
const innermostMessage = ({ reason }: HttpClientError.HttpClientError): string => {
  let message = "no response"
  for (let cause: unknown = reason; cause instanceof Error; cause = cause.cause) message = cause.message || message
  return message
}
