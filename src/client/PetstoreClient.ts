/** Typed clients of the public API and the management API, derived from the contract. They run where `fetch` runs. */
import { Config, Context, Effect, Layer, Option, Redacted, Stream } from "effect"
import { Digest, SecureRandom } from "effect/crypto"
import { FetchHttpClient, HttpClient, HttpClientRequest } from "effect/http"
import {
  type HttpApi,
  HttpApiClient,
  type HttpApiEndpoint,
  type HttpApiGroup,
  HttpApiMiddleware
} from "effect/http-api"
import { AdminApi, AdminAuth } from "../api/AdminApi.ts"
import type { AuditEntry, AuditPage, AuditQuery } from "../api/Audit.ts"
import { Auth } from "../api/Auth.ts"
import { formatETag } from "../api/EntityTag.ts"
import type * as Errors from "../api/Errors.ts"

import type {
  ApiKey,
  ApiKeyDetails,
  FoundSecret,
  IssuedKey,
  KeyChange,
  KeyFilter,
  KeysPage,
  KeysQuery,
  ListedKey,
  NewKey
} from "../api/Keys.ts"
import { listLimit } from "../api/Paging.ts"
import type { ListQuery, NewPet, Pet, PetsPage, PetStatus } from "../api/Pets.ts"
import { PetstoreApi } from "../api/PetstoreApi.ts"
import type { UsageHistory } from "../api/Usage.ts"
import { describeError, PetstoreClientError, type Timeout, withOutcome } from "./CallOutcome.ts"
import { KnownLimits, type RateLimitState, shared } from "./KnownLimits.ts"

export { PetstoreClientError, type RateLimitState }

/** The errors that the contract declares for an endpoint. */
type ErrorOf<Api, Name extends string> = Api extends HttpApi.HttpApi<infer _Id, infer Groups>
  ? HttpApiEndpoint.ErrorsWithIdentifier<HttpApiGroup.Endpoints<Groups>, Name>
  : never

/** An error that any call can fail with. Its `_tag` names the kind; the response on the wire names it by `code`. */
export type AnyError = PetstoreClientError | ErrorOf<typeof PetstoreApi, "listPets">

/** The options of `PetstoreClient`. */
export interface Options extends Timeout {
  /** The URL of the service, with or without the `/v1` of its base URL (SPEC §1): `https://petstore.example`. */
  readonly baseUrl: string
  /** The API key that each request carries as a bearer token. */
  readonly apiKey: Redacted.Redacted
}

/**
 * A client of the Petstore service. It retries requests after a 429, after a fault such as 503, and without a response,
 * and waits as `Retry-After` says. Each create has an `Idempotency-Key`, so a retry cannot create a second pet.
 */
export class PetstoreClient extends Context.Service<PetstoreClient, {
  /**
   * Lists one page of pets (SPEC §4.1). `next` is the query of the next page; the last page has none.
   *
   * Fails with any of `AnyError`, for example `InvalidRequest` for a limit outside 1 to 100, or `InvalidApiKey`. It
   * fails with `RateLimitExceeded` or `ServiceUnavailable` after all retries, and with `PetstoreClientError` without a
   * response.
   *
   * @example
   * ```ts
   * const { next, pets } = yield* petstore.list({ limit: 20, status: "available" })
   * const nextPage = next === undefined ? [] : (yield* petstore.list(next)).pets
   * ```
   */
  list(query?: ListQuery): Effect.Effect<PetsPage, AnyError>

  /**
   * Streams all pets by ascending id. It requests each page only when the consumer needs it.
   *
   * Fails with any error of `list`, after the pets of the pages before. A page has 100 pets unless `pageSize` is given.
   *
   * @example
   * ```ts
   * yield* Stream.runForEach(petstore.all({ status: "sold" }), (pet) => Console.log(pet.name))
   * ```
   */
  all(options?: { readonly status?: PetStatus; readonly pageSize?: number }): Stream.Stream<Pet, AnyError>

  /**
   * Creates a pet (SPEC §4.2) once, however often the client retries the request. A second run of the effect creates
   * a second pet, because each run has a new key. To prevent this, the caller passes its own `idempotencyKey`.
   *
   * Fails with `IdempotencyKeyReused` if the key belongs to another pet, and with `InvalidRequest` for a name that the
   * service cannot store. It can also fail with any other of `AnyError`.
   *
   * @example
   * ```ts
   * const rex = yield* petstore.create(
   *   { name: "Rex", categoryId: 1n, status: "available" },
   *   { idempotencyKey: `order-${order.id}` }
   * )
   * ```
   */
  create(
    pet: NewPet,
    options?: { readonly idempotencyKey?: string }
  ): Effect.Effect<Pet, AnyError | Errors.IdempotencyKeyReused>

  /**
   * Gets the pet with this id.
   *
   * Fails with `NotFound` if there is none, with `Gone` after the removal, and with any of `AnyError`.
   *
   * @example
   * ```ts
   * const pet = yield* petstore.get(1n).pipe(Effect.catchTag("NotFound", () => Effect.undefined))
   * ```
   *
   * @deprecated The operation will be removed on 5 December 2030 (SPEC §4.3). Use `list` or `all` with a status.
   */
  get(id: bigint): Effect.Effect<Pet, AnyError | Errors.NotFound | Errors.Gone>

  /**
   * The limits of the API key from the most recent response to any client of the key in this process. `None` before the
   * first. Responses that show the limits of the client's address do not change it. It sends nothing
   * and cannot fail.
   *
   * @example
   * ```ts
   * const remaining = Option.map(yield* petstore.rateLimit, (limits) => limits.remaining)
   * ```
   */
  readonly rateLimit: Effect.Effect<Option.Option<RateLimitState>>
}>()("petstore/PetstoreClient") {
  /** A client that uses `fetch`. */
  static readonly layer = (options: Options): Layer.Layer<PetstoreClient> =>
    makeLayer(options, Effect.succeed(globalThis)).pipe(Layer.provide(FetchHttpClient.layer))

  /** A client that uses `fetch` and reads `config`: by default `PETSTORE_URL` and `PETSTORE_API_KEY`. */
  static readonly layerConfig = (
    config: Config.Wrap<Options> = {
      baseUrl: Config.String("PETSTORE_URL"),
      apiKey: Config.Redacted("PETSTORE_API_KEY")
    }
  ): Layer.Layer<PetstoreClient, Config.ConfigError> =>
    Layer.unwrap(Effect.map(Config.unwrap(config), PetstoreClient.layer))

  /** A client that uses the `HttpClient` of the context. */
  static readonly layerHttp = (options: Options): Layer.Layer<PetstoreClient, never, HttpClient.HttpClient> =>
    makeLayer(options, HttpClient.HttpClient)
}

/** Makes a client that shares what it knows about its limits with the other clients of its key on `transport`. */
const makeLayer = <R>(options: Options, transport: Effect.Effect<object, never, R>) =>
  Layer.effect(PetstoreClient, Effect.flatMap(transport, (each) => make(options, each))).pipe(
    Layer.provide(HttpApiMiddleware.layerClient(
      Auth,
      ({ next, request }) => next(HttpClientRequest.bearerToken(request, options.apiKey))
    )),
    Layer.provide(SecureRandom.layerWebCrypto)
  )

const make = Effect.fnUntraced(function*(options: Options, transport: object) {
  const random = yield* SecureRandom.SecureRandom
  const baseUrl = options.baseUrl.replace(/\/v1\/?$/, "")
  const limits = yield* shared(transport, `${baseUrl} ${Redacted.value(options.apiKey)}`)
  const api = yield* HttpApiClient.make(PetstoreApi, { baseUrl, transformClient: withOutcome(options, limits) })

  // Callers without `exactOptionalPropertyTypes` may pass fields that are undefined. They count as absent.
  const list: PetstoreClient["Service"]["list"] = ({ cursor, limit, status } = {}) =>
    describeError(api.listPets({
      query: {
        ...limit !== undefined && { limit },
        ...status !== undefined && { status },
        ...cursor !== undefined && { cursor }
      }
    }))

  return PetstoreClient.of({
    list,
    all: ({ pageSize = listLimit.maximum, status } = {}) =>
      Stream.paginate<ListQuery, Pet, AnyError>(
        { limit: pageSize, ...status && { status } },
        (query) => Effect.map(list(query), ({ next, pets }) => [pets, Option.fromUndefinedOr(next)] as const)
      ),
    create: ({ categoryId, name, status }, { idempotencyKey } = {}) =>
      Effect.flatMap(
        idempotencyKey === undefined ? random.uuidV7() : Effect.succeed(idempotencyKey),
        (key) =>
          describeError(api.createPet({
            payload: { name, categoryId, ...status !== undefined && { status } },
            headers: { "idempotency-key": key }
          }))
      ),
    get: (petId) => describeError(api.getPet({ params: { petId } })),
    rateLimit: Effect.sync(() => Option.fromUndefinedOr(limits.latest))
  })
})

/** An error that any call to the management API can fail with. */
export type AnyAdminError = PetstoreClientError | ErrorOf<typeof AdminApi, "listKeys">

/** A key, and the one of its secrets that `whose` looked for. */
export interface FoundKey extends ListedKey {
  readonly secret: FoundSecret
}

/** The options of `AdminClient`. */
export interface AdminOptions extends Timeout {
  /** The URL of the management port, such as `http://127.0.0.1:9090`. */
  readonly baseUrl: string
  /** The admin token of the service (`ADMIN_TOKEN`). */
  readonly token: Redacted.Redacted
}

/**
 * A client of the management API of a running service. It retries a request that changes something only after a 429,
 * which says that the service did nothing.
 */
export class AdminClient extends Context.Service<AdminClient, {
  /**
   * Issues a key. Only this response has its secret.
   *
   * Fails with any of `AnyAdminError`: `InvalidRequest` for limits that do not fit the plan, `InvalidAdminToken`,
   * `TooManyAttempts`, and `PetstoreClientError` without a response.
   *
   * @example
   * ```ts
   * const issued = yield* admin.issue({ name: "shop", plan: "pro" })
   * const secret = Redacted.value(issued.key)
   * ```
   */
  issue(key: NewKey): Effect.Effect<IssuedKey, AnyAdminError>
  /**
   * Lists one page of the keys, oldest first: all keys, or those that meet the filter. `next` is the query of the next
   * page; the last page has none. Fails with any of `AnyAdminError`.
   *
   * @example
   * ```ts
   * const { keys, next } = yield* admin.list({ limit: 20, plan: "pro" })
   * ```
   */
  list(query?: KeysQuery): Effect.Effect<KeysPage, AnyAdminError>
  /**
   * Streams all keys that meet the filter, oldest first. It requests each page only when the consumer needs it: by
   * default 100 keys. Fails with any of `AnyAdminError`, after the keys of the pages before.
   *
   * @example
   * ```ts
   * yield* Stream.runForEach(admin.all({ state: "active" }), (key) => Console.log(key.name))
   * ```
   */
  all(options?: KeyFilter & { readonly pageSize?: number }): Stream.Stream<ListedKey, AnyAdminError>
  /**
   * Returns the key to which a current or former secret belongs, and whether the secret still works. The request
   * contains only the SHA-256 of the secret. Fails with any of `AnyAdminError`.
   *
   * @example
   * ```ts
   * const leaked = yield* admin.whose(secret)
   * if (Option.isSome(leaked)) yield* admin.rotate(leaked.value.id)
   * ```
   */
  whose(secret: Redacted.Redacted): Effect.Effect<Option.Option<FoundKey>, AnyAdminError>
  /**
   * Returns a key, its remaining requests and its ban. Fails with `NotFound` and any of `AnyAdminError`.
   *
   * @example
   * ```ts
   * const { usage } = yield* admin.find(id)
   * ```
   */
  find(id: string): Effect.Effect<ApiKeyDetails, AnyAdminError | Errors.NotFound>
  /**
   * Returns the requests of a key in each of the last 60 minutes and 720 hours, oldest first. An interval without
   * requests is absent. Fails with `NotFound` and any of `AnyAdminError`.
   *
   * @example
   * ```ts
   * const { hours } = yield* admin.usage(id)
   * const total = hours.reduce((sum, { allowed }) => sum + allowed, 0)
   * ```
   */
  usage(id: string): Effect.Effect<UsageHistory, AnyAdminError | Errors.NotFound>
  /**
   * Changes the named fields of a key. `null` removes its expiry. With a `version`, the key changes only if it has this
   * version.
   *
   * Fails with `NotFound`, with `Conflict` for a revoked key, and with `PreconditionFailed` for another version. It
   * fails with `InvalidRequest` for limits that do not fit the plan, and with any other of `AnyAdminError`.
   *
   * @example
   * ```ts
   * const key = yield* admin.update(id, { plan: "pro" }, { version: 3 })
   * ```
   */
  update(
    id: string,
    change: KeyChange,
    options?: { readonly version?: number }
  ): Effect.Effect<ApiKey, AnyAdminError | Errors.NotFound | Errors.Conflict | Errors.PreconditionFailed>
  /**
   * Replaces the secret of a key. The old secret works for the grace period: 0 seconds by default.
   * Fails with `NotFound`, with `Conflict` for a revoked or expired key, and with any of `AnyAdminError`.
   *
   * @example
   * ```ts
   * const { key } = yield* admin.rotate(id, { gracePeriodSeconds: 3600 })
   * ```
   */
  rotate(
    id: string,
    options?: { readonly gracePeriodSeconds?: number }
  ): Effect.Effect<IssuedKey, AnyAdminError | Errors.NotFound | Errors.Conflict>
  /**
   * Revokes a key. This cannot be undone. Fails with `NotFound`, with `Conflict` for a key that is revoked already, and
   * with any of `AnyAdminError`.
   *
   * @example
   * ```ts
   * yield* admin.revoke(id)
   * ```
   */
  revoke(id: string): Effect.Effect<void, AnyAdminError | Errors.NotFound | Errors.Conflict>
  /**
   * Lifts the ban of a key. Fails with `NotFound` and any of `AnyAdminError`.
   *
   * @example
   * ```ts
   * yield* admin.unban(id)
   * ```
   */
  unban(id: string): Effect.Effect<void, AnyAdminError | Errors.NotFound>
  /**
   * Lists one page of the audit log, newest entry first. `next` is the query of the next page.
   * Fails with any of `AnyAdminError`.
   *
   * @example
   * ```ts
   * const { entries, next } = yield* admin.audit({ key: id })
   * ```
   */
  audit(query?: AuditQuery): Effect.Effect<AuditPage, AnyAdminError>
  /**
   * Streams the audit log of a `key` or of all, newest entry first. It requests each page only when it is needed.
   * Fails with any of `AnyAdminError`, after the entries of the pages before.
   *
   * @example
   * ```ts
   * yield* Stream.runForEach(admin.auditAll(), (entry) => Console.log(entry.action))
   * ```
   */
  auditAll(
    options?: { readonly key?: string; readonly pageSize?: number }
  ): Stream.Stream<AuditEntry, AnyAdminError>
}>()("petstore/AdminClient") {
  /** A client that uses `fetch`. */
  static readonly layer = (options: AdminOptions): Layer.Layer<AdminClient> =>
    AdminClient.layerHttp(options).pipe(Layer.provide(FetchHttpClient.layer))

  /** A client that uses `fetch` and reads `config`: by default `PETSTORE_ADMIN_URL` and `ADMIN_TOKEN`. */
  static readonly layerConfig = (
    config: Config.Wrap<AdminOptions> = {
      baseUrl: Config.String("PETSTORE_ADMIN_URL"),
      token: Config.Redacted("ADMIN_TOKEN")
    }
  ): Layer.Layer<AdminClient, Config.ConfigError> => Layer.unwrap(Effect.map(Config.unwrap(config), AdminClient.layer))

  /** A client that uses the `HttpClient` of the context. */
  static readonly layerHttp = (options: AdminOptions): Layer.Layer<AdminClient, never, HttpClient.HttpClient> =>
    Layer.effect(AdminClient, makeAdmin(options)).pipe(
      Layer.provide(HttpApiMiddleware.layerClient(
        AdminAuth,
        ({ next, request }) => next(HttpClientRequest.bearerToken(request, options.token))
      )),
      Layer.provide(Digest.layerWebCrypto)
    )
}

const makeAdmin = Effect.fnUntraced(function*(options: AdminOptions) {
  const transformClient = withOutcome(options, new KnownLimits())
  const digest = yield* Digest.Digest
  const api = yield* HttpApiClient.make(AdminApi, { baseUrl: options.baseUrl, transformClient })
  const list: AdminClient["Service"]["list"] = (query = {}) => describeError(api.listKeys({ query }))
  const audit: AdminClient["Service"]["audit"] = (query = {}) => describeError(api.listAudit({ query }))
  return AdminClient.of({
    audit,
    auditAll: ({ key, pageSize = listLimit.maximum } = {}) =>
      Stream.paginate<AuditQuery, AuditEntry, AnyAdminError>(
        { limit: pageSize, ...key !== undefined && { key } },
        (query) => Effect.map(audit(query), ({ entries, next }) => [entries, Option.fromUndefinedOr(next)] as const)
      ),
    issue: (payload) => describeError(api.issueKey({ payload })),
    list,
    all: ({ pageSize = listLimit.maximum, ...filter } = {}) =>
      Stream.paginate<KeysQuery, ListedKey, AnyAdminError>(
        { ...filter, limit: pageSize },
        (query) => Effect.map(list(query), ({ keys, next }) => [keys, Option.fromUndefinedOr(next)] as const)
      ),
    whose: Effect.fnUntraced(function*(secret) {
      const secretHash = yield* digest.digestHex(Digest.sha256, new TextEncoder().encode(Redacted.value(secret)))
      const [key] = (yield* list({ secretHash })).keys
      return key?.secret === undefined ? Option.none() : Option.some({ ...key, secret: key.secret })
    }),
    find: (id) => describeError(api.showKey({ params: { id } })),
    usage: (id) => describeError(api.showUsage({ params: { id } })),
    update: (id, payload, { version } = {}) =>
      describeError(
        api.updateKey({
          params: { id },
          payload,
          headers: { ...version !== undefined && { "if-match": [formatETag(version)] } }
        })
      ),
    rotate: (id, payload = {}) => describeError(api.rotateKey({ params: { id }, payload })),
    revoke: (id) => describeError(api.revokeKey({ params: { id } })),
    unban: (id) => describeError(api.unbanKey({ params: { id } }))
  })
})
