/** Declares what stores API keys, and stores them in memory. The rules for keys are in `ApiKeys.ts`. */
import { DateTime, Effect, Equal, Result } from "effect"
import { Digest } from "effect/crypto"
import { type ApiKey, type FoundSecret, type KeyFilter, type KeyPosition, keyStateOf } from "../api/Keys.ts"

/** The holder of a secret: its key, and the instant at which the secret stops working (`null` for a current secret). */
export interface Holder {
  readonly key: ApiKey
  readonly secretExpiresAt: DateTime.Utc | null
}

/** Selects one page of the keys that meet the filter: at most `limit` keys, after the position `after`. */
export interface KeySelection extends KeyFilter {
  readonly limit: number
  readonly after?: KeyPosition | undefined
}

/** A selection by a store, which selects by the id of a key instead of a secret. */
export interface StoreSelection extends Omit<KeySelection, "secretHash"> {
  readonly id?: string
}

/**
 * A page of keys in list order. `next` is the position of its last key, and is absent on the last page. `secret` is the
 * one that the selection named.
 */
export interface ListedKeys {
  readonly keys: ReadonlyArray<ApiKey & { readonly secret?: FoundSecret }>
  readonly next?: KeyPosition
}

/** The secret of a key as a store has it: its hash, and its last four characters. */
export interface StoredSecret {
  readonly hash: string
  readonly hint: string
}

/** The key of a secret, the end of the secret (`null` for a current one), and whether the secret is deleted. */
export interface SecretOrigin {
  readonly keyId: string
  readonly endsAt: DateTime.Utc | null
  readonly isDeleted: boolean
}

/** Runs in the transaction of a change of a key. */
export type Alongside = (before: ApiKey, after: ApiKey) => Effect.Effect<void>

/** Stores keys and the hashes of their secrets. A database error is a defect. */
export interface ApiKeyStore {
  /** Inserts a key with its first secret. `alongside` runs in the same transaction. */
  insert(key: ApiKey, hash: string, alongside: Effect.Effect<void>): Effect.Effect<void>
  /**
   * Changes a key to the result of `change`, and returns the key after it, or `undefined` if there is no such key.
   * Nothing changes if `change` fails. Concurrent changes of a key run one after another. `change` must not change the
   * id, the version, the hint, the creation and the last use. `alongside` runs in the same transaction, unless nothing
   * changes.
   */
  change<E>(
    id: string,
    change: (key: ApiKey) => Result.Result<ApiKey, E>,
    alongside: Alongside
  ): Effect.Effect<ApiKey | undefined, E>
  /**
   * Returns a page of the keys that meet the filter at `now`. The list is in order of creation time, then of the bytes
   * of the id.
   */
  list(selection: StoreSelection, now: DateTime.Utc): Effect.Effect<ListedKeys>
  /** Returns the key with this id, or `undefined` if there is none. */
  find(id: string): Effect.Effect<ApiKey | undefined>
  /**
   * Returns the secret with this SHA-256, or `undefined` if there is none. Also finds secrets that were deleted in the
   * last 400 days.
   */
  findSecret(sha256: string): Effect.Effect<SecretOrigin | undefined>
  /** Returns the holders by hash. A hash that belongs to no key is absent. */
  findByHashes(hashes: ReadonlyArray<string>): Effect.Effect<ReadonlyMap<string, Holder>>
  /**
   * Adds a secret to a key, and returns the key after it. With an `end`, the other secrets of the key stop working
   * then, or earlier if they already have an earlier end. Without an `end` the other secrets are deleted.
   *
   * Nothing changes if the key is revoked (`"revoked"`), or if `end` is given and more than `maxWorking` secrets would
   * work (`"too_many"`). Otherwise `alongside` runs in the same transaction.
   */
  addSecret(id: string, secret: StoredSecret, options: {
    readonly now: DateTime.Utc
    readonly end: DateTime.Utc | undefined
    readonly maxWorking: number
    readonly alongside: Alongside
  }): Effect.Effect<ApiKey | "revoked" | "too_many">
  /** Records the last uses of keys, by id in epoch milliseconds. A use before the recorded one changes nothing. */
  recordUses(uses: ReadonlyMap<string, number>): Effect.Effect<void>
}

/** Finds the holders of secrets, in a store or in a cache of it. */
export interface KeyLookup {
  /** Returns the cached holder of the secret with this hash, at most one second stale. */
  peek(hash: string): Holder | undefined
  /**
   * Returns the holder from the cache or the database, or `undefined` if the hash belongs to no key. Dies if the
   * database does not respond within two seconds.
   */
  get(hash: string): Effect.Effect<Holder | undefined>
  /** Evicts all secrets of the key with this id. A process calls it for each key that it changes. */
  evict(id: string): void
}

/** Makes a page of the first `limit` items. A further item shows that there is another page. */
export const toPage = <A>(
  items: ReadonlyArray<A>,
  limit: number,
  toKey: (item: A) => ApiKey,
  toPosition: (item: A) => KeyPosition
): ListedKeys => {
  const page = items.slice(0, limit)
  const last = page.at(-1)
  const keys = page.map(toKey)
  return last === undefined || items.length <= limit ? { keys } : { keys, next: toPosition(last) }
}

const positionOf = ({ createdAt, id }: ApiKey): KeyPosition => ({
  createdAtMicros: BigInt(createdAt.epochMilliseconds) * 1_000n,
  id
})

const comparePositions = (a: KeyPosition, b: KeyPosition): number =>
  a.createdAtMicros === b.createdAtMicros
    ? a.id < b.id ? -1 : a.id > b.id ? 1 : 0
    : a.createdAtMicros < b.createdAtMicros
    ? -1
    : 1

/** Returns whether a key meets a filter at `now`. */
const isSelected = (
  key: ApiKey,
  { id = key.id, plan = key.plan, search, state }: Omit<StoreSelection, "limit">,
  now: DateTime.Utc
): boolean =>
  key.id === id && key.plan === plan && (state === undefined || keyStateOf(key, now) === state) &&
  (search === undefined || key.hint === search || key.id.includes(search) ||
    key.name.toLowerCase().includes(search.toLowerCase()))

/** Makes a store in the memory of this process, for tests. It has secrets as they are, instead of hashes. */
export const memoryStore = Effect.gen(function*() {
  const digest = yield* Digest.Digest
  const keys = new Map<string, ApiKey>()
  /** The keys of secrets. `expiresAt` is `null` for a current secret. */
  const secrets = new Map<string, { readonly keyId: string; readonly expiresAt: DateTime.Utc | null }>()

  /** Stores a changed key with its next version. */
  const update = (key: ApiKey): ApiKey => {
    const updated = { ...key, version: key.version + 1 }
    keys.set(key.id, updated)
    return updated
  }

  const store: ApiKeyStore = {
    insert: (key, hash, alongside) =>
      Effect.suspend(() => {
        keys.set(key.id, key)
        secrets.set(hash, { keyId: key.id, expiresAt: null })
        return alongside
      }),
    list: ({ after, limit, ...filter }, now) =>
      Effect.sync(() => {
        const selected = [...keys.values()].toSorted((a, b) => comparePositions(positionOf(a), positionOf(b)))
          .filter((key) => isSelected(key, filter, now))
          .filter((key) => after === undefined || comparePositions(positionOf(key), after) > 0)
        return toPage(selected, limit, (key) => key, positionOf)
      }),
    find: (id) => Effect.sync(() => keys.get(id)),
    findSecret: Effect.fnUntraced(function*(hash) {
      for (const [secret, { expiresAt, keyId }] of secrets) {
        if (hash === (yield* digest.digestHex(Digest.sha256, new TextEncoder().encode(secret)))) {
          return { keyId, endsAt: expiresAt, isDeleted: false }
        }
      }
      return undefined
    }),
    findByHashes: (hashes) =>
      Effect.sync(() =>
        new Map(hashes.flatMap((hash) => {
          const secret = secrets.get(hash)
          const key = secret && keys.get(secret.keyId)
          return key === undefined ? [] : [[hash, { key, secretExpiresAt: secret?.expiresAt ?? null }] as const]
        }))
      ),
    change: (id, change, alongside) =>
      Effect.gen(function*() {
        const key = keys.get(id)
        if (key === undefined) return undefined
        const changed = yield* Effect.fromResult(change(key))
        if (Equal.equals(changed, key)) return key
        const updated = update(changed)
        yield* alongside(key, updated)
        return updated
      }),
    addSecret: (id, { hash, hint }, { alongside, end, maxWorking, now }) =>
      Effect.gen(function*() {
        const otherSecrets = [...secrets].filter(([, { keyId }]) => keyId === id)
        const isWorking = ([, { expiresAt }]: (typeof otherSecrets)[number]): boolean =>
          expiresAt === null || DateTime.isGreaterThan(expiresAt, now)
        const key = keys.get(id)
        if (key?.revokedAt !== null) return "revoked"
        if (end !== undefined && otherSecrets.filter(isWorking).length >= maxWorking) return "too_many"
        const otherEnd = end ?? now
        for (const [otherHash, { expiresAt }] of otherSecrets) {
          secrets.set(otherHash, { keyId: id, expiresAt: DateTime.min(expiresAt ?? otherEnd, otherEnd) })
        }
        secrets.set(hash, { keyId: id, expiresAt: null })
        const updated = update({ ...key, hint })
        yield* alongside(key, updated)
        return updated
      }),
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
