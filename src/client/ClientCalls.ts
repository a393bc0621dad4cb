import { Context, Effect, Option, Record as Records, Ref, Stream } from "effect"
import type { Headers, HttpClientResponse } from "effect/http"
import type { HttpApi, HttpApiEndpoint, HttpApiGroup, HttpApiMiddleware } from "effect/http-api"
import * as Brand from "../api/Brand.ts"
import { rateLimitOf, type RateLimitState } from "../api/RateLimitState.ts"
import { fromMismatch, isMismatch, type Mismatch, type PetstoreClientError } from "./ClientError.ts"
import { type CallOptions, CurrentCall, omitUndefined, type Optional } from "./Transport.ts"

/** The query of a stream of all items: the query of a list, with `pageSize` instead of `limit`. */
export type StreamQuery<Query> = Optional<Omit<Query, "limit">> & {
  /** The maximum number of items per request. The default is 100. */
  readonly pageSize?: number | undefined
}

/** The declared errors of an operation of an `HttpApi`. */
export type OperationError<Api, Name extends string> = Api extends HttpApi.HttpApi<infer _Id, infer Groups>
  ? HttpApiEndpoint.ErrorsWithIdentifier<HttpApiGroup.Endpoints<Groups>, Name>
  : never

/** The metadata of a response, from `withMetadata` and `pages`. */
export interface ResponseMetadata {
  /** The HTTP status, such as 201. */
  readonly status: number
  /** All headers of the response. Their names are in lower case. */
  readonly headers: Headers.Headers
  /** The `X-Request-Id` of the response. */
  readonly requestId: string | undefined
  /** `undefined` if the response has no rate-limit headers of the API key. */
  readonly rateLimit: RateLimitState | undefined
  /** Whether the service replayed its response to an earlier request with the same idempotency key. */
  readonly isReplayed: boolean
}

/** A page of a stream, with the metadata of its response. */
export type WithMetadata<Page> = Page & {
  /** The metadata of the response. */
  readonly metadata: ResponseMetadata
}

/** Within `withMetadata`, the `Ref` in which a call stores the metadata of its response. Otherwise `undefined`. */
const LastMetadata = Context.Reference<Ref.Ref<Option.Option<ResponseMetadata>> | undefined>(
  "petstore/client/LastMetadata",
  { defaultValue: () => undefined }
)

/**
 * Runs an effect that calls a client. Returns the effect's result, and the metadata of the last successful response.
 *
 * @example
 * const [created, { isReplayed, requestId }] = yield* withMetadata(client.create(fields, { idempotencyKey }))
 */
export const withMetadata = Effect.fnUntraced(function*<A, E, R>(
  call: Effect.Effect<A, E, R>
): Effect.fn.Return<[A, ResponseMetadata], E, R> {
  const last = yield* Ref.make(Option.none<ResponseMetadata>())
  const outer = yield* LastMetadata
  const value = yield* Effect.provideService(call, LastMetadata, last)
  const metadata = yield* Ref.get(last)
  if (Option.isNone(metadata)) {
    return yield* Effect.die(new TypeError("withMetadata: the effect has made no successful call"))
  }
  if (outer !== undefined) yield* Ref.set(outer, metadata)
  return [value, metadata.value]
})

/** Client middleware for `Auth` and `AdminAuth`. It does nothing, because `Transport.ts` adds the bearer token. */
export const noopMiddleware: HttpApiMiddleware.HttpApiMiddlewareClient<never, never, never> = (call) =>
  call.next(call.request)

export const makeCall = (clientName: string) =>
<A, E>(
  name: string,
  request: Effect.Effect<A, E | Mismatch, CurrentCall>,
  options: CallOptions = {},
  attributes: Readonly<Record<string, unknown>> = {}
): Effect.Effect<A, E | PetstoreClientError> =>
  Effect.gen(function*() {
    const response = yield* Ref.make(Option.none<HttpClientResponse.HttpClientResponse>())
    const value = yield* request.pipe(
      Effect.provideService(CurrentCall, { options, response }),
      Effect.catchIf(
        isMismatch,
        (error) => Effect.flatMap(Ref.get(response), (received) => Effect.flip(fromMismatch(error, received)))
      )
    )
    const last = yield* LastMetadata
    if (last !== undefined) yield* Ref.set(last, Option.map(yield* Ref.get(response), metadataOf))
    return value
  }).pipe(Effect.withSpan(`${clientName}.${name}`, {
    attributes: Records.mapKeys(omitUndefined(attributes), (attribute) => `${Brand.name}.${attribute}`)
  }))

export const streamPages = <Query, Page extends { readonly next?: NoInfer<Query> }, E>(
  spanName: string,
  list: (query?: Query, options?: CallOptions) => Effect.Effect<Page, E>,
  first: NoInfer<Query>,
  options: CallOptions | undefined
): Stream.Stream<WithMetadata<Page>, E> => {
  const listPage = (query: Query) =>
    Effect.map(withMetadata(list(query, options)), ([page, metadata]) => {
      const pages: ReadonlyArray<WithMetadata<Page>> = [{ ...page, metadata }]
      return [pages, Option.fromUndefinedOr(page.next)] as const
    })
  return Stream.withSpan(Stream.paginate(first, listPage), spanName)
}

const metadataOf = ({ headers, status }: HttpClientResponse.HttpClientResponse): ResponseMetadata => ({
  status,
  headers,
  requestId: headers["x-request-id"],
  rateLimit: Option.getOrUndefined(rateLimitOf(headers)),
  isReplayed: headers["idempotent-replayed"] === "true"
})
