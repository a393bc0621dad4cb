/** Makes the calls of a client: each has a span, a timeout, retries, and a failure with its cause. */
import { Context, Duration, Effect, Option, type Redacted, Ref, type Schema, Stream } from "effect"
import { Headers, type HttpClientError, HttpClientRequest, type HttpClientResponse } from "effect/http"
import type { HttpApi, HttpApiEndpoint, HttpApiGroup, HttpApiMiddleware } from "effect/http-api"
import type { ApiError } from "../api/Errors.ts"
import { fromRequest, fromResponse, isMismatch, type PetstoreClientError, withTimeout } from "./ClientError.ts"
import { rateLimitOf, type RateLimits, type RateLimitState } from "./RateLimits.ts"
import { type RetryOptions, sendWithRetries } from "./Retries.ts"

export const version = "1.0.0"

/** The options of one call. They replace those of the client, retry option by retry option. */
export interface CallOptions {
  readonly retry?: RetryOptions | undefined
  /** The max duration of the call with its retries and waits. Then it fails and sends nothing more: 2 minutes. */
  readonly timeout?: Duration.Input | undefined
  /** Further headers of the request. */
  readonly headers?: Headers.Input | undefined
}

/** The options of `all`. */
export interface PageSize {
  /** The items of one request: 100 by default. */
  readonly pageSize?: number | undefined
}

/** The options that both clients have. */
export interface ClientOptions extends CallOptions {
  /** An http or https URL. The layer dies with a `TypeError` for another text. */
  readonly baseUrl: string | URL
}

/** The fields of `T`, of which the optional ones can also be `undefined`. */
export type Optional<T> = { readonly [K in keyof T]: object extends Pick<T, K> ? T[K] | undefined : T[K] }

/** Removes the fields that are `undefined`, which the schemas of the contract do not allow. */
export const omitUndefined = <T extends object>(fields: Optional<T>): T =>
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only optional fields of T can be undefined
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as T

/** The errors that the contract declares for an endpoint. */
export type ErrorOf<Api, Name extends string> = Api extends HttpApi.HttpApi<infer _Id, infer Groups>
  ? HttpApiEndpoint.ErrorsWithIdentifier<HttpApiGroup.Endpoints<Groups>, Name>
  : never

/** A secret, or an effect that returns it before each attempt, so that a rotated key needs no new layer. */
export type Secret = Redacted.Redacted | Effect.Effect<Redacted.Redacted>

/** The facts of a response beside its body. */
export interface ResponseMetadata {
  readonly status: number
  readonly headers: Headers.Headers
  /** The `X-Request-Id`, which the log of the service has too. */
  readonly requestId: string | undefined
  /** The limits of the API key. `undefined` for the management port. */
  readonly rateLimit: RateLimitState | undefined
  /** Whether the pet is from an earlier request with the same idempotency key. */
  readonly isReplayed: boolean
}

/** The metadata of the last successful call within `withMetadata`. */
const LastMetadata = Context.Reference("petstore/client/LastMetadata", {
  defaultValue: () => Ref.makeUnsafe(Option.none<ResponseMetadata>())
})

/**
 * Adds the metadata of the response to the result of a call. With several calls, it is that of the last one.
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

/** The headers of the current call, which `authorize` adds to its requests. */
const CallHeaders = Context.Reference<Headers.Input>("petstore/client/CallHeaders", { defaultValue: () => ({}) })

/** Browsers do not let a page of another origin set `User-Agent` without the permission of the service. */
const isBrowser = "navigator" in globalThis && globalThis.navigator.userAgent.startsWith("Mozilla/")

/** Makes the client side of the authentication: it adds the secret and the headers of the call. */
export const authorize =
  (secret: Secret): HttpApiMiddleware.HttpApiMiddlewareClient<never, never, never> => ({ next, request }) =>
    Effect.gen(function*() {
      const headers = {
        ...!isBrowser && { "user-agent": `petstore-client/${version}` },
        ...Headers.fromInput(yield* CallHeaders)
      }
      const token = Effect.isEffect(secret) ? yield* secret : secret
      return yield* next(HttpClientRequest.bearerToken(HttpClientRequest.setHeaders(request, headers), token))
    })

/** Returns a base URL without its trailing slash and without the `/v1` of the API. Throws for other texts. */
export const parseBaseUrl = (baseUrl: string | URL): string => {
  const url = URL.parse(String(baseUrl))
  if (url === null || !/^https?:$/.test(url.protocol)) {
    throw new TypeError("baseUrl: expected an http or https URL, such as https://petstore.example")
  }
  return url.href.replace(/\/(?:v1\/?)?$/, "")
}

type Response = HttpClientResponse.HttpClientResponse

type Attributes = Readonly<Record<string, unknown>>

/** Returns the function that makes the calls of the client `clientName`. Their spans have its name and theirs. */
export const makeCaller = (clientName: string, defaults: CallOptions, limits: RateLimits) =>
<A, E extends ApiError>(
  name: string,
  request: Effect.Effect<Response, unknown>,
  decode: (response: Response) => Effect.Effect<A, E | HttpClientError.HttpClientError | Schema.SchemaError>,
  /** `isRepeatable`: whether the service does the work once, however often it gets the request. */
  { attributes = {}, isRepeatable }: { readonly isRepeatable: boolean; readonly attributes?: Attributes },
  options: CallOptions = {}
): Effect.Effect<A, E | PetstoreClientError> => {
  const timeout = Duration.fromInputUnsafe(options.timeout ?? defaults.timeout ?? "2 minutes")
  const send = request.pipe(
    // A response whose body breaks off counts as no response, so the body is read here.
    Effect.tap((response) => response.text),
    Effect.mapError(fromRequest),
    Effect.provideService(CallHeaders, options.headers ?? defaults.headers ?? {})
  )
  const sendAll = sendWithRetries(send, isRepeatable, { ...defaults.retry, ...options.retry }, timeout, limits)
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

/** Streams the items of all pages, from the query `first` on. It requests a page when the consumer needs it. */
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
