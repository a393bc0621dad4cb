import { Duration, Effect, Option, Schema } from "effect"
import { Headers, HttpClientError, type HttpClientRequest, type HttpClientResponse } from "effect/http"
import { title } from "../api/Brand.ts"
import { describeIssue } from "../api/DescribeIssue.ts"
import { type ApiError, ErrorBody } from "../api/Errors.ts"
import { RetryAfter } from "../api/ErrorSchemas.ts"

type Request = HttpClientRequest.HttpClientRequest

const safe = {
  /** The description, without the URL and the host. Only that of `InvalidInput` has the message of the cause. */
  message: Schema.String
}

/** The connection failed, or no complete response arrived in time. The service may have processed the request. */
export class Unreachable extends Schema.TaggedError<Unreachable>()("Unreachable", safe) {}

/** The response does not fit the API. It is a redirect, or may come from another server or a newer service. */
export class UnexpectedResponse extends Schema.TaggedError<UnexpectedResponse>()("UnexpectedResponse", {
  ...safe,
  /** The HTTP status. It is 0 for a redirect in a browser, which hides the status. */
  status: Schema.Int
}) {}

/** The service returned an error that this version of the API does not declare for the operation. */
export class UndeclaredError extends Schema.TaggedError<UndeclaredError>()("UndeclaredError", ErrorBody.fields) {}

/** An argument or a header is invalid, so the client did not send the request, or its retry. */
export class InvalidInput extends Schema.TaggedError<InvalidInput>()("InvalidInput", safe) {}

/** The effect that returns the API key or the token failed, so the client did not send the request, or its retry. */
export class SecretUnavailable extends Schema.TaggedError<SecretUnavailable>()("SecretUnavailable", safe) {}

/** The `reason` of a `PetstoreClientError`. Handle it with `Effect.catchReason`. */
export const PetstoreClientErrorReason = Schema.Union([
  Unreachable,
  UnexpectedResponse,
  UndeclaredError,
  InvalidInput,
  SecretUnavailable
])
export type PetstoreClientErrorReason = typeof PetstoreClientErrorReason.Type

/**
 * A failure other than the API's declared errors. If an endpoint of your own `HttpApi` declares this error and fails
 * with it, the endpoint responds with 502.
 *
 * The encoded form is safe to pass on: besides `_tag`, it has only `reason`, `requestId` and `retryAfter`. The URL, the
 * host and the causes stay in the process that made the call: in `message`, and in the `cause` of `reason`.
 */
export class PetstoreClientError extends Schema.TaggedError<PetstoreClientError>()("PetstoreClientError", {
  /** The kind of failure. Its `message` is safe to pass on. */
  reason: PetstoreClientErrorReason,
  /** The `X-Request-Id` of the response. */
  requestId: Schema.optionalKey(Schema.String),
  /** The `Retry-After` of the response. */
  retryAfter: Schema.optionalKey(Schema.Duration)
}, { httpApiStatus: 502 }) {
  /** The same as `reason`. */
  override readonly cause = this.reason

  /** For your own log: can name the method, the URL and the cause. In a decoded error, the same as `reason.message`. */
  override get message(): string {
    return this.reason.message
  }
}

/** Defines a property that is neither enumerable nor a field, so that neither JSON nor the schema encodes it. */
const withLocal = <E extends Error>(error: E, name: "cause" | "message", value: unknown): E =>
  Object.defineProperty(error, name, { value, configurable: true })

type Facts = Pick<PetstoreClientError, "requestId" | "retryAfter">

/** Makes the error. In this process, its `message` is the given one instead of the safe message of `reason`. */
const fail = (reason: PetstoreClientErrorReason, message: string, cause?: unknown, facts: Facts = {}) =>
  withLocal(
    new PetstoreClientError({ ...facts, reason: cause === undefined ? reason : withLocal(reason, "cause", cause) }),
    "message",
    message
  )

export const isRetryableStatus = (status: number): boolean =>
  status === 408 || status === 429 || (status >= 500 && status !== 505)

/** Whether a retry may succeed: true after 408, 429, a 5xx other than 505, no response, or an unavailable secret. */
export const isRetryable = (error: ApiError | PetstoreClientError): boolean => {
  const cause = error._tag === "PetstoreClientError" ? error.reason : error
  if ("status" in cause) return isRetryableStatus(cause.status)
  return cause._tag === "Unreachable" || cause._tag === "SecretUnavailable"
}

export const retryAfterOf = (headers: Headers.Headers): Effect.Effect<Duration.Duration | undefined> => {
  const value = headers["retry-after"]
  return value === undefined ? Effect.undefined : Effect.orDie(Schema.decodeEffect(RetryAfter)(value))
}

const describe = ({ method, url }: Request): string => `${method} ${url}`

export const withTimeout = <A, E, R>(effect: Effect.Effect<A, E, R>, timeout: Duration.Input, request: Request) =>
  Effect.timeoutOrElse(effect, {
    duration: timeout,
    orElse: () => {
      const message = `No response within ${Duration.format(Duration.fromInputUnsafe(timeout))}`
      return Effect.fail(fail(new Unreachable({ message }), `${describe(request)}: ${message}`))
    }
  })

export const fromSecret = (cause: unknown): PetstoreClientError => {
  const message = "The secret of the client is unavailable"
  return fail(new SecretUnavailable({ message }), `${message}: ${innermostMessage(cause)}`, cause)
}

export const fromRequest = (error: unknown): PetstoreClientError => {
  const invalid = "The request cannot be sent: "
  if (Schema.isSchemaError(error)) return invalidInput(invalid + error.message, error)
  if (!HttpClientError.isHttpClientError(error)) return unreachable(innermostMessage(error), error)
  const { message, reason, request } = error
  return reason._tag === "EncodeError"
    ? invalidInput(invalid + (reason.description ?? message))
    : unreachable(`${describe(request)}: ${innermostMessage(reason)}`, error)
}

const invalidInput = (message: string, cause?: unknown) => fail(new InvalidInput({ message }), message, cause)

const unreachable = (message: string, cause: unknown) =>
  fail(new Unreachable({ message: "The connection failed" }), message, cause)

const innermostMessage = (error: unknown): string => {
  let message = "no response"
  for (let cause = error; cause instanceof Error; cause = cause.cause) message = cause.message || message
  return message
}

const readErrorBody = Schema.decodeUnknownOption(Schema.fromJsonString(ErrorBody))

export type Mismatch = HttpClientError.HttpClientError | Schema.SchemaError

export const isMismatch = (error: unknown): error is Mismatch =>
  HttpClientError.isHttpClientError(error) || Schema.isSchemaError(error)

/** Makes the error of a call whose request could not be encoded (no `response`), or whose `response` is invalid. */
export const fromMismatch = Effect.fnUntraced(function*(
  cause: Mismatch,
  response: Option.Option<HttpClientResponse.HttpClientResponse>
) {
  if (Option.isNone(response)) return fromRequest(cause)
  const { headers, request, status, text } = response.value
  const requestId = headers["x-request-id"]
  const retryAfter = yield* retryAfterOf(headers)
  const facts = { ...requestId !== undefined && { requestId }, ...retryAfter !== undefined && { retryAfter } }
  const body = readErrorBody(yield* Effect.orElseSucceed(text, () => ""))
  if (Option.isSome(body) && body.value.status === status) {
    return fail(new UndeclaredError(body.value), body.value.message, undefined, facts)
  }
  const unexpected = (safely: string, fully: string) => {
    const reason = new UnexpectedResponse({ message: `The response is ${safely}`, status })
    return fail(reason, `${describe(request)} returned ${fully}`, cause, facts)
  }
  const { location } = headers
  // Browsers show a redirect that they do not follow as status 0, without headers (`opaqueredirect`).
  if (status === 0 || (status >= 300 && status < 400 && location !== undefined)) {
    // Name only the host of the redirect, because the rest of its URL can contain a secret.
    const host = location === undefined ? undefined : URL.parse(location, request.url)?.host
    const fully = `${status}, a redirect to ${host ?? "an unknown host"}`
    return unexpected(`a redirect (${status}), which the client does not follow`, fully)
  }
  const type = headers["content-type"] ?? "no type"
  const received = `${status} with ${type}, which this version of the client cannot read as a ${title} response`
  return unexpected(received, `${received}: ${mismatchOf(cause)}. Check the address.`)
})

const mismatchOf = (cause: Mismatch): string =>
  Schema.isSchemaError(cause)
    ? describeIssue(cause.issue, (path) => ["response", ...path].join("."))
    : "description" in cause.reason && cause.reason.description || cause.message
