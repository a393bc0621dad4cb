import { Config, Context, Effect, Layer, Stream } from "effect"
import { SecureRandom } from "effect/crypto"
import { FetchHttpClient, type HttpClient } from "effect/http"
import { HttpApiClient, HttpApiMiddleware } from "effect/http-api"
import { Auth } from "../api/OperationMiddleware.ts"
import { listLimit } from "../api/Paging.ts"
import type { ListQuery, NewPet, Pet, PetsPage } from "../api/Pets.ts"
import { PetstoreApi } from "../api/PetstoreApi.ts"
import { makeCall, noopMiddleware, type OperationError, streamPages } from "./ClientCalls.ts"
import type { StreamQuery, WithMetadata } from "./ClientCalls.ts"
import type { PetstoreClientError } from "./ClientError.ts"
import { type CallOptions, type ClientOptions, makeTransport, omitUndefined } from "./Transport.ts"
import type { Optional, OptionsConfig, Secret } from "./Transport.ts"

type ErrorOf<Operation extends string> = PetstoreClientError | OperationError<typeof PetstoreApi, Operation>

/** The errors that every call can fail with, and the only ones of `list`, `all` and `pages`. */
export type AnyError = ErrorOf<"listPets">

/** The errors of `create`. */
export type CreateError = ErrorOf<"createPet">

/** The errors of `get`. */
export type GetError = ErrorOf<"getPet">

/** The options of a client. `baseUrl` may end with `/v1` (SPEC §1). */
export interface Options extends ClientOptions {
  /** The API key, which the client sends as a bearer token (SPEC §5). */
  readonly apiKey: Secret
}

/**
 * The query of `all` and `pages`. With the `cursor` in `next` of an earlier page, the stream starts after that page.
 */
export interface AllQuery extends StreamQuery<ListQuery> {}

/** The options of `create`. */
export interface CreateOptions extends CallOptions {
  /**
   * Within 24 hours, an API key creates at most one pet with an idempotency key. An idempotency key has 1 to 255
   * visible ASCII characters other than quotation marks, and may be in quotation marks. By default, each run of the
   * effect uses a new UUID.
   */
  readonly idempotencyKey?: string | undefined
}

const clientName = "PetstoreClient"

/** Creates a client without a `Layer`, for programs that use several API keys. */
const make = Effect.fnUntraced(function*(clientOptions: Options) {
  const random = yield* SecureRandom.SecureRandom
  const { httpClient, rateLimit } = yield* makeTransport(
    clientName,
    clientOptions,
    clientOptions.apiKey,
    ({ headers, method }) => method === "GET" || "idempotency-key" in headers
  )
  const api = yield* HttpApiClient.makeWith(PetstoreApi, { httpClient })
  const call = makeCall(clientName)

  const list = (query: Optional<ListQuery> = {}, options?: CallOptions): Effect.Effect<PetsPage, AnyError> =>
    call("list", api.listPets({ query: omitUndefined(query) }), options, { ...query })

  const pages = (
    { pageSize: limit = listLimit.maximum, ...filter }: AllQuery = {},
    options?: CallOptions
  ): Stream.Stream<WithMetadata<PetsPage>, AnyError> =>
    streamPages(`${clientName}.pages`, list, { ...filter, limit }, options)

  return {
    /**
     * Gets one page of pets (SPEC §4.1). `next` is the query for the next page, and is absent on the last page.
     * Errors such as `RateLimitExceeded` and `ServiceUnavailable` occur when no retry is left or allowed.
     *
     * @example
     * const { next, pets } = yield* petstore.list({ limit: 20, status: "available" })
     * const nextPage = next === undefined ? [] : (yield* petstore.list(next)).pets
     */
    list,
    /**
     * Streams the pages of `all`, each with the metadata of its response. To resume the stream later, store
     * `next.cursor` of the last page that you have processed.
     *
     * @example
     * yield* Stream.runForEach(petstore.pages({ pageSize: 50 }), ({ metadata, pets }) =>
     *   Console.log(pets.length, metadata.requestId))
     */
    pages,
    /**
     * Streams all matching pets by ascending id, and requests each page only when the stream needs it. If the request
     * for a page fails, the stream emits the pets of the earlier pages and then fails with the error of that request.
     *
     * @example
     * yield* Stream.runForEach(petstore.all({ status: "sold" }), (pet) => Console.log(pet.name))
     */
    all: (query?: AllQuery, options?: CallOptions): Stream.Stream<Pet, AnyError> =>
      Stream.flattenIterable(Stream.map(pages(query, options), ({ pets }) => pets)),
    /**
     * Creates at most one pet per run of the effect, even if the client retries (SPEC §4.2). Within 24 hours, runs with
     * the same `idempotencyKey` create only one pet. Fails with `IdempotencyKeyReused` if the idempotency key created a
     * different pet.
     *
     * @example
     * const rex = yield* petstore.create({ name: "Rex", categoryId: 1n }, { idempotencyKey: `order-${order.id}` })
     */
    create: (pet: Optional<NewPet>, options: CreateOptions = {}): Effect.Effect<Pet, CreateError> =>
      Effect.gen(function*() {
        const key = options.idempotencyKey ?? (yield* random.uuidV7())
        const request = api.createPet({ payload: omitUndefined(pet), headers: { "idempotency-key": key } })
        return (yield* call("create", request, options, { idempotency_key: key })).pet
      }),
    /**
     * Gets a pet. Fails with `NotFound` for an unknown id, and with `Gone` after the operation is removed.
     *
     * @example
     * const pet = yield* petstore.get(1n).pipe(Effect.catchTag("NotFound", () => Effect.undefined))
     *
     * @deprecated Will be removed on 5 December 2030 (SPEC §4.3). Use `list` or `all`.
     */
    get: (id: bigint, options?: CallOptions): Effect.Effect<Pet, GetError> =>
      call("get", api.getPet({ params: { petId: id } }), options, { "pet.id": id }),
    /**
     * The window of the API key with the fewest remaining requests, from the latest rate-limit headers (SPEC §8).
     * During a ban, its `remaining` is 0. The value is `None` before the first such headers.
     */
    rateLimit
  }
}, Effect.provide([HttpApiMiddleware.layerClient(Auth, noopMiddleware), SecureRandom.layerWebCrypto]))

/**
 * A client of the Petstore service. Retries with backoff after a 408, a 429, a 5xx other than 505, no response, or an
 * unavailable API key, but not before `Retry-After`. Sends an `Idempotency-Key` with each create, so a retry creates no
 * second pet.
 */
export class PetstoreClient extends Context.Service<PetstoreClient>()("petstore/PetstoreClient", { make }) {
  /** A client that sends requests with `fetch`. */
  static readonly layer = (options: Options): Layer.Layer<PetstoreClient> =>
    PetstoreClient.layerHttp(options).pipe(Layer.provide(FetchHttpClient.layer))

  /**
   * A client that sends requests with `fetch`. Reads `baseUrl` from the variable `PETSTORE_URL` and `apiKey` from
   * `PETSTORE_API_KEY`, unless `config` has them. `config` can add other options.
   */
  static readonly layerConfig = (
    config: OptionsConfig<Options> = {}
  ): Layer.Layer<PetstoreClient, Config.ConfigError> => {
    const defaults = { baseUrl: Config.String("PETSTORE_URL"), apiKey: Config.Redacted("PETSTORE_API_KEY") }
    return Layer.unwrap(Effect.map(Config.unwrap<Options>({ ...defaults, ...config }), PetstoreClient.layer))
  }

  /**
   * A client that sends requests with the `HttpClient` of the context, which must not follow redirects. Effect's
   * `FetchHttpClient`, and its clients for Node, follow none for this client.
   */
  static readonly layerHttp = (options: Options): Layer.Layer<PetstoreClient, never, HttpClient.HttpClient> =>
    Layer.effect(PetstoreClient, PetstoreClient.make(options))
}
