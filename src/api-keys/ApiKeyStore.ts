/** Declares what stores API keys, and stores them in memory. The rules for keys are in `ApiKeys.ts`. */
import { DateTime, Effect, Equal, Result } from "effect"
import { Digest } from "effect/crypto"
import {
  type ApiKey,
  type FoundSecret,
  type KeyPosition,
  type KeysQuery,
  type KeyState,
  keyStateOf
} from "../api/Keys.ts"

/** The holder of a secret: its key, and the instant at which the secret stops working (`null` for a current secret). */
export interface Holder {
  readonly key: ApiKey
  readonly secretExpiresAt: DateTime.Utc | null
}

/** Selects one page of the keys that meet the filter: at most `limit` keys, after the position `after`. */
export interface KeySelection extends Omit<KeysQuery, "cursor"> {
  readonly limit: number
  readonly after?: KeyPosition | undefined
}

/** A selection by a store, which selects by the ids of keys instead of a secret and of bans. */
export interface StoreSelection extends Omit<KeySelection, "secretHash" | "state"> {
  readonly ids?: ReadonlyArray<string>
  readonly state?: Exclude<KeyState, "banned"> | undefined
}

/**
 * A page of keys in list order. `next` is the position of its last key, and is absent on the last page. `secret` is the
 * one that the selection named.
 */
export interface ListedKeys {
  readonly keys: ReadonlyArray<ApiKey & { readonly secret?: FoundSecret }>
  readonly next?: KeyPosition
}

/** The key of a secret, the end of the secret (`null` for a current one), and whether it was ended early. */
export interface SecretOrigin {
  readonly keyId: string
  readonly endsAt: DateTime.Utc | null
  readonly isEnded: boolean
}

/** What a change does to a key: its new fields, a new current secret, and the end of its former secrets. */
export interface Change {
  readonly key: ApiKey
  /** The hash of a new current secret. The one before it becomes a former one. */
  readonly secretHash?: string
  /** The former secrets of the key stop working then, or earlier if they end earlier. `null` ends them now. */
  readonly formerEnd?: DateTime.Utc | null
}

/** Runs in the transaction of a change of a key. */
export type Alongside = (before: ApiKey, after: ApiKey) => Effect.Effect<void>

/** Stores keys and the hashes of their secrets. A database error is a defect. */
export interface ApiKeyStore {
  /**
   * Inserts a key with its first secret. `alongside` runs in the same transaction. Inserts nothing if a key has this
   * idempotency key already, and returns the id of that key.
   */
  insert(
    key: ApiKey,
    hash: string,
    alongside: Effect.Effect<void>,
    idempotencyKey?: string
  ): Effect.Effect<string | undefined>
  /**
   * Changes a key to the result of `change`. Returns the key after it with the next version, or `undefined` if there is
   * no such key. `change` gets the key and the number of its secrets that work at `now`. Nothing changes if it fails,
   * or returns an equal key alone. Concurrent changes of a key run one after another. `change` must keep the id, the
   * version, the creation and the last use. `alongside` runs in the same transaction.
   */
  change<E>(
    id: string,
    now: DateTime.Utc,
    change: (key: ApiKey, workingSecrets: number) => Result.Result<Change, E>,
    alongside: Alongside
  ): Effect.Effect<ApiKey | undefined, E>
  /**
   * Returns a page of the keys that meet the filter at `now`. The list is in order of creation time, then of the bytes
   * of the id.
   */
  list(selection: StoreSelection, now: DateTime.Utc): Effect.Effect<ListedKeys>
  /** Returns the key with this id, or `undefined` if there is none. */
  find(id: string): Effect.Effect<ApiKey | undefined>
  /** Returns the ends of the former secrets of a key that work at `now`. */
  formerSecrets(id: string, now: DateTime.Utc): Effect.Effect<ReadonlyArray<DateTime.Utc>>
  /** Returns the secret with this SHA-256, or `undefined` if there is none. Also finds secrets after their end. */
  findSecret(sha256: string): Effect.Effect<SecretOrigin | undefined>
  /** Returns the holders by hash. A hash that belongs to no key is absent. */
  findByHashes(hashes: ReadonlyArray<string>): Effect.Effect<ReadonlyMap<string, Holder>>
  /** Records the last uses of keys, by id in epoch milliseconds. A use before the recorded one changes nothing. */
  recordUses(uses: ReadonlyMap<string, number>): Effect.Effect<void>
}

/** Finds the holders of secrets, in a store or in a cache of it. */
export interface KeyLookup {
  /** Returns the cached holder of the secret with this hash, read less than a second ago. */
  peek(hash: string): Holder | undefined
  /**
   * Returns the holder from the cache or the database, or `undefined` if the hash belongs to no key. Dies if the
   * database does not respond within two seconds.
   */
  get(hash: string): Effect.Effect<Holder | undefined>
  /** Evicts all secrets of the key with this id. A process calls it for each key that it changes. */
  evict(id: string): void
}

const positionOf = ({ createdAt, id }: ApiKey): KeyPosition => ({
  createdAtMicros: BigInt(createdAt.epochMilliseconds) * 1_000n,
  id
})

/** Makes a page of the first `limit` keys. A further key shows that there is another page. */
export const toPage = (found: ReadonlyArray<ApiKey>, limit: number): ListedKeys => {
  const keys = found.slice(0, limit)
  const last = keys.at(-1)
  return last === undefined || found.length <= limit ? { keys } : { keys, next: positionOf(last) }
}

const comparePositions = (a: KeyPosition, b: KeyPosition): number =>
  a.createdAtMicros === b.createdAtMicros
    ? a.id < b.id ? -1 : a.id > b.id ? 1 : 0
    : a.createdAtMicros < b.createdAtMicros
    ? -1
    : 1

/** Returns whether a key meets a filter at `now`. */
const isSelected = (
  key: ApiKey,
  { ids, plan = key.plan, search, state }: Omit<StoreSelection, "limit">,
  now: DateTime.Utc
): boolean =>
  (ids === undefined || ids.includes(key.id)) && key.plan === plan &&
  (state === undefined || keyStateOf(key, now) === state) &&
  (search === undefined || key.hint === search || key.id.includes(search) ||
    key.name.toLowerCase().includes(search.toLowerCase()))

/** Makes a store in the memory of this process, for tests. It has secrets as they are, instead of hashes. */
export const memoryStore = Effect.gen(function*() {
  const digest = yield* Digest.Digest
  const keys = new Map<string, ApiKey>()
  const secrets = new Map<string, SecretOrigin>()
  const idempotencyKeys = new Map<string, string>()
  const workingSecrets = (id: string, now: DateTime.Utc) =>
    [...secrets.values()].filter(({ endsAt, isEnded, keyId }) =>
      keyId === id && !isEnded && (endsAt === null || DateTime.isGreaterThan(endsAt, now))
    )

  const store: ApiKeyStore = {
    insert: (key, hash, alongside, idempotencyKey) =>
      Effect.suspend(() => {
        const existing = idempotencyKey && idempotencyKeys.get(idempotencyKey)
        if (existing !== undefined) return Effect.succeed(existing)
        if (idempotencyKey !== undefined) idempotencyKeys.set(idempotencyKey, key.id)
        keys.set(key.id, key)
        secrets.set(hash, { keyId: key.id, endsAt: null, isEnded: false })
        return Effect.as(alongside, undefined)
      }),
    change: (id, now, change, alongside) =>
      Effect.gen(function*() {
        const key = keys.get(id)
        if (key === undefined) return undefined
        const { formerEnd, key: changed, secretHash } = yield* Effect.fromResult(
          change(key, workingSecrets(id, now).length)
        )
        if (formerEnd === undefined && Equal.equals(changed, key)) return key
        if (formerEnd !== undefined) {
          const end = formerEnd ?? now
          for (const [hash, { endsAt, isEnded, keyId }] of secrets) {
            if (keyId !== id || endsAt === null && secretHash === undefined) continue
            secrets.set(hash, {
              keyId,
              endsAt: DateTime.min(endsAt ?? end, end),
              isEnded: isEnded || formerEnd === null
            })
          }
        }
        if (secretHash !== undefined) secrets.set(secretHash, { keyId: id, endsAt: null, isEnded: false })
        const updated = { ...changed, version: key.version + 1 }
        keys.set(id, updated)
        yield* alongside(key, updated)
        return updated
      }),
    list: ({ after, limit, order, ...filter }, now) =>
      Effect.sync(() => {
        const sign = order === "newest" ? -1 : 1
        const selected = [...keys.values()].toSorted((a, b) => sign * comparePositions(positionOf(a), positionOf(b)))
          .filter((key) => isSelected(key, filter, now))
          .filter((key) => after === undefined || sign * comparePositions(positionOf(key), after) > 0)
        return toPage(selected, limit)
      }),
    find: (id) => Effect.sync(() => keys.get(id)),
    formerSecrets: (id, now) =>
      Effect.sync(() => workingSecrets(id, now).flatMap(({ endsAt }) => endsAt === null ? [] : [endsAt])),
    findSecret: Effect.fnUntraced(function*(hash) {
      for (const [secret, origin] of secrets) {
        if (hash === (yield* digest.digestHex(Digest.sha256, new TextEncoder().encode(secret)))) return origin
      }
      return undefined
    }),
    findByHashes: (hashes) =>
      Effect.sync(() =>
        new Map(hashes.flatMap((hash) => {
          const secret = secrets.get(hash)
          const key = secret && keys.get(secret.keyId)
          return key === undefined || secret?.isEnded !== false
            ? []
            : [[hash, { key, secretExpiresAt: secret.endsAt }] as const]
        }))
      ),
    recordUses: (uses) =>
      Effect.sync(() => {
        for (const [id, at] of uses) {
          const key = keys.get(id)
          if (key !== undefined && (key.lastUsedAt?.epochMilliseconds ?? 0) < at) {
            keys.set(id, { ...key, lastUsedAt: DateTime.makeUnsafe(at) })
          }
        }
      })
  }
  return store
}).pipe(Effect.provide(Digest.layerWebCrypto))
