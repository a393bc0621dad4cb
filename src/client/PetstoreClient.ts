/** Typed clients, derived from the contract. They run wherever `fetch` does. */
import { Config, Context, Effect, Layer, Option, type Redacted, Stream } from "effect"
import { SecureRandom } from "effect/crypto"
import { FetchHttpClient, type HttpClient, HttpClientRequest } from "effect/http"
import { HttpApiClient, HttpApiMiddleware } from "effect/http-api"
import { AdminApi, AdminAuth } from "../api/AdminApi.ts"
import { Auth } from "../api/Auth.ts"
import type * as Errors from "../api/Errors.ts"
import type { ApiKey, ApiKeyDetails, IssuedKey, KeysPage, KeysQuery, NewKey } from "../api/Keys.ts"
import { listLimit } from "../api/Paging.ts"
import type { ListQuery, NewPet, Pet, PetsPage, PetStatus } from "../api/Pets.ts"
import { PetstoreApi } from "../api/PetstoreApi.ts"
import { describeError, PetstoreClientError, type Timeout, withOutcome } from "./CallOutcome.ts"

export { PetstoreClientError }

/** What any call may fail with: told apart by `_tag`, or on the wire by `code`. */
export type AnyError =
  | PetstoreClientError
  | Errors.InvalidRequest
  | Errors.MissingApiKey
  | Errors.InvalidApiKey
  | Errors.PayloadTooLarge
  | Errors.UnsupportedMediaType
  | Errors.ExpectationFailed
  | Errors.RequestTimeout
  | Errors.RateLimitExceeded
  | Errors.ApiKeyBanned
  | Errors.HeaderFieldsTooLarge
  | Errors.InternalError
  | Errors.ServiceUnavailable

/** What the last answer said of the limits (SPEC §8): requests, and when the window ends, in Unix seconds. */
export interface RateLimitState {
  readonly limit: number
  readonly remaining: number
  readonly resetAt: number
}

export interface Options extends Timeout {
  /** Where the service is: `https://petstore.example`, or its base address that ends in `/v1` (SPEC §1). */
  readonly baseUrl: string
  readonly apiKey: Redacted.Redacted
}

/**
 * The Petstore service. What comes back as 429 or 503 is sent again when `Retry-After` says so, what gets no answer is
 * sent again where that does no harm; additions are named by an `Idempotency-Key`, so that it does none there.
 */
export class PetstoreClient extends Context.Service<PetstoreClient, {
  /** One page (SPEC §4.1): `next` is the query of the page after it. */
  list(query?: ListQuery): Effect.Effect<PetsPage, AnyError>

  /** All animals by ascending id, page after page, as they are asked for. */
  all(options?: { readonly status?: PetStatus; readonly pageSize?: number }): Stream.Stream<Pet, AnyError>

  /**
   * Adds an animal once (SPEC §4.2), however often it has to be sent. Whoever runs the effect again adds another,
   * unless it is given an `idempotencyKey` of theirs.
   */
  create(
    pet: NewPet,
    options?: { readonly idempotencyKey?: string }
  ): Effect.Effect<Pet, AnyError | Errors.IdempotencyKeyReused>

  /** @deprecated It will be removed on 5 December 2030 (SPEC §4.3). Use `list` or `all` with a status. */
  get(id: bigint): Effect.Effect<Pet, AnyError | Errors.NotFound | Errors.Gone>

  /** What the last answer said of the limits; nothing before the first. */
  readonly rateLimit: Effect.Effect<Option.Option<RateLimitState>>
}>()("petstore/PetstoreClient") {
  /** Over `fetch`. */
  static readonly layer = (options: Options): Layer.Layer<PetstoreClient> =>
    PetstoreClient.layerHttp(options).pipe(Layer.provide(FetchHttpClient.layer))

  /** Over `fetch`, from `PETSTORE_URL` and `PETSTORE_API_KEY` unless `config` says otherwise. */
  static readonly layerConfig = (
    config: Config.Wrap<Options> = {
      baseUrl: Config.String("PETSTORE_URL"),
      apiKey: Config.Redacted("PETSTORE_API_KEY")
    }
  ): Layer.Layer<PetstoreClient, Config.ConfigError> =>
    Layer.unwrap(Effect.map(Config.unwrap(config), PetstoreClient.layer))

  /** Over the `HttpClient` that is there. */
  static readonly layerHttp = (options: Options): Layer.Layer<PetstoreClient, never, HttpClient.HttpClient> =>
    Layer.effect(PetstoreClient, make(options)).pipe(
      Layer.provide(HttpApiMiddleware.layerClient(
        Auth,
        ({ next, request }) => next(HttpClientRequest.bearerToken(request, options.apiKey))
      )),
      Layer.provide(SecureRandom.layerWebCrypto)
    )
}

const make = Effect.fnUntraced(function*(options: Options) {
  const random = yield* SecureRandom.SecureRandom
  let state: RateLimitState | undefined

  const transformClient = withOutcome(options, ({ headers }) => {
    state = rateLimitOf(headers) ?? state
  })
  const baseUrl = options.baseUrl.replace(/\/v1\/?$/, "")
  const api = yield* HttpApiClient.make(PetstoreApi, { baseUrl, transformClient })

  const list: PetstoreClient["Service"]["list"] = (query = {}) => describeError(api.listPets({ query }))

  return PetstoreClient.of({
    list,
    all: ({ pageSize, status } = {}) =>
      Stream.paginate(
        { ...pageSize !== undefined && { limit: pageSize }, ...status && { status } },
        (query) => Effect.map(list(query), ({ next, pets }) => [pets, Option.fromUndefinedOr(next)] as const)
      ),
    create: (pet, { idempotencyKey } = {}) =>
      Effect.flatMap(
        idempotencyKey === undefined ? random.uuidV7() : Effect.succeed(idempotencyKey),
        (key) => describeError(api.createPet({ payload: pet, headers: { "idempotency-key": key } }))
      ),
    get: (petId) => describeError(api.getPet({ params: { petId } })),
    rateLimit: Effect.sync(() => Option.fromUndefinedOr(state))
  })
})

const rateLimitOf = (headers: Readonly<Record<string, string | undefined>>): RateLimitState | undefined => {
  const [limit = NaN, remaining = NaN, resetAt = NaN] = ["limit", "remaining", "reset"].map((name) =>
    Number(headers[`x-ratelimit-${name}`] ?? NaN)
  )
  return Number.isNaN(limit + remaining + resetAt) ? undefined : { limit, remaining, resetAt }
}

/** What any call to the management port may fail with. */
export type AnyAdminError =
  | PetstoreClientError
  | Errors.InvalidRequest
  | Errors.MissingAdminToken
  | Errors.InvalidAdminToken
  | Errors.RequestTimeout
  | Errors.PayloadTooLarge
  | Errors.UnsupportedMediaType
  | Errors.ExpectationFailed
  | Errors.MisdirectedRequest
  | Errors.TooManyAttempts
  | Errors.HeaderFieldsTooLarge
  | Errors.InternalError
  | Errors.ServiceUnavailable

export interface AdminOptions extends Timeout {
  /** The address of the management port. */
  readonly baseUrl: string
  /** The service's `ADMIN_TOKEN`. */
  readonly token: Redacted.Redacted
}

/**
 * The management port of a running service. What makes or ends something is sent again only after an answer that says
 * that nothing was done.
 */
export class AdminClient extends Context.Service<AdminClient, {
  /** Issues a key: its secret is in the answer, and nowhere else. */
  issue(key: NewKey): Effect.Effect<IssuedKey, AnyAdminError>
  /** One page of the keys that were ever issued, oldest first: `next` is the query of the page after it. */
  list(query?: KeysQuery): Effect.Effect<KeysPage, AnyAdminError>
  /** All keys, oldest first, page after page, as they are asked for. A page has 100 keys unless `pageSize` is given. */
  all(options?: { readonly pageSize?: number }): Stream.Stream<ApiKey, AnyAdminError>
  /** A key, what it has left of its limits, and whether it is banned. */
  find(id: string): Effect.Effect<ApiKeyDetails, AnyAdminError | Errors.NotFound>
  /** Gives a key a new secret; the old one works for the grace period. */
  rotate(
    id: string,
    options?: { readonly gracePeriodSeconds?: number }
  ): Effect.Effect<IssuedKey, AnyAdminError | Errors.NotFound | Errors.Conflict>
  /** Ends a key for good. */
  revoke(id: string): Effect.Effect<void, AnyAdminError | Errors.NotFound | Errors.Conflict>
  /** Lifts the ban of a key. */
  unban(id: string): Effect.Effect<void, AnyAdminError | Errors.NotFound>
}>()("petstore/AdminClient") {
  /** Over `fetch`. */
  static readonly layer = (options: AdminOptions): Layer.Layer<AdminClient> =>
    AdminClient.layerHttp(options).pipe(Layer.provide(FetchHttpClient.layer))

  /** Over `fetch`, from `PETSTORE_ADMIN_URL` and `ADMIN_TOKEN` unless `config` says otherwise. */
  static readonly layerConfig = (
    config: Config.Wrap<AdminOptions> = {
      baseUrl: Config.String("PETSTORE_ADMIN_URL"),
      token: Config.Redacted("ADMIN_TOKEN")
    }
  ): Layer.Layer<AdminClient, Config.ConfigError> => Layer.unwrap(Effect.map(Config.unwrap(config), AdminClient.layer))

  /** Over the `HttpClient` that is there. */
  static readonly layerHttp = (options: AdminOptions): Layer.Layer<AdminClient, never, HttpClient.HttpClient> =>
    Layer.effect(AdminClient, makeAdmin(options)).pipe(
      Layer.provide(HttpApiMiddleware.layerClient(
        AdminAuth,
        ({ next, request }) => next(HttpClientRequest.bearerToken(request, options.token))
      ))
    )
}

const makeAdmin = Effect.fnUntraced(function*(options: AdminOptions) {
  const transformClient = withOutcome(options, () => {})
  const api = yield* HttpApiClient.make(AdminApi, { baseUrl: options.baseUrl, transformClient })
  const list: AdminClient["Service"]["list"] = (query = {}) => describeError(api.listKeys({ query }))
  return AdminClient.of({
    issue: (payload) => describeError(api.issueKey({ payload })),
    list,
    all: ({ pageSize = listLimit.maximum } = {}) =>
      Stream.paginate<KeysQuery, ApiKey, AnyAdminError>(
        { limit: pageSize },
        (query) => Effect.map(list(query), ({ keys, next }) => [keys, Option.fromUndefinedOr(next)] as const)
      ),
    find: (id) => describeError(api.showKey({ params: { id } })),
    rotate: (id, payload = {}) => describeError(api.rotateKey({ params: { id }, payload })),
    revoke: (id) => describeError(api.revokeKey({ params: { id } })),
    unban: (id) => describeError(api.unbanKey({ params: { id } }))
  })
})
