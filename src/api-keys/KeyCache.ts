/**
 * A read-through cache of API keys, by the hash of their secret. Requests may use a cached key for a short time after
 * its lookup began: its lease. If a request uses a cached key early in its lease, a background task refreshes the key:
 * it looks it up again shortly before the lease ends. This refresh includes the other used keys whose leases end up to
 * 200 ms later. All keys of one lookup, at most `maxHashesPerStatement`, get leases that end together.
 *
 * Laws, in any order of requests, late or failed lookups, and changes of keys:
 * 1. A request uses the result of a lookup only if the request came before that lookup began, or at most `lease` later.
 *    So a change takes effect for all requests that begin a second after it.
 * 2. A request that begins after `evict` of a key uses only lookups of that key that began after that `evict`.
 * 3. Outside of transactions, `get` ends after `lookupTimeout` at the latest (`Batcher.ts`), and one statement at a
 *    time serves all calls of `get`.
 * 4. At most one refresh runs at a time. A lookup of a refresh that fails or takes longer than `refreshTimeout` changes
 *    no entry.
 * 5. Within a transaction, `get` reads in that transaction, and caches nothing.
 */
import { Clock, Duration, Effect, Latch } from "effect"
import { databaseErrors } from "../api/DatabaseErrors.ts"
import * as Batcher from "../database/Batcher.ts"
import { evictOldest } from "../eviction/evictOldest.ts"
import type { ApiKeyStore, SecretHolder } from "./ApiKeyStore.ts"

/**
 * A request may use a key whose lookup began at most this long before the request. The lease is shorter than a second,
 * so that a change of a key reaches every process within a second.
 */
const lease = Duration.millis(900)
/**
 * With this timeout, these waits of a request take at most 6 s together: 1.75 s for the lookup of its key, 1 s for a
 * slot (`ConcurrencyLimit.ts`), 0.25 s for Redis (the default of `REDIS_TIMEOUT_MS`), and 3 s for the operation's SQL
 * statement (`callTimeout`).
 */
const lookupTimeout = Duration.millis(1_750)
/** A lookup of a refresh that takes longer than `lease` is useless, because its results have expired. */
const refreshTimeout = lease
/**
 * A refresh begins before the earliest lease ends: `2 * lookupNanos` before, but at least 75 ms and at most 400 ms. The
 * 75 ms also cover a pause for garbage collection.
 */
const [minMarginNanos, maxMarginNanos] = [75_000_000n, 400_000_000n]
/** A refresh includes the used keys whose leases end up to this long after the earliest one. */
const groupedForNanos = 200_000_000n
const maxHashesPerStatement = 1_000
const maxEntries = 100_000

const leaseNanos = Duration.toNanosUnsafe(lease)

export interface Entry extends SecretHolder {
  readonly hash: string
  /** When its lookup began, in monotonic nanoseconds. Unused if the lookup ran within a transaction. */
  readonly readAt: bigint
  /** The start of the minute for which a use was last recorded, in epoch milliseconds (`KeyVerifier.ts`). */
  recordedMinute: number
  /** Whether a request used this entry early enough for a refresh before its lease ends. */
  isUsed: boolean
}

type Store = Pick<ApiKeyStore["Service"], "findByHashes" | "isInTransaction">

export const make = Effect.fnUntraced(function*(store: Store) {
  const clock = yield* Clock.Clock
  const entries = new Map<string, Entry>()
  let evictedAt: bigint | undefined
  /** Whether a lookup that began at `startedAt` may have read a key before this process changed it. */
  const isBeforeEvict = (startedAt: bigint): boolean => evictedAt !== undefined && startedAt <= evictedAt
  const isLeased = (startedAt: bigint): boolean => clock.monotonicTimeNanosUnsafe() - startedAt < leaseNanos

  /** The duration of the last successful lookup, or 90 % of the earlier `lookupNanos` if that is longer. */
  let lookupNanos = 0n

  const read = Effect.fnUntraced(function*(
    hashes: ReadonlyArray<string>,
    { withStates }: { readonly withStates: boolean }
  ) {
    const readAt = clock.monotonicTimeNanosUnsafe()
    const holders = yield* store.findByHashes(hashes, withStates)
    const duration = clock.monotonicTimeNanosUnsafe() - readAt
    const earlier = lookupNanos * 9n / 10n
    lookupNanos = duration > earlier ? duration : earlier
    const found = new Map<string, Entry>()
    for (const hash of hashes) {
      const [holder, cached] = [holders.get(hash), entries.get(hash)]
      if (holder !== undefined) {
        found.set(hash, { ...holder, hash, readAt, recordedMinute: cached?.recordedMinute ?? 0, isUsed: false })
      }
      const entry = found.get(hash)
      if (entry === undefined || isBeforeEvict(readAt)) entries.delete(hash)
      else if (cached === undefined || cached.readAt < readAt) entries.set(hash, entry)
    }
    evictOldest(entries, maxEntries)
    return found
  })

  const readInTransaction = (hash: string) =>
    Effect.map(store.findByHashes([hash]), (holders): Entry | undefined => {
      const holder = holders.get(hash)
      return holder && { ...holder, hash, readAt: clock.monotonicTimeNanosUnsafe(), recordedMinute: 0, isUsed: false }
    })

  // Run one batch of lookups at a time, so that requests with invented keys cannot occupy the connection pool.
  const lookUp = yield* Batcher.make({
    name: "ApiKeys.lookup",
    concurrency: 1,
    size: maxHashesPerStatement,
    timeout: lookupTimeout,
    late: databaseErrors.unavailable,
    mayJoin: (startedAt) => isLeased(startedAt) && !isBeforeEvict(startedAt),
    run: (hashes: ReadonlyArray<string>) => read(hashes, { withStates: true })
  })

  /**
   * The hashes of the used entries (`isUsed`) that no refresh has taken yet, grouped by `readAt`. One lookup reads many
   * keys, so there are few groups.
   */
  const used = new Map<bigint, Set<string>>()
  const hasUsed = yield* Latch.make()
  /** How long before the end of the earliest lease a refresh begins, in nanoseconds. */
  const margin = (): bigint => {
    const twice = 2n * lookupNanos
    return twice < minMarginNanos ? minMarginNanos : twice > maxMarginNanos ? maxMarginNanos : twice
  }
  const addUsed = (entry: Entry): void => {
    entry.isUsed = true
    const hashes = used.get(entry.readAt)
    if (hashes === undefined) used.set(entry.readAt, new Set([entry.hash]))
    else hashes.add(entry.hash)
    hasUsed.openUnsafe()
  }
  const takeUsed = (until: bigint): ReadonlyArray<string> => {
    const groups = [...used].filter(([readAt]) => readAt <= until)
    for (const [readAt] of groups) used.delete(readAt)
    if (used.size === 0) hasUsed.closeUnsafe()
    return groups.flatMap(([, hashes]) => [...hashes])
  }

  const refresh = Effect.gen(function*() {
    yield* hasUsed.await
    const oldest = used.keys().reduce((one, other) => one < other ? one : other)
    const waitNanos = oldest + leaseNanos - margin() - clock.monotonicTimeNanosUnsafe()
    if (waitNanos > 0n) yield* Effect.sleep(Duration.nanos(waitNanos))
    const hashes = takeUsed(oldest + groupedForNanos)
    for (let start = 0; start < hashes.length; start += maxHashesPerStatement) {
      // A refresh need not read the keys' rate-limit states, because they are still in memory. When the new lease ends,
      // the last use of the key is less than 1.8 s ago (two leases), and a state stays in memory for 2 s after its last
      // use (`minGeneration` of `KeyStates.ts`). If the refresh is late, the next charge may have to load the state.
      const batch = hashes.slice(start, start + maxHashesPerStatement)
      // Ignore a failure: once the leases end, the next request with a key looks it up, and reports any error.
      yield* Effect.ignoreCause(Effect.timeout(read(batch, { withStates: false }), refreshTimeout))
    }
  })
  yield* Effect.forkScoped(Effect.forever(Effect.withTracerEnabled(refresh, false)))

  const useCached = (hash: string): Entry | undefined => {
    const entry = entries.get(hash)
    if (entry === undefined) return undefined
    const leftNanos = entry.readAt + leaseNanos - clock.monotonicTimeNanosUnsafe()
    if (leftNanos <= 0n) return undefined
    // If the first use comes too late for a refresh, the lease ends, and the next request after that looks the key up.
    if (!entry.isUsed && leftNanos > margin()) addUsed(entry)
    return entry
  }
  return {
    /**
     * Returns a cached key while its lease lasts. A request within a transaction must call `get` instead, because only
     * the transaction sees its own changes.
     */
    useCached,
    get: (hash: string) =>
      Effect.withFiber((fiber) => store.isInTransaction(fiber) ? readInTransaction(hash) : lookUp(hash)),
    evict: (keyId: string) =>
      Effect.sync(() => {
        evictedAt = clock.monotonicTimeNanosUnsafe()
        for (const [hash, { key }] of entries) if (key.id === keyId) entries.delete(hash)
      })
  }
})
