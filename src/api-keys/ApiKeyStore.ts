import { Context, DateTime, Effect, type Fiber, identity, Layer, Order, type Result, Struct } from "effect"
import { Digest } from "effect/crypto"
import type { ServiceUnavailable } from "../api/Errors.ts"
import { type ApiKey, type FormerSecret, type KeyPosition, type KeysQuery, keyStateOf } from "../api/KeySchemas.ts"

/**
 * The API key that a secret belongs to. The secret works until `endsAt`, in epoch milliseconds (`Infinity`: forever).
 * Then it is rejected for the reason `endedBy`.
 */
export interface SecretHolder {
  readonly key: Pick<ApiKey, "id" | "limits" | "plan">
  readonly endsAt: number
  readonly endedBy?: "disabled" | "expired" | "revoked" | "rotated"
}

const timeOf = (at: DateTime.Utc | Date | null): number =>
  at === null ? Infinity : DateTime.makeUnsafe(at).epochMilliseconds

export const makeHolder = (
  { enabled, expiresAt, id, limits, plan, revokedAt }:
    & Pick<ApiKey, "enabled" | "id" | "limits" | "plan">
    & Readonly<Record<"expiresAt" | "revokedAt", DateTime.Utc | Date | null>>,
  secretEndsAt: DateTime.Utc | Date | null
): SecretHolder => {
  const key = { id, plan, limits }
  if (revokedAt !== null) return { key, endsAt: 0, endedBy: "revoked" }
  if (!enabled) return { key, endsAt: 0, endedBy: "disabled" }
  const [end, expiry] = [timeOf(secretEndsAt), timeOf(expiresAt)]
  return { key, endsAt: Math.min(end, expiry), endedBy: end < expiry ? "rotated" : "expired" }
}

export interface KeySelection extends Omit<KeysQuery, "cursor"> {
  readonly limit: number
  readonly after?: KeyPosition | undefined
}

export interface StoreSelection extends Omit<KeySelection, "secretHash" | "state"> {
  readonly ids?: ReadonlyArray<string>
  /** The last position that the page may reach, from `ApiKeyStore.scanEnd`. */
  readonly until?: KeyPosition | undefined
  readonly state?: Exclude<KeysQuery["state"], "banned">
}

/**
 * The id of a secret's API key. `endsAt` is when a former secret stops working, and `null` for the current one. Unlike
 * that of `SecretHolder`, it ignores the state and the expiry of the key.
 */
export interface StoredSecret {
  readonly keyId: string
  readonly endsAt: DateTime.Utc | null
}

export interface SecretUse {
  readonly keyId: string
  /** The start of the minute in which the secret was used, in epoch milliseconds. */
  readonly at: number
}

export interface Change {
  readonly key: ApiKey
  /** The hash of a new current secret. The secret that was current so far becomes a former one. */
  readonly secretHash?: string
  /**
   * The time by which all former secrets of the key must stop working. `null` means at once. If it is absent, each
   * secret keeps its end.
   */
  readonly formerSecretsEndAt?: DateTime.Utc | null
  readonly auditEntry: Effect.Effect<void, ServiceUnavailable>
}

/** Stores the keys, and finds a key by the hash of its secret. */
export class ApiKeyStore extends Context.Service<ApiKeyStore, {
  /** Returns the form in which this store keeps a secret: its SHA-256, or the secret itself in memory. */
  hash(secret: string): string
  /**
   * Inserts a key, its first secret and its audit entry, and returns `undefined`. If `idempotencyKey` was already used,
   * inserts nothing and returns the id of the existing key.
   */
  insert(
    key: ApiKey,
    hash: string,
    auditEntry: Effect.Effect<void, ServiceUnavailable>,
    idempotencyKey?: string
  ): Effect.Effect<string | undefined, ServiceUnavailable>
  /**
   * Applies `change` to a key and returns the new key, or `undefined` if no key has this id. If `change` returns
   * `undefined`, the key stays and is returned as it is. Concurrent changes of one key run one after another.
   */
  change<E>(
    id: string,
    now: DateTime.Utc,
    change: (key: ApiKey, workingSecrets: number) => Result.Result<Change | undefined, E>
  ): Effect.Effect<ApiKey | undefined, E | ServiceUnavailable>
  /** Lists keys by creation time, or, with `search`, by name. */
  list(selection: StoreSelection, now: DateTime.Utc): Effect.Effect<ReadonlyArray<ApiKey>, ServiceUnavailable>
  /**
   * Returns the last position that one page with a filter may scan, or `undefined` if the page may scan all keys that
   * follow. It bounds the time of a list whose filter matches few of many keys. So a page can have fewer keys than
   * `limit`, although more keys match.
   */
  scanEnd(selection: StoreSelection): Effect.Effect<KeyPosition | undefined, ServiceUnavailable>
  formerSecrets(id: string, now: DateTime.Utc): Effect.Effect<ReadonlyArray<FormerSecret>, ServiceUnavailable>
  findSecret(sha256: string, now: DateTime.Utc): Effect.Effect<StoredSecret | undefined, ServiceUnavailable>
  /**
   * Whether a fiber runs within a transaction of this store. Such a fiber must not read a cache, because only its
   * transaction sees its own changes.
   */
  isInTransaction(fiber: Fiber.Fiber<unknown, unknown>): boolean
  /**
   * Finds API keys by the hashes of their secrets. With `withStates`, and unless requests are counted in Redis, a store
   * on PostgreSQL also reads the keys' rate-limit states in the same statement, and passes them to the rate limiter
   * (`StateLookups.ts`).
   */
  findByHashes(
    hashes: ReadonlyArray<string>,
    withStates?: boolean
  ): Effect.Effect<ReadonlyMap<string, SecretHolder>, ServiceUnavailable>
  /** Stores when secrets and their keys were last used. Never replaces a time with an earlier one. */
  recordUses(uses: ReadonlyMap<string, SecretUse>): Effect.Effect<void, unknown>
}>()("api-keys/ApiKeyStore") {
  /** Keeps the keys and their secrets in memory. */
  static readonly layerMemory = Layer.effect(ApiKeyStore, Effect.suspend(() => makeMemory))
}

export const positionOf = ({ createdAt, id, name }: ApiKey, search: string | undefined): KeyPosition => ({
  createdAt: createdAt.epochMilliseconds,
  id,
  ...search !== undefined && { name }
})

const comparePositions = (a: KeyPosition, b: KeyPosition): number =>
  (a.name === undefined
    ? a.createdAt - b.createdAt
    : Order.String(a.name.toLowerCase(), b.name?.toLowerCase() ?? "")) || Order.String(a.id, b.id)

const makeMemory = Effect.gen(function*() {
  const digest = yield* Digest.Digest
  const keys = new Map<string, ApiKey>()
  const secrets = new Map<string, StoredSecret & Pick<FormerSecret, "hint" | "lastUsedAt">>()
  const idempotencyKeys = new Map<string, string>()
  const workingSecrets = (id: string, now: DateTime.Utc) =>
    [...secrets.values()].filter(({ endsAt, keyId }) =>
      keyId === id && (endsAt === null || DateTime.isGreaterThan(endsAt, now))
    )

  return ApiKeyStore.of({
    // Secrets in memory need no protection by a hash.
    hash: identity,
    insert: (key, hash, auditEntry, idempotencyKey) =>
      Effect.suspend(() => {
        const existing = idempotencyKey && idempotencyKeys.get(idempotencyKey)
        if (existing !== undefined) return Effect.succeed(existing)
        if (idempotencyKey !== undefined) idempotencyKeys.set(idempotencyKey, key.id)
        keys.set(key.id, key)
        secrets.set(hash, { keyId: key.id, endsAt: null, lastUsedAt: null })
        return Effect.as(auditEntry, undefined)
      }),
    change: Effect.fnUntraced(function*(id, now, change) {
      const before = keys.get(id)
      if (before === undefined) return undefined
      const changed = yield* Effect.fromResult(change(before, workingSecrets(id, now).length))
      if (changed === undefined) return before
      const { auditEntry, formerSecretsEndAt, key, secretHash } = changed
      const end = formerSecretsEndAt ?? now
      for (const [hash, stored] of formerSecretsEndAt === undefined ? [] : secrets) {
        if (stored.keyId !== id || (stored.endsAt === null && secretHash === undefined)) continue
        const hint = stored.endsAt === null && before.hint !== null && { hint: before.hint }
        secrets.set(hash, { ...stored, ...hint, endsAt: DateTime.min(stored.endsAt ?? end, end) })
      }
      if (secretHash !== undefined) secrets.set(secretHash, { keyId: id, endsAt: null, lastUsedAt: null })
      keys.set(id, key)
      yield* auditEntry
      return key
    }),
    list: ({ after, expiresBefore, ids, limit, order, plan, search, state }, now) =>
      Effect.sync(() => {
        const sign = order === "newest" && search === undefined ? -1 : 1
        const position = (key: ApiKey) => positionOf(key, search)
        return [...keys.values()]
          .filter((key) =>
            (ids === undefined || ids.includes(key.id)) && (plan === undefined || key.plan === plan) &&
            (state === undefined || keyStateOf(key, now) === state) &&
            (expiresBefore === undefined || (key.expiresAt !== null && DateTime.isGreaterThan(key.expiresAt, now) &&
              DateTime.isLessThanOrEqualTo(key.expiresAt, expiresBefore))) &&
            (search === undefined || key.hint === search || key.id === search ||
              key.name.toLowerCase().startsWith(search.toLowerCase())) &&
            (after === undefined || sign * comparePositions(position(key), after) > 0)
          )
          .toSorted((a, b) => sign * comparePositions(position(a), position(b)))
          .slice(0, limit)
      }),
    scanEnd: () => Effect.undefined,
    formerSecrets: (id, now) =>
      Effect.sync(() =>
        workingSecrets(id, now).flatMap(({ endsAt, ...secret }) =>
          endsAt === null ? [] : [{ ...Struct.omit(secret, ["keyId"]), endsAt }]
        )
          .toSorted((a, b) => a.endsAt.epochMilliseconds - b.endsAt.epochMilliseconds)
      ),
    findSecret: Effect.fnUntraced(function*(sha256) {
      for (const [secret, stored] of secrets) {
        if (sha256 === (yield* digest.digestHex(Digest.sha256, new TextEncoder().encode(secret)))) return stored
      }
      return undefined
    }),
    isInTransaction: () => false,
    findByHashes: (hashes) =>
      Effect.sync(() =>
        new Map(hashes.flatMap((hash): Array<[string, SecretHolder]> => {
          const stored = secrets.get(hash)
          const key = stored && keys.get(stored.keyId)
          return key && stored ? [[hash, makeHolder(key, stored.endsAt)]] : []
        }))
      ),
    recordUses: (uses) =>
      Effect.sync(() => {
        for (const [hash, { at, keyId }] of uses) {
          const [key, stored] = [keys.get(keyId), secrets.get(hash)]
          if (key === undefined) continue
          const lastUsedAt = DateTime.max(DateTime.makeUnsafe(at), key.createdAt)
          keys.set(keyId, { ...key, lastUsedAt: DateTime.max(lastUsedAt, key.lastUsedAt ?? lastUsedAt) })
          if (stored === undefined) continue
          secrets.set(hash, { ...stored, lastUsedAt: DateTime.max(lastUsedAt, stored.lastUsedAt ?? lastUsedAt) })
        }
      })
  })
}).pipe(Effect.provide(Digest.layerWebCrypto))
