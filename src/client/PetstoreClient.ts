/** The typed client of the public API, derived from the contract. It runs where `fetch` runs. */
import { Config, Context, Effect, Layer, Option, Stream } from "effect"
import { SecureRandom } from "effect/crypto"
import { FetchHttpClient, HttpClient } from "effect/http"
import { HttpApiClient, HttpApiMiddleware } from "effect/http-api"
import type * as Errors from "../api/Errors.ts"
import { Auth } from "../api/OperationMiddleware.ts"
import { listLimit } from "../api/Paging.ts"
import type { ListQuery, NewPet, Pet, PetsGroup, PetsPage, PetStatus } from "../api/Pets.ts"
import { PetstoreApi } from "../api/PetstoreApi.ts"
import { authorize, makeCaller, omitUndefined, parseBaseUrl } from "./ClientCalls.ts"
import type { CallOptions, ClientOptions, ErrorOf, Optional, Secret } from "./ClientCalls.ts"
import type { PetstoreClientError } from "./ClientError.ts"
import { RateLimits, type RateLimitState } from "./RateLimits.ts"

/** An error that any call can fail with. Its `_tag` names the kind; the response on the wire names it by `code`. */
export type AnyError = PetstoreClientError | ErrorOf<typeof PetstoreApi, "listPets">

/** The options of `PetstoreClient`. The URL can end with the `/v1` of the base URL (SPEC §1). */
export interface Options extends ClientOptions {
  /** The API key that each request carries as a bearer token. */
  readonly apiKey: Secret
}

/** The options of `all`. */
export interface AllQuery {
  readonly status?: PetStatus | undefined
  /** The pets of one request: 100 by default. */
  readonly pageSize?: number | undefined
}

/** The options of `create`. */
export interface CreateOptions extends CallOptions {
  /** Calls with the same key create one pet. The default is a new key for each run of the effect. */
  readonly idempotencyKey?: string | undefined
}

/**
 * A client of the Petstore service. It retries requests after a 429, after a fault such as 503, and without a response,
 * and waits as `Retry-After` says. Each create has an `Idempotency-Key`, so a retry cannot create a second pet.
 */
export class PetstoreClient extends Context.Service<PetstoreClient, {
  /**
   * Lists one page of pets (SPEC §4.1). `next` is the query of the next page; the last page has none.
   *
   * Fails with any of `AnyError`, for example `InvalidApiKey`: with `RateLimitExceeded` or `ServiceUnavailable` after
   * all retries, and with `PetstoreClientError` without a response, or for a `limit` outside 1 to 100.
   *
   * @example
   * const { next, pets } = yield* petstore.list({ limit: 20, status: "available" })
   * const nextPage = next === undefined ? [] : (yield* petstore.list(next)).pets
   */
  list(query?: Optional<ListQuery>, options?: CallOptions): Effect.Effect<PetsPage, AnyError>
  /**
   * Streams all pets by ascending id. It requests each page, by default of 100 pets, when the consumer needs it.
   * Fails with any error of `list`, after the pets of the pages before.
   *
   * @example
   * yield* Stream.runForEach(petstore.all({ status: "sold" }), (pet) => Console.log(pet.name))
   */
  all(query?: AllQuery, options?: CallOptions): Stream.Stream<Pet, AnyError>
  /**
   * Creates a pet (SPEC §4.2) once, however often the client retries the request. A second run of the effect creates
   * a second pet, because each run has a new key. To prevent this, the caller passes its own `idempotencyKey`.
   *
   * Fails with `IdempotencyKeyReused` if the key belongs to another pet, and with any of `AnyError`.
   *
   * @example
   * const rex = yield* petstore.create(
   *   { name: "Rex", categoryId: 1n, status: "available" },
   *   { idempotencyKey: `order-${order.id}` }
   * )
   */
  create(pet: Optional<NewPet>, options?: CreateOptions): Effect.Effect<Pet, AnyError | Errors.IdempotencyKeyReused>
  /**
   * Gets the pet with this id. Fails with `NotFound` if there is none, with `Gone` after the removal, and with any of
   * `AnyError`.
   *
   * @example
   * const pet = yield* petstore.get(1n).pipe(Effect.catchTag("NotFound", () => Effect.undefined))
   *
   * @deprecated The operation will be removed on 5 December 2030 (SPEC §4.3). Use `list` or `all` with a status.
   */
  get(id: bigint, options?: CallOptions): Effect.Effect<Pet, AnyError | Errors.NotFound | Errors.Gone>
  /**
   * The limits of the API key from the most recent response to this client. `None` before the first. Responses that
   * show the limits of the client's address do not change it. It sends nothing and cannot fail.
   */
  readonly rateLimit: Effect.Effect<Option.Option<RateLimitState>>
}>()("petstore/PetstoreClient") {
  /** A client that uses `fetch`. */
  static readonly layer = (options: Options): Layer.Layer<PetstoreClient> =>
    PetstoreClient.layerHttp(options).pipe(Layer.provide(FetchHttpClient.layer))

  /** A client that uses `fetch` and reads `config`: by default `PETSTORE_URL` and `PETSTORE_API_KEY`. */
  static readonly layerConfig = (
    config: Config.Wrap<Options> = {
      baseUrl: Config.URL("PETSTORE_URL"),
      apiKey: Config.Redacted("PETSTORE_API_KEY")
    }
  ): Layer.Layer<PetstoreClient, Config.ConfigError> =>
    Layer.unwrap(Effect.map(Config.unwrap(config), PetstoreClient.layer))

  /** A client that uses the `HttpClient` of the context. */
  static readonly layerHttp = (options: Options): Layer.Layer<PetstoreClient, never, HttpClient.HttpClient> =>
    Layer.effect(PetstoreClient, make(options)).pipe(
      Layer.provide(HttpApiMiddleware.layerClient(Auth, authorize(options.apiKey))),
      Layer.provide(SecureRandom.layerWebCrypto)
    )
}

const decoder = <const Name extends keyof typeof PetsGroup["endpoints"]>(endpoint: Name) =>
  HttpApiClient.decodeResponse(PetstoreApi, { group: "pets", endpoint })
const decode = { list: decoder("listPets"), create: decoder("createPet"), get: decoder("getPet") }
const responseMode = "response-only"

const make = Effect.fnUntraced(function*(clientOptions: Options) {
  const random = yield* SecureRandom.SecureRandom
  const api = yield* HttpApiClient.make(PetstoreApi, { baseUrl: parseBaseUrl(clientOptions.baseUrl) })
  const limits = new RateLimits()
  const call = makeCaller("PetstoreClient", clientOptions, limits)

  const list: PetstoreClient["Service"]["list"] = (query = {}, options) =>
    call("list", api.listPets({ query: omitUndefined(query), responseMode }), decode.list, true, options)

  return PetstoreClient.of({
    list,
    all: ({ pageSize = listLimit.maximum, status } = {}, options) =>
      Stream.paginate<Optional<ListQuery>, Pet, AnyError>(
        { limit: pageSize, status },
        (query) => Effect.map(list(query, options), ({ next, pets }) => [pets, Option.fromUndefinedOr(next)] as const)
      ),
    create: Effect.fnUntraced(function*(pet, { idempotencyKey, ...options } = {}) {
      const headers = { "idempotency-key": idempotencyKey ?? (yield* random.uuidV7()) }
      const request = api.createPet({ payload: omitUndefined(pet), headers, responseMode })
      return (yield* call("create", request, decode.create, true, options)).pet
    }),
    get: (petId, options) => call("get", api.getPet({ params: { petId }, responseMode }), decode.get, true, options),
    rateLimit: Effect.sync(() => Option.fromUndefinedOr(limits.latest))
  })
})
