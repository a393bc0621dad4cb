/** What becomes of a call: an answer of the service, in time, or an error that says what happened. */
import { Context, Data, Duration, Effect, Schema } from "effect"
import { HttpClient, HttpClientError, type HttpClientRequest, type HttpClientResponse } from "effect/http"
import type * as Errors from "../api/Errors.ts"
import { defaultPolicy, type RetryPolicy, withRetries } from "./Retry.ts"

/** There is no answer of the service, or none that it would give. The message says what happened. */
export class PetstoreClientError extends Data.TaggedError("PetstoreClientError")<{
  /** Nobody answers; something else than the service answers; or what was given to the client cannot be sent. */
  readonly reason: "unreachable" | "unexpected_answer" | "invalid_input"
  readonly message: string
  readonly cause: unknown
}> {}

/** How long a client goes on. */
export interface Timeout {
  readonly retry?: Partial<RetryPolicy> | undefined
  /** How long one answer may take: 30 seconds unless told. */
  readonly timeout?: Duration.Input | undefined
}

/** A client whose answers are whole, in time, and asked for again within its timeout; `onAnswer` is told of each. */
export const withOutcome = (
  { retry, timeout = "30 seconds" }: Timeout,
  onAnswer: (response: HttpClientResponse.HttpClientResponse) => void
) =>
(client: HttpClient.HttpClient): HttpClient.HttpClient =>
  client.pipe(
    HttpClient.transform((answer, request) =>
      Effect.gen(function*() {
        const response = yield* answer
        // An answer is there when all of it is.
        yield* Effect.mapError(response.text, (cause) => failed(request, "The answer broke off", cause))
        onAnswer(response)
        return response
      })
    ),
    HttpClient.transform((answer, request) =>
      Effect.timeoutOrElse(answer, {
        duration: timeout,
        orElse: () =>
          Effect.fail(failed(request, `No answer within ${Duration.format(Duration.fromInputUnsafe(timeout))}`))
      })
    ),
    withRetries({ ...defaultPolicy, ...retry }),
    HttpClient.tap((response) =>
      Effect.map(CurrentCall, (call) => {
        call.response = response
      })
    )
  )

const failed = (request: HttpClientRequest.HttpClientRequest, description: string, cause?: unknown) =>
  new HttpClientError.HttpClientError({
    reason: new HttpClientError.TransportError({ request, description, cause })
  })

/** The last answer to the call in progress. */
const CurrentCall = Context.Reference<{ response: HttpClientResponse.HttpClientResponse | undefined }>(
  "petstore/Client/CurrentCall",
  { defaultValue: () => ({ response: undefined }) }
)

type Unanswered = HttpClientError.HttpClientError | Schema.SchemaError

const isUnanswered = (error: unknown): error is Unanswered =>
  Schema.isSchemaError(error) || HttpClientError.isHttpClientError(error)

/** Turns a failure that is not an error of the API into a `PetstoreClientError` that says what happened. */
export const describeError = <A, E extends Errors.ApiError>(
  request: Effect.Effect<A, E | Unanswered>
): Effect.Effect<A, E | PetstoreClientError> =>
  Effect.suspend(() => {
    const call: typeof CurrentCall.Service = { response: undefined }
    return request.pipe(
      Effect.provideService(CurrentCall, call),
      Effect.mapError((error) => isUnanswered(error) ? explain(error, call.response) : error)
    )
  })

const explain = (
  cause: Unanswered,
  response: HttpClientResponse.HttpClientResponse | undefined
): PetstoreClientError => {
  if (response !== undefined) {
    const { headers, request: { method, url }, status } = response
    const message = `${method} ${url} answered ${status} with ${headers["content-type"] ?? "no type"}, ` +
      "which is no answer of the Petstore service. Is the address right?"
    return new PetstoreClientError({ reason: "unexpected_answer", message, cause })
  }
  return HttpClientError.isHttpClientError(cause)
    ? new PetstoreClientError({
      reason: "unreachable",
      message: `${cause.request.method} ${cause.request.url}: ${reasonOf(cause)}`,
      cause
    })
    : new PetstoreClientError({ reason: "invalid_input", message: `This cannot be sent: ${cause.message}`, cause })
}

/** The innermost cause that says something. */
const reasonOf = ({ reason }: HttpClientError.HttpClientError): string => {
  let text = "no answer"
  for (let cause: unknown = reason; cause instanceof Error; cause = cause.cause) text = cause.message || text
  return text
}
