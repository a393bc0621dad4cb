import { Config, Context, Duration, Effect, Layer, Option, Redacted, Stream } from "effect"
import { Digest } from "effect/crypto"
import { FetchHttpClient, type HttpClient } from "effect/http"
import { HttpApiClient, HttpApiMiddleware } from "effect/http-api"
import { AdminApi, AdminAuth, type Session } from "../api/AdminApi.ts"
import type { AuditEntry, AuditPage, AuditQuery } from "../api/Audit.ts"
import { formatETag } from "../api/EntityTags.ts"
import type * as Keys from "../api/KeySchemas.ts"
import { listLimit } from "../api/Paging.ts"
import type { KeyTotals, TopUsageQuery, UsageHistory } from "../api/Usage.ts"
import { makeCall, noopMiddleware, type OperationError, streamPages, type StreamQuery } from "./ClientCalls.ts"
import type { PetstoreClientError } from "./ClientError.ts"
import { type CallOptions, type ClientOptions, makeTransport, omitUndefined } from "./Transport.ts"
import type { Optional, OptionsConfig, Secret } from "./Transport.ts"

type ErrorOf<Operation extends string> = PetstoreClientError | OperationError<typeof AdminApi, Operation>

/** The errors that every call can fail with. */
export type AnyAdminError = ErrorOf<"listKeys">

/** The errors of `issue`. */
export type IssueKeyError = ErrorOf<"issueKey">

/** The errors of `get`, `usage` and `unban`. */
export type GetKeyError = ErrorOf<"showKey">

/**
 * The errors of `update`, `rotate`, `endFormerSecrets` and `revoke`. Errors of a request body, such as
 * `UnsupportedMediaType`, occur only in `update` and `rotate`.
 */
export type ChangeKeyError = ErrorOf<"updateKey">

/** The key that a secret belongs to. */
export interface FoundKey extends Keys.ListedKey {
  /** Whether the secret works and, if it is a former one, until when. */
  readonly secret: Keys.FoundSecret
}

/** The options of `issue`. */
export interface IssueOptions extends CallOptions {
  /** If an earlier call with this idempotency key issued a key, a valid call issues none, and fails with `Conflict`. */
  readonly idempotencyKey?: string | undefined
}

/** The options of calls that change a key. */
export interface ChangeOptions extends CallOptions {
  /** Optimistic locking: the change fails with `PreconditionFailed` if the key no longer has this version. */
  readonly version?: number | undefined
}

/** The options of `rotate`. */
export interface RotateOptions extends ChangeOptions {
  /**
   * Former secrets keep working for at most this time: whole seconds, up to 30 days. The default is 0. Other processes
   * of the service notice the rotation within a second.
   */
  readonly gracePeriod?: Duration.Input | undefined
}

/** The options of a client. `baseUrl` is the URL of the management port, such as `http://127.0.0.1:9090`. */
export interface AdminOptions extends ClientOptions {
  /** The admin token, which the client sends as a bearer token. */
  readonly token: Secret
}

const ofKey = (id: string) => ({ "key.id": id })

const changeOf = (id: string, { version }: ChangeOptions = {}) => ({
  params: { id },
  headers: version === undefined ? {} : { "if-match": [formatETag(version)] }
})

const clientName = "AdminClient"

const make = Effect.fnUntraced(function*(clientOptions: AdminOptions) {
  const digest = yield* Digest.Digest
  const { httpClient } = yield* makeTransport(
    clientName,
    clientOptions,
    clientOptions.token,
    ({ method }) => method === "GET"
  )
  const api = yield* HttpApiClient.makeWith(AdminApi, { httpClient })
  const call = makeCall(clientName)

  const list = (
    query: Optional<Keys.KeysQuery> = {},
    options?: CallOptions
  ): Effect.Effect<Keys.KeysPage, AnyAdminError> => call("list", api.listKeys({ query: omitUndefined(query) }), options)

  const audit = (query: Optional<AuditQuery> = {}, options?: CallOptions): Effect.Effect<AuditPage, AnyAdminError> =>
    call("audit", api.listAudit({ query: omitUndefined(query) }), options)

  return {
    /**
     * Issues an API key. Only this call returns its secret. A second call with the same `idempotencyKey` fails with a
     * `Conflict` whose message names the key that exists.
     *
     * @example
     * const { id, key } = yield* admin.issue({ name: "shop", plan: "pro" }, { idempotencyKey: "order-7" })
     */
    issue: (
      key: Optional<Keys.NewKey>,
      options: IssueOptions = {}
    ): Effect.Effect<Keys.IssuedKey, IssueKeyError> => {
      const headers = options.idempotencyKey === undefined ? {} : { "idempotency-key": options.idempotencyKey }
      return call("issue", api.issueKey({ payload: omitUndefined(key), headers }), options)
    },
    /** Gets one page of keys, by default oldest first. With `search`, the keys are in the order of their names. */
    list,
    /**
     * Streams all matching keys, and requests each page only when the stream needs it.
     *
     * @example
     * yield* Stream.runForEach(admin.all({ state: "active" }), (key) => Console.log(key.name))
     */
    all: (
      query: StreamQuery<Keys.KeysQuery> = {},
      options?: CallOptions
    ): Stream.Stream<Keys.ListedKey, AnyAdminError> => {
      const { pageSize: limit = listLimit.maximum, ...filter } = query
      const pages = streamPages(`${clientName}.all`, list, { ...filter, limit }, options)
      return Stream.flattenIterable(Stream.map(pages, ({ keys }) => keys))
    },
    /**
     * Finds the API key that a current or former secret belongs to. The request contains only the SHA-256 of the
     * secret.
     *
     * @example
     * const leaked = yield* admin.whose(secret)
     * if (Option.isSome(leaked)) yield* admin.rotate(leaked.value.id)
     */
    whose: (secret: Redacted.Redacted, options?: CallOptions): Effect.Effect<Option.Option<FoundKey>, AnyAdminError> =>
      Effect.gen(function*() {
        const secretHash = yield* digest.digestHex(Digest.sha256, new TextEncoder().encode(Redacted.value(secret)))
        const [key] = (yield* list({ secretHash }, options)).keys
        return key?.secret === undefined ? Option.none() : Option.some({ ...key, secret: key.secret })
      }),
    /** Gets a key with its remaining requests, its ban, and the former secrets in their grace period. */
    get: (id: string, options?: CallOptions): Effect.Effect<Keys.ApiKeyDetails, GetKeyError> =>
      call("get", api.showKey({ params: { id } }), options, ofKey(id)),
    /**
     * Gets a key's request counts by minute for the last 60 minutes and by hour for up to 720 hours, oldest first.
     * Intervals without requests are absent.
     */
    usage: (id: string, options?: CallOptions): Effect.Effect<UsageHistory, GetKeyError> =>
      call("usage", api.showUsage({ params: { id } }), options, ofKey(id)),
    /** Lists the keys with the most requests. Defaults: ten keys, by `allowed` requests in the current hour of UTC. */
    topUsage: (
      query: Optional<TopUsageQuery> = {},
      options?: CallOptions
    ): Effect.Effect<ReadonlyArray<KeyTotals>, AnyAdminError> =>
      call("topUsage", api.topUsage({ query: omitUndefined(query) }), options),
    /**
     * Changes the given fields of a key. `expiresAt: null` removes the expiry. `enabled: false` makes the service
     * reject the key with 401. A new plan replaces the limits. Fails with `Conflict` if the key is revoked.
     *
     * @example
     * const key = yield* admin.update(id, { plan: "pro" }, { version: 3 })
     */
    update: (
      id: string,
      change: Optional<Keys.KeyChange>,
      options?: ChangeOptions
    ): Effect.Effect<Keys.ApiKey, ChangeKeyError> =>
      call("update", api.updateKey({ ...changeOf(id, options), payload: omitUndefined(change) }), options, ofKey(id)),
    /**
     * Replaces the secret of a key. Former secrets work until the end of `gracePeriod` at most. Fails with `Conflict`
     * if the key is revoked or expired, or would have more than five working secrets.
     *
     * @example
     * const { key } = yield* admin.rotate(id, { gracePeriod: "1 hour" })
     */
    rotate: (id: string, options: RotateOptions = {}): Effect.Effect<Keys.IssuedKey, ChangeKeyError> => {
      const payload = { gracePeriodSeconds: Duration.toSeconds(options.gracePeriod ?? 0) }
      return call("rotate", api.rotateKey({ ...changeOf(id, options), payload }), options, ofKey(id))
    },
    /** Ends the grace periods of all former secrets, so that only the current secret of the key works. */
    endFormerSecrets: (id: string, options?: ChangeOptions): Effect.Effect<void, ChangeKeyError> =>
      call("endFormerSecrets", api.endFormerSecrets(changeOf(id, options)), options, ofKey(id)),
    /** Revokes a key for good. Fails with `Conflict` if it is already revoked. */
    revoke: (id: string, options?: ChangeOptions): Effect.Effect<void, ChangeKeyError> =>
      call("revoke", api.revokeKey(changeOf(id, options)), options, ofKey(id)),
    /**
     * Ends the ban of a key. Without Redis, or while Redis does not respond, other processes can keep the ban. Limits
     * that the key has used up stay used up.
     */
    unban: (id: string, options?: CallOptions): Effect.Effect<void, GetKeyError> =>
      call("unban", api.unbanKey({ params: { id } }), options, ofKey(id)),
    /** Gets one page of the audit log, newest first. */
    audit,
    /** Streams all matching audit entries, newest first, and requests each page only when the stream needs it. */
    auditAll: (
      query: StreamQuery<AuditQuery> = {},
      options?: CallOptions
    ): Stream.Stream<AuditEntry, AnyAdminError> => {
      const { pageSize: limit = listLimit.maximum, ...filter } = query
      const pages = streamPages(`${clientName}.auditAll`, audit, { ...filter, limit }, options)
      return Stream.flattenIterable(Stream.map(pages, ({ entries }) => entries))
    },
    /** Gets the name of the admin token, whether it may change keys, and the environment of the service. */
    session: (options?: CallOptions): Effect.Effect<typeof Session.Type, AnyAdminError> =>
      call("session", api.showSession(), options)
  }
}, Effect.provide([HttpApiMiddleware.layerClient(AdminAuth, noopMiddleware), Digest.layerWebCrypto]))

/**
 * A client of the management API. Every call can fail with `AnyAdminError`. The client retries a change only after a
 * 429, or if its token was unavailable: after other failures, such as no response, the change may have been made.
 */
export class AdminClient extends Context.Service<AdminClient>()("petstore/AdminClient", { make }) {
  /** A client that sends requests with `fetch`. */
  static readonly layer = (options: AdminOptions): Layer.Layer<AdminClient> =>
    AdminClient.layerHttp(options).pipe(Layer.provide(FetchHttpClient.layer))

  /**
   * A client that sends requests with `fetch`. Reads `baseUrl` from the variable `PETSTORE_ADMIN_URL` and `token`
   * from `ADMIN_TOKEN`, unless `config` has them. `config` can add other options.
   */
  static readonly layerConfig = (
    config: OptionsConfig<AdminOptions> = {}
  ): Layer.Layer<AdminClient, Config.ConfigError> => {
    const defaults = { baseUrl: Config.String("PETSTORE_ADMIN_URL"), token: Config.Redacted("ADMIN_TOKEN") }
    return Layer.unwrap(Effect.map(Config.unwrap<AdminOptions>({ ...defaults, ...config }), AdminClient.layer))
  }

  /** A client that sends requests with the `HttpClient` of the context, which must not follow redirects. */
  static readonly layerHttp = (options: AdminOptions): Layer.Layer<AdminClient, never, HttpClient.HttpClient> =>
    Layer.effect(AdminClient, AdminClient.make(options))
}
