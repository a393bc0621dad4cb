/** The `HttpClient` of a client: authorizes, paces and times out each attempt, and retries. */
import { type Config, Context, Duration, Effect, Exit, Option, type Redacted, Ref } from "effect"
import { FetchHttpClient, Headers, HttpClient, HttpClientError, HttpClientRequest } from "effect/http"
import type { HttpClientResponse } from "effect/http"
import * as Brand from "../api/Brand.ts"
import { fromRequest, fromSecret, type PetstoreClientError, withTimeout } from "./ClientError.ts"
import { makeMetrics } from "./ClientMetrics.ts"
import { makePacing } from "./Pacing.ts"
import { type RetryOptions, sendWithRetries } from "./Retries.ts"

const version = "1.0.0"

/** The options of one call. They override the client's options. `retry` is merged field by field. */
export interface CallOptions {
  /** When to retry, and how long to wait for a retry or for a limit. */
  readonly retry?: RetryOptions | undefined
  /** The timeout of the whole call, including retries and waits. The default is 2 minutes. */
  readonly timeout?: Duration.Input | undefined
  /** Additional request headers. Except in browsers, a `User-Agent` such as `shop/2.1` precedes that of the client. */
  readonly headers?: Headers.Input | undefined
}

/** The options that both clients have. Those of `CallOptions` are the defaults of all calls. */
export interface ClientOptions extends CallOptions {
  /**
   * An http or https URL, without credentials, query and fragment. Any other value is a defect: creating the client
   * dies with a `TypeError`, which does not contain the value.
   */
  readonly baseUrl: string | URL
}

/**
 * A secret, or an effect that returns it. The effect runs before each attempt, so that the secret can be rotated. If
 * the effect fails, the attempt fails with `SecretUnavailable`. The client retries any such attempt, because it sent
 * nothing.
 */
export type Secret = Redacted.Redacted | Effect.Effect<Redacted.Redacted, unknown>

/** The fields of `T`, of which the optional ones may also be `undefined`. */
export type Optional<T> = { readonly [K in keyof T]: object extends Pick<T, K> ? T[K] | undefined : T[K] }

export const omitUndefined = <T extends object>(fields: Optional<T>): T =>
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- removes only fields that are optional in T
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as T

/** The parameter of each client's `layerConfig`: for any of the options, a `Config` that reads it. */
export type OptionsConfig<Options> = { readonly [Name in keyof Options]?: Config.Wrap<Options[Name]> }

type Request = HttpClientRequest.HttpClientRequest
type Response = HttpClientResponse.HttpClientResponse

export class CurrentCall extends Context.Service<CurrentCall, {
  readonly options: CallOptions
  readonly response: Ref.Ref<Option.Option<Response>>
}>()("petstore/client/CurrentCall") {}

export const makeTransport = Effect.fnUntraced(function*(
  clientName: string,
  defaults: ClientOptions,
  secret: Secret,
  isIdempotent: (request: Request) => boolean
) {
  const client = yield* HttpClient.HttpClient
  const metrics = makeMetrics(clientName)
  const pacing = yield* makePacing(metrics)
  const send = Effect.fnUntraced(function*(request: Request) {
    const call = yield* CurrentCall
    const attempt = authorize(request, secret, call.options.headers ?? defaults.headers ?? {}).pipe(
      Effect.flatMap((authorized) =>
        Effect.onExit(
          withoutRedirects(client.execute(authorized)),
          (exit) => metrics.attempted(Exit.isSuccess(exit) ? exit.value.status : undefined)
        )
      ),
      // Read the body within the attempt, so that the client retries after a truncated body.
      Effect.tap((response) => response.text),
      Effect.mapError((error) => error._tag === "PetstoreClientError" ? error : fromRequest(error))
    )
    const retry = { ...defaults.retry, ...omitUndefined<RetryOptions>(call.options.retry ?? {}) }
    const timeout = Duration.fromInputUnsafe(call.options.timeout ?? defaults.timeout ?? "2 minutes")
    const sending = sendWithRetries(attempt, request, isIdempotent(request), retry, timeout, pacing, metrics)
    const response = yield* withTimeout(sending, timeout, request)
    const requestId = response.headers["x-request-id"]
    if (requestId !== undefined) yield* Effect.annotateCurrentSpan(`${Brand.name}.request.id`, requestId)
    yield* Ref.set(call.response, Option.some(response))
    return response
  })
  const baseUrl = HttpClientRequest.prependUrl(parseBaseUrl(defaults.baseUrl))
  // Not `HttpClient.transform`, which would run the `preprocess` of `client` once per call. `client.execute` runs it
  // for each attempt. A `preprocess` that signs requests needs that.
  const httpClient = HttpClient.makeWith<never, never, PetstoreClientError, CurrentCall>(
    Effect.flatMap((request) => send(baseUrl(request))),
    Effect.succeed
  )
  return { httpClient, rateLimit: pacing.latest }
})

/**
 * Makes `fetch` return a redirect instead of following it. Otherwise, the client would send the request to any host
 * that a redirect names, and trust the response of that host.
 */
const withoutRedirects = <A, E>(send: Effect.Effect<A, E>): Effect.Effect<A, E> =>
  Effect.contextWith((context: Context.Context<never>) => {
    const own = Context.getOrUndefined(context, FetchHttpClient.RequestInit)
    return Effect.provideService(send, FetchHttpClient.RequestInit, { ...own, redirect: "manual" })
  })

const parseBaseUrl = (baseUrl: string | URL): string => {
  const url = URL.parse(String(baseUrl))
  if (url === null || !/^https?:$/.test(url.protocol) || url.username + url.password !== "" || /[?#]/.test(url.href)) {
    throw new TypeError(
      "baseUrl: expected an http or https URL without credentials, query and fragment, such as https://api.example"
    )
  }
  return url.href.replace(/\/(?:v1\/?)?$/, "")
}

/** In browsers, do not set `User-Agent`, because the service would have to allow that header (CORS). */
const isBrowser = "navigator" in globalThis && globalThis.navigator.userAgent.startsWith("Mozilla/")

// Check headers before `fetch` does: the error of Node's `fetch` quotes an invalid value, which may be the API key.
const [headerName, headerValue] = [/^[!#$%&'*+.^`|~\w-]+$/, /^[\r\n]*[\t -~\x80-\xff]*[\r\n]*$/]

const authorize = Effect.fnUntraced(function*(request: Request, secret: Secret, own: Headers.Input) {
  const { "user-agent": application = "", ...others } = Headers.fromInput(own)
  const userAgent = `${application} ${Brand.name}-client/${version}`.trimStart()
  const headers = isBrowser ? Headers.fromInput(own) : { ...others, "user-agent": userAgent }
  const token = Effect.isEffect(secret) ? yield* Effect.mapError(secret, fromSecret) : secret
  const authorized = HttpClientRequest.bearerToken(HttpClientRequest.setHeaders(request, headers), token)
  const invalid = Object.entries(authorized.headers).find(([name, value]) =>
    !headerName.test(name) || !headerValue.test(value)
  )
  if (invalid === undefined) return authorized
  const description = `The header "${invalid[0]}" has an invalid name or value`
  const reason = new HttpClientError.EncodeError({ request, description })
  return yield* new HttpClientError.HttpClientError({ reason })
})
