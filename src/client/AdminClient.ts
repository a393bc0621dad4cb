import { Config, Context, Duration, Effect, Layer, Option, Redacted, type Stream } from "effect"
import { Digest } from "effect/crypto"
import { FetchHttpClient, HttpClient } from "effect/http"
import { HttpApiClient, HttpApiMiddleware } from "effect/http-api"
import { AdminApi, AdminAuth, type Session } from "../api/AdminApi.ts"
import type { AuditEntry, AuditPage, AuditQuery } from "../api/Audit.ts"
import type * as Errors from "../api/Errors.ts"
import type * as Keys from "../api/Keys.ts"
import { formatETag } from "../api/KeysGroup.ts"
import type { KeysGroup } from "../api/KeysGroup.ts"
import { listLimit } from "../api/Paging.ts"
import type { KeyTotals, TopUsageQuery, UsageHistory } from "../api/Usage.ts"
import { authorize, makeCaller, omitUndefined, parseBaseUrl, streamPages } from "./ClientCalls.ts"
import type { CallOptions, ClientOptions, ErrorOf, Optional, PageSize, Secret } from "./ClientCalls.ts"
import type { PetstoreClientError } from "./ClientError.ts"
import { makePacing } from "./Pacing.ts"

export type AnyAdminError = PetstoreClientError | ErrorOf<typeof AdminApi, "listKeys">

export interface FoundKey extends Keys.ListedKey {
  readonly secret: Keys.FoundSecret
}

type ChangeError = AnyAdminError | Errors.NotFound | Errors.Conflict | Errors.PreconditionFailed

interface ChangeOptions extends CallOptions {
  /** Optimistic locking: the change fails with `PreconditionFailed` if the key no longer has this version. */
  readonly version?: number | undefined
}

/** `baseUrl` is the URL of the management port, such as `http://127.0.0.1:9090`. */
export interface AdminOptions extends ClientOptions {
  readonly token: Secret
}

/**
 * A client of the management API. Every call can fail with `AnyAdminError`. The client retries a change only after a
 * 429, because most other failures do not show whether the service made the change.
 */
export class AdminClient extends Context.Service<AdminClient, {
  /**
   * Issues an API key. Only this call returns its secret. A second call with the same `idempotencyKey` fails with a
   * `Conflict` whose message names the key that exists.
   *
   * @example
   * const { id, key } = yield* admin.issue({ name: "shop", plan: "pro" }, { idempotencyKey: "order-7" })
   */
  issue(
    key: Optional<Keys.NewKey>,
    options?: CallOptions & { readonly idempotencyKey?: string | undefined }
  ): Effect.Effect<Keys.IssuedKey, AnyAdminError | Errors.Conflict>
  list(query?: Optional<Keys.KeysQuery>, options?: CallOptions): Effect.Effect<Keys.KeysPage, AnyAdminError>
  /**
   * Streams all matching keys, and requests each page only when the stream needs it.
   *
   * @example
   * yield* Stream.runForEach(admin.all({ state: "active" }), (key) => Console.log(key.name))
   */
  all(
    filter?: Optional<Omit<Keys.KeysQuery, "limit">> & PageSize,
    options?: CallOptions
  ): Stream.Stream<Keys.ListedKey, AnyAdminError>
  /**
   * Finds the API key that a current or former secret belongs to. The request contains only the secret's SHA-256.
   *
   * @example
   * const leaked = yield* admin.whose(secret)
   * if (Option.isSome(leaked)) yield* admin.rotate(leaked.value.id)
   */
  whose(secret: Redacted.Redacted, options?: CallOptions): Effect.Effect<Option.Option<FoundKey>, AnyAdminError>
  /** Gets a key with its remaining requests, its ban, and the former secrets in their grace period. */
  get(id: string, options?: CallOptions): Effect.Effect<Keys.ApiKeyDetails, AnyAdminError | Errors.NotFound>
  /**
   * Counts a key's requests by minute for the last 60 minutes and by hour for up to 720 hours, oldest first. Intervals
   * without requests are absent.
   */
  usage(id: string, options?: CallOptions): Effect.Effect<UsageHistory, AnyAdminError | Errors.NotFound>
  /** Lists the keys with the most requests of one kind: by default the ten with the most `allowed` in the last hour. */
  topUsage(
    query?: Optional<TopUsageQuery>,
    options?: CallOptions
  ): Effect.Effect<ReadonlyArray<KeyTotals>, AnyAdminError>
  /**
   * Changes the given fields of a key. `expiresAt: null` removes the expiry. `enabled: false` makes the service reject
   * the key with 401. Fails with `Conflict` if the key is revoked.
   *
   * @example
   * const key = yield* admin.update(id, { plan: "pro" }, { version: 3 })
   */
  update(id: string, change: Optional<Keys.KeyChange>, options?: ChangeOptions): Effect.Effect<Keys.ApiKey, ChangeError>
  /**
   * Replaces the secret of a key. Former secrets work for at most `gracePeriod`: whole seconds up to 30 days, by
   * default 0. Fails with `Conflict` if the key is revoked or expired, or if more than five secrets would work.
   *
   * @example
   * const { key } = yield* admin.rotate(id, { gracePeriod: "1 hour" })
   */
  rotate(
    id: string,
    options?: ChangeOptions & { readonly gracePeriod?: Duration.Input | undefined }
  ): Effect.Effect<Keys.IssuedKey, ChangeError>
  /** Ends the grace periods of all former secrets, so that only the current secret of the key works. */
  endFormerSecrets(id: string, options?: ChangeOptions): Effect.Effect<void, ChangeError>
  /** Revokes a key for good. Fails with `Conflict` if it is already revoked. */
  revoke(id: string, options?: ChangeOptions): Effect.Effect<void, ChangeError>
  unban(id: string, options?: CallOptions): Effect.Effect<void, AnyAdminError | Errors.NotFound>
  audit(query?: Optional<AuditQuery>, options?: CallOptions): Effect.Effect<AuditPage, AnyAdminError>
  /** Streams all matching entries of the audit log, newest first. Requests each page only when the stream needs it. */
  auditAll(
    filter?: Optional<Omit<AuditQuery, "limit">> & PageSize,
    options?: CallOptions
  ): Stream.Stream<AuditEntry, AnyAdminError>
  session(options?: CallOptions): Effect.Effect<typeof Session.Type, AnyAdminError>
}>()("petstore/AdminClient") {
  /** Uses `fetch`. */
  static readonly layer = (options: AdminOptions): Layer.Layer<AdminClient> =>
    AdminClient.layerHttp(options).pipe(Layer.provide(FetchHttpClient.layer))

  /** By default, `baseUrl` comes from `PETSTORE_ADMIN_URL` and `token` from `ADMIN_TOKEN`. Uses `fetch`. */
  static readonly layerConfig = (
    config: Config.Wrap<AdminOptions> = {
      baseUrl: Config.URL("PETSTORE_ADMIN_URL"),
      token: Config.Redacted("ADMIN_TOKEN")
    }
  ): Layer.Layer<AdminClient, Config.ConfigError> => Layer.unwrap(Effect.map(Config.unwrap(config), AdminClient.layer))

  static readonly layerHttp = (options: AdminOptions): Layer.Layer<AdminClient, never, HttpClient.HttpClient> =>
    Layer.effect(AdminClient, make(options)).pipe(
      Layer.provide(HttpApiMiddleware.layerClient(AdminAuth, authorize(options.token))),
      Layer.provide(Digest.layerWebCrypto)
    )
}

const decoder = <const Name extends keyof typeof KeysGroup["endpoints"]>(endpoint: Name) =>
  HttpApiClient.decodeResponse(AdminApi, { group: "keys", endpoint })
const decode = {
  audit: HttpApiClient.decodeResponse(AdminApi, { group: "audit", endpoint: "listAudit" }),
  session: HttpApiClient.decodeResponse(AdminApi, { group: "session", endpoint: "showSession" }),
  issue: decoder("issueKey"),
  list: decoder("listKeys"),
  get: decoder("showKey"),
  usage: decoder("showUsage"),
  topUsage: decoder("topUsage"),
  update: decoder("updateKey"),
  rotate: decoder("rotateKey"),
  revoke: decoder("revokeKey"),
  endFormerSecrets: decoder("endFormerSecrets"),
  unban: decoder("unbanKey")
}
const responseMode = "response-only" as const

const reading = (id?: string) => ({ isIdempotent: true, attributes: { "petstore.key.id": id } })
const changing = (id?: string) => ({ isIdempotent: false, attributes: { "petstore.key.id": id } })

const ofKey = (id: string) => ({ params: { id }, responseMode })
const ofVersion = (id: string, version: number | undefined) => ({
  ...ofKey(id),
  headers: version === undefined ? {} : { "if-match": [formatETag(version)] }
})

const make = Effect.fnUntraced(function*(clientOptions: AdminOptions) {
  const digest = yield* Digest.Digest
  const api = yield* HttpApiClient.make(AdminApi, { baseUrl: parseBaseUrl(clientOptions.baseUrl) })
  const call = makeCaller("AdminClient", clientOptions, yield* makePacing)

  const list: AdminClient["Service"]["list"] = (query = {}, options) =>
    call("list", api.listKeys({ query: omitUndefined(query), responseMode }), decode.list, reading(), options)

  const audit: AdminClient["Service"]["audit"] = (query = {}, options) =>
    call("audit", api.listAudit({ query: omitUndefined(query), responseMode }), decode.audit, reading(), options)

  return AdminClient.of({
    audit,
    auditAll: ({ pageSize: limit = listLimit.maximum, ...query } = {}, options) =>
      streamPages("AdminClient.auditAll", audit, ({ entries }) => entries, { ...query, limit }, options),
    session: (options) => call("session", api.showSession({ responseMode }), decode.session, reading(), options),
    issue: (key, { idempotencyKey, ...options } = {}) => {
      const headers = idempotencyKey === undefined ? {} : { "idempotency-key": idempotencyKey }
      const request = api.issueKey({ payload: omitUndefined(key), headers, responseMode })
      return call("issue", request, decode.issue, changing(), options)
    },
    list,
    all: ({ pageSize: limit = listLimit.maximum, ...query } = {}, options) =>
      streamPages("AdminClient.all", list, ({ keys }) => keys, { ...query, limit }, options),
    whose: Effect.fnUntraced(function*(secret, options) {
      const secretHash = yield* digest.digestHex(Digest.sha256, new TextEncoder().encode(Redacted.value(secret)))
      const [key] = (yield* list({ secretHash }, options)).keys
      return key?.secret === undefined ? Option.none() : Option.some({ ...key, secret: key.secret })
    }),
    get: (id, options) => call("get", api.showKey(ofKey(id)), decode.get, reading(id), options),
    usage: (id, options) => call("usage", api.showUsage(ofKey(id)), decode.usage, reading(id), options),
    topUsage: (query = {}, options) => {
      const request = api.topUsage({ query: omitUndefined(query), responseMode })
      return call("topUsage", request, decode.topUsage, reading(), options)
    },
    update: (id, change, { version, ...options } = {}) => {
      const request = api.updateKey({ ...ofVersion(id, version), payload: omitUndefined(change) })
      return call("update", request, decode.update, changing(id), options)
    },
    rotate: (id, { gracePeriod = 0, version, ...options } = {}) => {
      const payload = { gracePeriodSeconds: Duration.toSeconds(gracePeriod) }
      const request = api.rotateKey({ ...ofVersion(id, version), payload })
      return call("rotate", request, decode.rotate, changing(id), options)
    },
    revoke: (id, { version, ...options } = {}) =>
      call("revoke", api.revokeKey(ofVersion(id, version)), decode.revoke, changing(id), options),
    endFormerSecrets: (id, { version, ...options } = {}) => {
      const request = api.endFormerSecrets(ofVersion(id, version))
      return call("endFormerSecrets", request, decode.endFormerSecrets, changing(id), options)
    },
    unban: (id, options) => call("unban", api.unbanKey(ofKey(id)), decode.unban, changing(id), options)
  })
})
