/**
 * Caches API keys by the hash of their secret. When a request uses an entry older than `refreshAge`, a background task
 * reads the entry's key again.
 *
 * Laws, in any order of requests, late or failed lookups, and changes of keys:
 * 1. A request uses a result only if it began before, or at most `lease` after, the lookup of this result. So a change
 *    takes effect for all requests that begin a second later, and a lookup slower than `lease` serves those that wait.
 * 2. After `evict`, requests use only lookups that began after it: a change by this process takes effect at once.
 * 3. `get` ends after `lookupTimeout` at the latest (`Batcher.ts`), and one statement runs at a time for all requests.
 * 4. A refresh that fails or is late changes nothing, and at most one runs.
 * 5. Within a transaction, `get` reads in it, and caches nothing.
 */
import { Clock, Duration, Effect, Latch } from "effect"
import * as Batcher from "../database/Batcher.ts"
import { evictOldest } from "../eviction/evictOldest.ts"
import type { ApiKeyStore, SecretHolder } from "./ApiKeyStore.ts"

/** The maximum age of a result when a request begins: under a second, so that changes take effect within a second. */
const lease = Duration.millis(900)
/**
 * With this timeout, a request waits at most 6 s in total: for the lookup of its key, a slot (`ConcurrencyLimit.ts`),
 * Redis (the default `REDIS_TIMEOUT_MS`) and the operation's SQL statement (`callTimeout`).
 */
const lookupTimeout = Duration.millis(1_750)
const refreshAge = Duration.millis(500)
/** After `lease`, no request that begins may use the result of a refresh. */
const refreshTimeout = lease
/** Each refresh first waits this long, to collect more entries for one SQL statement. */
const refreshInterval = Duration.millis(50)
const maxHashesPerStatement = 1_000
const maxEntries = 100_000

const [leaseNanos, refreshAgeNanos] = [Duration.toNanosUnsafe(lease), Duration.toNanosUnsafe(refreshAge)]

export interface Entry extends SecretHolder {
  readonly hash: string
  readonly readAt: bigint
  recordedMinute: number
}

export const make = Effect.fnUntraced(function*(store: Pick<ApiKeyStore, "findByHashes" | "isInTransaction">) {
  const clock = yield* Clock.Clock
  const entries = new Map<string, Entry>()
  let evictedAt: bigint | undefined
  /** Whether a lookup that began then may have read a key that this process changed afterwards. */
  const isBeforeEvict = (startedAt: bigint): boolean => evictedAt !== undefined && startedAt <= evictedAt
  const isLeased = (startedAt: bigint): boolean => clock.monotonicTimeNanosUnsafe() - startedAt < leaseNanos

  const read = Effect.fnUntraced(function*(hashes: ReadonlyArray<string>) {
    const readAt = clock.monotonicTimeNanosUnsafe()
    const holders = yield* store.findByHashes(hashes)
    const found = new Map<string, Entry>()
    for (const hash of hashes) {
      const [holder, cached] = [holders.get(hash), entries.get(hash)]
      if (holder !== undefined) {
        found.set(hash, { ...holder, hash, readAt, recordedMinute: cached?.recordedMinute ?? 0 })
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
      return holder && { ...holder, hash, readAt: clock.monotonicTimeNanosUnsafe(), recordedMinute: 0 }
    })

  // Run one batch of lookups at a time, so that requests with invented keys cannot occupy the connection pool.
  const lookUp = yield* Batcher.make({
    name: "ApiKeys.lookup",
    concurrency: 1,
    size: maxHashesPerStatement,
    timeout: lookupTimeout,
    mayJoin: (startedAt) => isLeased(startedAt) && !isBeforeEvict(startedAt),
    run: read
  })

  const aging = new Set<string>()
  const hasAging = yield* Latch.make()
  const refresh = Effect.gen(function*() {
    yield* hasAging.await
    yield* Effect.sleep(refreshInterval)
    hasAging.closeUnsafe()
    const hashes = [...aging]
    for (let start = 0; start < hashes.length; start += maxHashesPerStatement) {
      // Ignore a failed refresh. If the entry expires, the next request looks the key up and reports any error.
      yield* Effect.ignoreCause(
        Effect.timeout(read(hashes.slice(start, start + maxHashesPerStatement)), refreshTimeout)
      )
    }
    for (const hash of hashes) aging.delete(hash)
  })
  yield* Effect.forkScoped(Effect.forever(Effect.withTracerEnabled(refresh, false)))

  const peek = (hash: string): Entry | undefined => {
    const entry = entries.get(hash)
    if (entry === undefined) return undefined
    const age = clock.monotonicTimeNanosUnsafe() - entry.readAt
    if (age >= leaseNanos) return undefined
    if (age >= refreshAgeNanos && !aging.has(hash)) {
      aging.add(hash)
      hasAging.openUnsafe()
    }
    return entry
  }
  return {
    /** Not for a request within a transaction. */
    peek,
    get: (hash: string) =>
      Effect.withFiber((fiber) => store.isInTransaction(fiber) ? readInTransaction(hash) : lookUp(hash)),
    evict: (keyId: string) =>
      Effect.sync(() => {
        evictedAt = clock.monotonicTimeNanosUnsafe()
        for (const [hash, { key }] of entries) if (key.id === keyId) entries.delete(hash)
      })
  }
})
