/** The typed client of the management API, derived from the contract. It runs where `fetch` runs. */
import { Config, Context, Duration, Effect, Layer, Option, Redacted, Stream } from "effect"
import { Digest } from "effect/crypto"
import { FetchHttpClient, HttpClient } from "effect/http"
import { HttpApiClient, HttpApiMiddleware } from "effect/http-api"
import { AdminApi, AdminAuth, type Session } from "../api/AdminApi.ts"
import type { AuditEntry, AuditPage, AuditQuery } from "../api/Audit.ts"
import { formatETag } from "../api/EntityTag.ts"
import type * as Errors from "../api/Errors.ts"
import type * as Keys from "../api/Keys.ts"
import type { KeysGroup } from "../api/KeysGroup.ts"
import { listLimit } from "../api/Paging.ts"
import type { KeyTotals, TopUsageQuery, UsageHistory } from "../api/Usage.ts"
import { authorize, makeCaller, omitUndefined, parseBaseUrl } from "./ClientCalls.ts"
import type { CallOptions, ClientOptions, ErrorOf, Optional, Secret } from "./ClientCalls.ts"
import type { PetstoreClientError } from "./ClientError.ts"
import { RateLimits } from "./RateLimits.ts"

/** An error that any call to the management API can fail with. */
export type AnyAdminError = PetstoreClientError | ErrorOf<typeof AdminApi, "listKeys">

/** A key, and the one of its secrets that `whose` looked for. */
export interface FoundKey extends Keys.ListedKey {
  readonly secret: Keys.FoundSecret
}

/** An error of a change of a key. */
type ChangeError = AnyAdminError | Errors.NotFound | Errors.Conflict | Errors.PreconditionFailed

/** The options of a change. With a `version`, the key changes only if it has this version. */
interface VersionOptions extends CallOptions {
  readonly version?: number | undefined
}

/** The options of `AdminClient`. The URL is that of the management port, such as `http://127.0.0.1:9090`. */
export interface AdminOptions extends ClientOptions {
  /** The admin token of the service (`ADMIN_TOKEN`). */
  readonly token: Secret
}

/**
 * A client of the management API of a running service. It retries a request that changes something only after a 429,
 * which says that the service did nothing.
 */
export class AdminClient extends Context.Service<AdminClient, {
  /**
   * Issues a key. Only this response has its secret. With an `idempotencyKey`, a second call issues no second key.
   *
   * Fails with any of `AnyAdminError`, such as `InvalidRequest` for limits that do not fit the plan, and with
   * `Conflict`, which names the issued key, if the idempotency key was used before.
   *
   * @example
   * const { id, key } = yield* admin.issue({ name: "shop", plan: "pro" }, { idempotencyKey: "order-7" })
   */
  issue(
    key: Optional<Keys.NewKey>,
    options?: CallOptions & { readonly idempotencyKey?: string | undefined }
  ): Effect.Effect<Keys.IssuedKey, AnyAdminError | Errors.Conflict>
  /**
   * Lists one page of the keys that meet the filter. The last page has no `next`. Fails with any of `AnyAdminError`.
   *
   * @example
   * const { keys, next } = yield* admin.list({ limit: 20, plan: "pro" })
   */
  list(query?: Optional<Keys.KeysQuery>, options?: CallOptions): Effect.Effect<Keys.KeysPage, AnyAdminError>
  /**
   * Streams all keys that meet the filter. It requests each page only when the consumer needs it: by
   * default 100 keys. Fails with any of `AnyAdminError`, after the keys of the pages before.
   *
   * @example
   * yield* Stream.runForEach(admin.all({ state: "active" }), (key) => Console.log(key.name))
   */
  all(
    filter?: Optional<Omit<Keys.KeysQuery, "cursor" | "limit">> & { readonly pageSize?: number | undefined },
    options?: CallOptions
  ): Stream.Stream<Keys.ListedKey, AnyAdminError>
  /**
   * Returns the key to which a current or former secret belongs, and whether the secret still works. The request
   * contains only the SHA-256 of the secret. Fails with any of `AnyAdminError`.
   *
   * @example
   * const leaked = yield* admin.whose(secret)
   * if (Option.isSome(leaked)) yield* admin.rotate(leaked.value.id)
   */
  whose(secret: Redacted.Redacted, options?: CallOptions): Effect.Effect<Option.Option<FoundKey>, AnyAdminError>
  /**
   * Gets a key, its remaining requests and its ban. Fails with `NotFound` and any of `AnyAdminError`.
   *
   * @example
   * const { usage } = yield* admin.get(id)
   */
  get(id: string, options?: CallOptions): Effect.Effect<Keys.ApiKeyDetails, AnyAdminError | Errors.NotFound>
  /**
   * Returns the requests of a key in each of the last 60 minutes and 720 hours, oldest first. An interval without
   * requests is absent. Fails with `NotFound` and any of `AnyAdminError`.
   *
   * @example
   * const { hours, minutes } = yield* admin.usage(id)
   */
  usage(id: string, options?: CallOptions): Effect.Effect<UsageHistory, AnyAdminError | Errors.NotFound>
  /**
   * Returns the keys with the most requests in the last hour or day, highest first. By default it counts the allowed
   * requests of the hour, and returns 10 keys. Fails with any of `AnyAdminError`.
   *
   * @example
   * const rejected = yield* admin.topUsage({ window: "day", by: "rejected" })
   */
  topUsage(
    query?: Optional<TopUsageQuery>,
    options?: CallOptions
  ): Effect.Effect<ReadonlyArray<KeyTotals>, AnyAdminError>
  /**
   * Returns the operator of the token, whether it may change keys, and the environment of the service. Fails with any
   * of `AnyAdminError`.
   *
   * @example
   * const { mayChange } = yield* admin.session()
   */
  session(options?: CallOptions): Effect.Effect<typeof Session.Type, AnyAdminError>
  /**
   * Changes the named fields of a key. `null` removes its expiry, and `enabled: false` disables it.
   *
   * Fails with `NotFound`, with `Conflict` for a revoked key, with `PreconditionFailed` for another `version`, with
   * `InvalidRequest` for limits that do not fit the plan, and with any other of `AnyAdminError`.
   *
   * @example
   * const key = yield* admin.update(id, { plan: "pro" }, { version: 3 })
   */
  update(
    id: string,
    change: Optional<Keys.KeyChange>,
    options?: VersionOptions
  ): Effect.Effect<Keys.ApiKey, ChangeError>
  /**
   * Replaces the secret of a key. The old secret works for the grace period, in whole seconds: by default not at all.
   * Fails with `NotFound`, with `Conflict` for a revoked or expired key, with `PreconditionFailed` for another
   * `version`, and with any of `AnyAdminError`.
   *
   * @example
   * const { key } = yield* admin.rotate(id, { gracePeriod: "1 hour" })
   */
  rotate(
    id: string,
    options?: VersionOptions & { readonly gracePeriod?: Duration.Input | undefined }
  ): Effect.Effect<Keys.IssuedKey, ChangeError>
  /**
   * Ends the former secrets of a key, whose grace period has not ended. Fails as `revoke`.
   *
   * @example
   * yield* admin.endFormerSecrets(id)
   */
  endFormerSecrets(id: string, options?: VersionOptions): Effect.Effect<void, ChangeError>
  /**
   * Revokes a key. This cannot be undone. Fails with `NotFound`, with `Conflict` for a key that is revoked already,
   * with `PreconditionFailed` for another `version`, and with any of `AnyAdminError`.
   *
   * @example
   * yield* admin.revoke(id)
   */
  revoke(id: string, options?: VersionOptions): Effect.Effect<void, ChangeError>
  /**
   * Lifts the ban of a key. Fails with `NotFound` and any of `AnyAdminError`.
   *
   * @example
   * yield* admin.unban(id)
   */
  unban(id: string, options?: CallOptions): Effect.Effect<void, AnyAdminError | Errors.NotFound>
  /**
   * Lists one page of the audit log, newest first. The last page has no `next`. Fails with any of `AnyAdminError`.
   *
   * @example
   * const { entries, next } = yield* admin.audit({ key: id })
   */
  audit(query?: Optional<AuditQuery>, options?: CallOptions): Effect.Effect<AuditPage, AnyAdminError>
  /**
   * Streams the entries that meet the filter, newest first. It requests each page only when it is needed.
   * Fails with any of `AnyAdminError`, after the entries of the pages before.
   *
   * @example
   * yield* Stream.runForEach(admin.auditAll(), (entry) => Console.log(entry.action))
   */
  auditAll(
    filter?: Optional<Omit<AuditQuery, "cursor" | "limit">> & { readonly pageSize?: number | undefined },
    options?: CallOptions
  ): Stream.Stream<AuditEntry, AnyAdminError>
}>()("petstore/AdminClient") {
  /** A client that uses `fetch`. */
  static readonly layer = (options: AdminOptions): Layer.Layer<AdminClient> =>
    AdminClient.layerHttp(options).pipe(Layer.provide(FetchHttpClient.layer))

  /** A client that uses `fetch` and reads `config`: by default `PETSTORE_ADMIN_URL` and `ADMIN_TOKEN`. */
  static readonly layerConfig = (
    config: Config.Wrap<AdminOptions> = {
      baseUrl: Config.URL("PETSTORE_ADMIN_URL"),
      token: Config.Redacted("ADMIN_TOKEN")
    }
  ): Layer.Layer<AdminClient, Config.ConfigError> => Layer.unwrap(Effect.map(Config.unwrap(config), AdminClient.layer))

  /** A client that uses the `HttpClient` of the context. */
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
  issue: decoder("issueKey"),
  list: decoder("listKeys"),
  get: decoder("showKey"),
  usage: decoder("showUsage"),
  topUsage: decoder("topUsage"),
  session: HttpApiClient.decodeResponse(AdminApi, { group: "session", endpoint: "showSession" }),
  update: decoder("updateKey"),
  rotate: decoder("rotateKey"),
  revoke: decoder("revokeKey"),
  endFormerSecrets: decoder("endFormerSecrets"),
  unban: decoder("unbanKey")
}
const responseMode = "response-only" as const

const changeOf = (id: string, version: number | undefined) => ({
  params: { id },
  headers: version === undefined ? {} : { "if-match": [formatETag(version)] },
  responseMode
})

const make = Effect.fnUntraced(function*(clientOptions: AdminOptions) {
  const digest = yield* Digest.Digest
  const api = yield* HttpApiClient.make(AdminApi, { baseUrl: parseBaseUrl(clientOptions.baseUrl) })
  const call = makeCaller("AdminClient", clientOptions, new RateLimits())

  const list: AdminClient["Service"]["list"] = (query = {}, options) =>
    call("list", api.listKeys({ query: omitUndefined(query), responseMode }), decode.list, true, options)

  const audit: AdminClient["Service"]["audit"] = (query = {}, options) =>
    call("audit", api.listAudit({ query: omitUndefined(query), responseMode }), decode.audit, true, options)

  return AdminClient.of({
    audit,
    auditAll: ({ pageSize = listLimit.maximum, ...filter } = {}, options) =>
      Stream.paginate<Optional<AuditQuery>, AuditEntry, AnyAdminError>(
        { ...filter, limit: pageSize },
        (query) =>
          Effect.map(audit(query, options), ({ entries, next }) => [entries, Option.fromUndefinedOr(next)] as const)
      ),
    issue: (key, { idempotencyKey, ...options } = {}) => {
      const headers = idempotencyKey === undefined ? {} : { "idempotency-key": idempotencyKey }
      const request = api.issueKey({ payload: omitUndefined(key), headers, responseMode })
      return call("issue", request, decode.issue, false, options)
    },
    list,
    all: ({ pageSize = listLimit.maximum, ...filter } = {}, options) =>
      Stream.paginate<Optional<Keys.KeysQuery>, Keys.ListedKey, AnyAdminError>(
        { ...filter, limit: pageSize },
        (query) => Effect.map(list(query, options), ({ keys, next }) => [keys, Option.fromUndefinedOr(next)] as const)
      ),
    whose: Effect.fnUntraced(function*(secret, options) {
      const secretHash = yield* digest.digestHex(Digest.sha256, new TextEncoder().encode(Redacted.value(secret)))
      const [key] = (yield* list({ secretHash }, options)).keys
      return key?.secret === undefined ? Option.none() : Option.some({ ...key, secret: key.secret })
    }),
    get: (id, options) => call("get", api.showKey({ params: { id }, responseMode }), decode.get, true, options),
    usage: (id, options) => call("usage", api.showUsage({ params: { id }, responseMode }), decode.usage, true, options),
    topUsage: (query = {}, options) => {
      const request = api.topUsage({ query: omitUndefined(query), responseMode })
      return call("topUsage", request, decode.topUsage, true, options)
    },
    session: (options) => call("session", api.showSession({ responseMode }), decode.session, true, options),
    update: (id, change, { version, ...options } = {}) => {
      const request = api.updateKey({ ...changeOf(id, version), payload: omitUndefined(change) })
      return call("update", request, decode.update, false, options)
    },
    rotate: (id, { gracePeriod = 0, version, ...options } = {}) => {
      const payload = { gracePeriodSeconds: Duration.toSeconds(gracePeriod) }
      const request = api.rotateKey({ ...changeOf(id, version), payload })
      return call("rotate", request, decode.rotate, false, options)
    },
    revoke: (id, { version, ...options } = {}) =>
      call("revoke", api.revokeKey(changeOf(id, version)), decode.revoke, false, options),
    endFormerSecrets: (id, { version, ...options } = {}) => {
      const request = api.endFormerSecrets(changeOf(id, version))
      return call("endFormerSecrets", request, decode.endFormerSecrets, false, options)
    },
    unban: (id, options) => call("unban", api.unbanKey({ params: { id }, responseMode }), decode.unban, false, options)
  })
})
