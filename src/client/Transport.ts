/** The `HttpClient` of a client: authorizes, paces and times out each attempt, and retries. */
import { Context, Duration, Effect, Option, type Redacted, Ref } from "effect"
import { Headers, HttpClient, HttpClientError, HttpClientRequest, type HttpClientResponse } from "effect/http"
import * as Brand from "../api/Brand.ts"
import { fromRequest, type PetstoreClientError, withTimeout } from "./ClientError.ts"
import { makePacing } from "./Pacing.ts"
import { type RetryOptions, sendWithRetries } from "./Retries.ts"

const version = "1.0.0"

/** The options of one call. They override the client's options. `retry` is merged field by field. */
export interface CallOptions {
  readonly retry?: RetryOptions | undefined
  /** The timeout of the whole call, including retries and waits. The default is 2 minutes. */
  readonly timeout?: Duration.Input | undefined
  /** Additional request headers. */
  readonly headers?: Headers.Input | undefined
}

export interface ClientOptions extends CallOptions {
  /** An http or https URL. Any other value is a defect: creating the client dies with a `TypeError`. */
  readonly baseUrl: string | URL
}

/** A secret, or an effect that returns it. The effect runs before each attempt, so that the secret can be rotated. */
export type Secret = Redacted.Redacted | Effect.Effect<Redacted.Redacted>

export type Optional<T> = { readonly [K in keyof T]: object extends Pick<T, K> ? T[K] | undefined : T[K] }

export const omitUndefined = <T extends object>(fields: Optional<T>): T =>
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- removes only fields that are optional in T
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as T

type Request = HttpClientRequest.HttpClientRequest
type Response = HttpClientResponse.HttpClientResponse

export class CurrentCall extends Context.Service<CurrentCall, {
  readonly options: CallOptions
  readonly response: Ref.Ref<Option.Option<Response>>
}>()("petstore/client/CurrentCall") {}

export const makeTransport = Effect.fnUntraced(function*(
  defaults: ClientOptions,
  secret: Secret,
  isIdempotent: (request: Request) => boolean
) {
  const client = yield* HttpClient.HttpClient
  const pacing = yield* makePacing
  const send = Effect.fnUntraced(function*(request: Request) {
    const call = yield* CurrentCall
    const attempt = authorize(request, secret, call.options.headers ?? defaults.headers ?? {}).pipe(
      Effect.flatMap(client.execute),
      // Read the body within the attempt, so that the client retries after a truncated body.
      Effect.tap((response) => response.text),
      Effect.mapError(fromRequest)
    )
    const retry = { ...defaults.retry, ...omitUndefined<RetryOptions>(call.options.retry ?? {}) }
    const timeout = Duration.fromInputUnsafe(call.options.timeout ?? defaults.timeout ?? "2 minutes")
    const sending = sendWithRetries(attempt, isIdempotent(request), retry, timeout, pacing)
    const response = yield* withTimeout(sending, timeout)
    const requestId = response.headers["x-request-id"]
    if (requestId !== undefined) yield* Effect.annotateCurrentSpan(`${Brand.name}.request.id`, requestId)
    yield* Ref.set(call.response, Option.some(response))
    return response
  })
  const baseUrl = HttpClientRequest.prependUrl(parseBaseUrl(defaults.baseUrl))
  // Each attempt runs `client.preprocess`, which may sign requests. `HttpClient.transform` runs it only once per call.
  const httpClient = HttpClient.makeWith<never, never, PetstoreClientError, CurrentCall>(
    Effect.flatMap((request) => send(baseUrl(request))),
    Effect.succeed
  )
  return { httpClient, rateLimit: pacing.latest }
})

const parseBaseUrl = (baseUrl: string | URL): string => {
  const url = URL.parse(String(baseUrl))
  if (url === null || !/^https?:$/.test(url.protocol)) {
    throw new TypeError("baseUrl: expected an http or https URL, such as https://api.example")
  }
  return url.href.replace(/\/(?:v1\/?)?$/, "")
}

/** In browsers, do not set `User-Agent`, because the service would have to allow that header (CORS). */
const isBrowser = "navigator" in globalThis && globalThis.navigator.userAgent.startsWith("Mozilla/")

// Check headers before Node does, because Node's error quotes the invalid value, which may be the API key.
const [headerName, headerValue] = [/^[!#$%&'*+.^`|~\w-]+$/, /^[\r\n]*[\t -~\x80-\xff]*[\r\n]*$/]

const authorize = Effect.fnUntraced(function*(request: Request, secret: Secret, own: Headers.Input) {
  const headers = { ...!isBrowser && { "user-agent": `${Brand.name}-client/${version}` }, ...Headers.fromInput(own) }
  const token = Effect.isEffect(secret) ? yield* secret : secret
  const authorized = HttpClientRequest.bearerToken(HttpClientRequest.setHeaders(request, headers), token)
  const invalid = Object.entries(authorized.headers).find(([name, value]) =>
    !headerName.test(name) || !headerValue.test(value)
  )
  if (invalid === undefined) return authorized
  const description = `The header "${invalid[0]}" has an invalid name or value`
  const reason = new HttpClientError.EncodeError({ request, description })
  return yield* new HttpClientError.HttpClientError({ reason })
})
