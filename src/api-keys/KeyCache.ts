/** Caches API keys by the hash of their secret, under a lease that the background renews while a key is in use. */
import { Clock, Duration, Effect, Latch } from "effect"
import { ServiceUnavailable } from "../api/Errors.ts"
import { evictOldest } from "../collections/evictOldest.ts"
import * as RequestBatcher from "../database/RequestBatcher.ts"
import type { ApiKeyStore, SecretHolder } from "./ApiKeyStore.ts"

/** How long a key is used after the start of its lookup. A request adds some time, so this is less than a second. */
const lease = Duration.millis(900)
/** A key that is used at this age or later is read again. */
const refreshAge = Duration.millis(500)
/** The time in which refreshes are collected. One statement for each key costs a third of the lists of many keys. */
const refreshInterval = Duration.millis(50)
/** The maximum number of hashes in a statement. */
const maxHashes = 1_000
/** The maximum number of cached secrets. Beyond it the oldest are evicted. */
const maxEntries = 100_000

const [leaseNanos, refreshAgeNanos] = [Duration.toNanosUnsafe(lease), Duration.toNanosUnsafe(refreshAge)]

/** The key of a secret, as a lookup read it. */
export interface Entry extends SecretHolder {
  readonly hash: string
  /** The start of the lookup, by the monotonic clock in nanoseconds. */
  readonly readAt: bigint
  /** The minute of the last recorded use of the secret, in epoch milliseconds. */
  recordedMinute: number
}

/** Makes a cache of the secrets in `store`. Hashes of no key are not cached. */
export const make = Effect.fnUntraced(function*(store: Pick<ApiKeyStore, "findByHashes">) {
  const clock = yield* Clock.Clock
  const entries = new Map<string, Entry>()
  /** The number of changes by this process. The result of a lookup that began before a change is not cached. */
  let generation = 0

  const read = Effect.fnUntraced(function*(hashes: ReadonlyArray<string>) {
    const generationAtStart = generation
    const readAt = clock.monotonicTimeNanosUnsafe()
    const holders = yield* store.findByHashes(hashes)
    // After a pause of this process, the response can come before the timeout that it missed.
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

  // One statement runs at a time, so that many invented keys cannot occupy the pool. A lookup that takes longer than
  // the lease fails.
  const lookUp = yield* RequestBatcher.make({
    name: "ApiKeys.lookup",
    concurrency: 1,
    size: maxHashes,
    timeout: lease,
    run: read
  })

  /** The hashes of secrets in use that are read next. */
  const aging = new Set<string>()
  const isAging = yield* Latch.make()
  const refresh = Effect.gen(function*() {
    yield* isAging.await
    yield* Effect.sleep(refreshInterval)
    isAging.closeUnsafe()
    const hashes = [...aging]
    for (let start = 0; start < hashes.length; start += maxHashes) {
      // A failure is not logged: a lookup after the lease fails too, and is.
      yield* Effect.ignoreCause(Effect.timeout(read(hashes.slice(start, start + maxHashes)), lease))
    }
    for (const hash of hashes) aging.delete(hash)
  })
  yield* Effect.forkScoped(Effect.forever(Effect.withTracerEnabled(refresh, false)))

  /** Returns the entry of a secret if its lease has not ended. */
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
    /** Looks up a secret. Returns `undefined` for the hash of no key. */
    get: (hash: string): Effect.Effect<Entry | undefined, ServiceUnavailable> => lookUp(hash),
    /** Evicts all secrets of the key with this id. A process calls it for each key that it changes. */
    evict: (keyId: string): void => {
      generation++
      for (const [hash, { key }] of entries) if (key.id === keyId) entries.delete(hash)
    }
  }
})
