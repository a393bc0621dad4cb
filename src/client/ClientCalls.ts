import { Context, Duration, Effect, Option, type Redacted, Ref, type Schema, Stream } from "effect"
import { Headers, HttpClientError, HttpClientRequest, type HttpClientResponse } from "effect/http"
import type { HttpApi, HttpApiEndpoint, HttpApiGroup, HttpApiMiddleware } from "effect/http-api"
import type { ApiError } from "../api/Errors.ts"
import { fromRequest, fromResponse, isMismatch, type PetstoreClientError, withTimeout } from "./ClientError.ts"
import { type Pacing, rateLimitOf, type RateLimitState } from "./Pacing.ts"
import { type RetryOptions, sendWithRetries } from "./Retries.ts"

export const version = "1.0.0"

/** The options of one call. They override the client's options. `retry` is merged field by field. */
export interface CallOptions {
  readonly retry?: RetryOptions | undefined
  /** The timeout of the whole call, including retries and waits. The default is 2 minutes. */
  readonly timeout?: Duration.Input | undefined
  /** Additional request headers. */
  readonly headers?: Headers.Input | undefined
}

export interface PageSize {
  /** The maximum number of items per request. The default is 100. */
  readonly pageSize?: number | undefined
}

export interface ClientOptions extends CallOptions {
  /** An http or https URL. Any other value is a defect: creating the client dies with a `TypeError`. */
  readonly baseUrl: string | URL
}

export type Optional<T> = { readonly [K in keyof T]: object extends Pick<T, K> ? T[K] | undefined : T[K] }

export const omitUndefined = <T extends object>(fields: Optional<T>): T =>
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- removes only fields that are optional in T
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as T

export type ErrorOf<Api, Name extends string> = Api extends HttpApi.HttpApi<infer _Id, infer Groups>
  ? HttpApiEndpoint.ErrorsWithIdentifier<HttpApiGroup.Endpoints<Groups>, Name>
  : never

/** A secret, or an effect that returns it. The effect runs before each attempt, so that the secret can be rotated. */
export type Secret = Redacted.Redacted | Effect.Effect<Redacted.Redacted>

export interface ResponseMetadata {
  readonly status: number
  readonly headers: Headers.Headers
  /** The `X-Request-Id` of the response, which is also in the log of the service. */
  readonly requestId: string | undefined
  /** The API key's most restrictive rate limit. `undefined` if the response does not have the headers of one. */
  readonly rateLimit: RateLimitState | undefined
  /** Whether an earlier request with the same idempotency key created the pet. */
  readonly isReplayed: boolean
}

const LastMetadata = Context.Reference("petstore/client/LastMetadata", {
  defaultValue: () => Ref.makeUnsafe(Option.none<ResponseMetadata>())
})

/**
 * Runs an effect that calls a client. Returns its result, and the metadata of its last successful response.
 *
 * @example
 * const [pet, { isReplayed, requestId }] = yield* withMetadata(petstore.create({ name: "Rex", categoryId: 1n }))
 */
export const withMetadata = Effect.fnUntraced(function*<A, E, R>(
  call: Effect.Effect<A, E, R>
): Effect.fn.Return<[A, ResponseMetadata], E, R> {
  const last = yield* Ref.make(Option.none<ResponseMetadata>())
  const value = yield* Effect.provideService(call, LastMetadata, last)
  const metadata = yield* Ref.get(last)
  if (Option.isSome(metadata)) return [value, metadata.value]
  return yield* Effect.die(new TypeError("withMetadata: the effect has made no successful call"))
})

const CallHeaders = Context.Reference<Headers.Input>("petstore/client/CallHeaders", { defaultValue: () => ({}) })

/** In browsers, do not set `User-Agent`, because the service would have to allow that header (CORS). */
const isBrowser = "navigator" in globalThis && globalThis.navigator.userAgent.startsWith("Mozilla/")

// Node's error for an invalid header quotes the value, which may be the API key.
const [headerName, headerValue] = [/^[!#$%&'*+.^`|~\w-]+$/, /^[\r\n]*[\t -~\x80-\xff]*[\r\n]*$/]

export const authorize =
  (secret: Secret): HttpApiMiddleware.HttpApiMiddlewareClient<never, never, never> => ({ next, request }) =>
    Effect.gen(function*() {
      const headers = {
        ...!isBrowser && { "user-agent": `petstore-client/${version}` },
        ...Headers.fromInput(yield* CallHeaders)
      }
      const token = Effect.isEffect(secret) ? yield* secret : secret
      const authorized = HttpClientRequest.bearerToken(HttpClientRequest.setHeaders(request, headers), token)
      const invalid = Object.entries(authorized.headers).find(([name, value]) =>
        !headerName.test(name) || !headerValue.test(value)
      )
      if (invalid === undefined) return yield* next(authorized)
      const description = `The header "${invalid[0]}" has an invalid name or value`
      return yield* new HttpClientError.HttpClientError({
        reason: new HttpClientError.EncodeError({ request, description })
      })
    })

export const parseBaseUrl = (baseUrl: string | URL): string => {
  const url = URL.parse(String(baseUrl))
  if (url === null || !/^https?:$/.test(url.protocol)) {
    throw new TypeError("baseUrl: expected an http or https URL, such as https://petstore.example")
  }
  return url.href.replace(/\/(?:v1\/?)?$/, "")
}

type Response = HttpClientResponse.HttpClientResponse

type Attributes = Readonly<Record<string, unknown>>

export const makeCaller = (clientName: string, defaults: CallOptions, limits: Pacing) =>
<A, E extends ApiError>(
  name: string,
  request: Effect.Effect<Response, unknown>,
  decode: (response: Response) => Effect.Effect<A, E | HttpClientError.HttpClientError | Schema.SchemaError>,
  { attributes = {}, isIdempotent }: { readonly isIdempotent: boolean; readonly attributes?: Attributes },
  options: CallOptions = {}
): Effect.Effect<A, E | PetstoreClientError> => {
  const timeout = Duration.fromInputUnsafe(options.timeout ?? defaults.timeout ?? "2 minutes")
  const send = request.pipe(
    // Read the body within the attempt, so that the client retries after a truncated body.
    Effect.tap((response) => response.text),
    Effect.mapError(fromRequest),
    Effect.provideService(CallHeaders, options.headers ?? defaults.headers ?? {})
  )
  const retry = { ...defaults.retry, ...omitUndefined<RetryOptions>(options.retry ?? {}) }
  const sendAll = sendWithRetries(send, isIdempotent, retry, timeout, limits)
  return Effect.gen(function*() {
    const response = yield* withTimeout(sendAll, timeout)
    const metadata = metadataOf(response)
    yield* Effect.annotateCurrentSpan(omitUndefined<Attributes>({ "petstore.request_id": metadata.requestId }))
    const value = yield* decode(response).pipe(
      Effect.catchIf(isMismatch, (error) => Effect.flip(fromResponse(error, response)))
    )
    yield* Ref.set(yield* LastMetadata, Option.some(metadata))
    return value
  }).pipe(Effect.withSpan(`${clientName}.${name}`, { attributes: omitUndefined<Attributes>(attributes) }))
}

export const streamPages = <Query, Page extends { readonly next?: NoInfer<Query> }, A, E>(
  spanName: string,
  list: (query?: Query, options?: CallOptions) => Effect.Effect<Page, E>,
  itemsOf: (page: Page) => ReadonlyArray<A>,
  first: NoInfer<Query>,
  options: CallOptions | undefined
): Stream.Stream<A, E> =>
  Stream.paginate(
    first,
    (query) => Effect.map(list(query, options), (page) => [itemsOf(page), Option.fromUndefinedOr(page.next)] as const)
  ).pipe(Stream.withSpan(spanName))

const metadataOf = ({ headers, status }: Response): ResponseMetadata => ({
  status,
  headers,
  requestId: headers["x-request-id"],
  rateLimit: Option.getOrUndefined(rateLimitOf(headers)),
  isReplayed: headers["idempotent-replayed"] === "true"
})
