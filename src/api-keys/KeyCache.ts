/**
 * Caches API keys by the hash of their secret. An entry is valid under a lease, which is renewed in the background
 * while the key is in use.
 */
import { Clock, Duration, Effect, Latch } from "effect"
import { ServiceUnavailable } from "../api/Errors.ts"
import { evictOldest } from "../collections/evictOldest.ts"
import * as RequestBatcher from "../database/RequestBatcher.ts"
import type { ApiKeyStore, SecretHolder } from "./ApiKeyStore.ts"

/** A key is used for this time from the start of its lookup: a second, less some time for the request. */
const lease = Duration.millis(900)
/** Once an entry reaches this age, its next use starts a refresh in the background. */
const refreshAge = Duration.millis(500)
/** Refreshes that start within this interval share one SQL statement. */
const refreshInterval = Duration.millis(50)
const maxHashesPerStatement = 1_000
const maxEntries = 100_000

const [leaseNanos, refreshAgeNanos] = [Duration.toNanosUnsafe(lease), Duration.toNanosUnsafe(refreshAge)]

export interface Entry extends SecretHolder {
  readonly hash: string
  /** The start of the lookup, by the monotonic clock in nanoseconds. */
  readonly readAt: bigint
  /** The minute of the last recorded use, in epoch milliseconds. */
  recordedMinute: number
}

/** Unknown hashes are not cached. */
export const make = Effect.fnUntraced(function*(store: Pick<ApiKeyStore, "findByHashes">) {
  const clock = yield* Clock.Clock
  const entries = new Map<string, Entry>()
  /** The number of changes by this process. A lookup that began before a change is not cached. */
  let generation = 0

  const read = Effect.fnUntraced(function*(hashes: ReadonlyArray<string>) {
    const generationAtStart = generation
    const readAt = clock.monotonicTimeNanosUnsafe()
    const holders = yield* store.findByHashes(hashes)
    // After a pause of the process, a late response can be handled before its overdue timeout fires.
    if (clock.monotonicTimeNanosUnsafe() - readAt >= leaseNanos) return yield* new ServiceUnavailable()
    const found = new Map<string, Entry>()
    for (const hash of hashes) {
      const [holder, cached] = [holders.get(hash), entries.get(hash)]
      if (holder !== undefined) {
        found.set(hash, { ...holder, hash, readAt, recordedMinute: cached?.recordedMinute ?? 0 })
      }
      const entry = found.get(hash)
      if (entry === undefined || generation !== generationAtStart) entries.delete(hash)
      else if (cached === undefined || cached.readAt < readAt) entries.set(hash, entry)
    }
    evictOldest(entries, maxEntries)
    return found
  })

  // One statement at a time, so that invented keys cannot occupy the pool. The lease of a result starts with its
  // statement, so a slower statement is useless: repeat it once, and a stall of the database for a second causes no
  // 503.
  const lookUp = yield* RequestBatcher.make({
    name: "ApiKeys.lookup",
    concurrency: 1,
    size: maxHashesPerStatement,
    timeout: Duration.times(lease, 2),
    run: (hashes: ReadonlyArray<string>) =>
      Effect.timeoutOrElse(read(hashes), { duration: lease, orElse: () => read(hashes) })
  })

  const aging = new Set<string>()
  const isAging = yield* Latch.make()
  const refresh = Effect.gen(function*() {
    yield* isAging.await
    yield* Effect.sleep(refreshInterval)
    isAging.closeUnsafe()
    const hashes = [...aging]
    for (let start = 0; start < hashes.length; start += maxHashesPerStatement) {
      // If the outage outlasts the lease, the next lookup logs it.
      yield* Effect.ignoreCause(Effect.timeout(read(hashes.slice(start, start + maxHashesPerStatement)), lease))
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
      isAging.openUnsafe()
    }
    return entry
  }
  return {
    peek,
    get: (hash: string): Effect.Effect<Entry | undefined, ServiceUnavailable> => lookUp(hash),
    evict: (keyId: string): void => {
      generation++
      for (const [hash, { key }] of entries) if (key.id === keyId) entries.delete(hash)
    }
  }
})
