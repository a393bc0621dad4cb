/**
 * Caches API keys by the hash of their secret. When a request uses an entry older than `refreshAge`, a background task
 * reads the entry's key again.
 */
import { Clock, Duration, Effect, Latch } from "effect"
import { evictOldest } from "../collections/evictOldest.ts"
import * as Batcher from "../database/Batcher.ts"
import type { ApiKeyStore, SecretHolder } from "./ApiKeyStore.ts"

/** The maximum age of an entry: under one second, because key changes must take effect within one second. */
const lease = Duration.millis(900)
/**
 * With this timeout, a request waits at most 6 s in total: for the lookup of its key, a slot (`ConcurrencyLimit.ts`),
 * Redis (the default `REDIS_TIMEOUT_MS`) and the operation's SQL statement (`callTimeout`).
 */
const lookupTimeout = Duration.millis(1_750)
const refreshAge = Duration.millis(500)
/** An entry's age counts from the start of its SQL statement. After `lease`, that statement's result is expired. */
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

export const make = Effect.fnUntraced(function*(store: Pick<ApiKeyStore, "findByHashes">) {
  const clock = yield* Clock.Clock
  const entries = new Map<string, Entry>()
  /** Incremented by `evict`. A lookup running at that time may have read a stale key, so its result is not cached. */
  let generation = 0

  const read = Effect.fnUntraced(function*(hashes: ReadonlyArray<string>) {
    let generationAtStart: number
    let readAt: bigint
    let holders: ReadonlyMap<string, SecretHolder>
    do {
      generationAtStart = generation
      readAt = clock.monotonicTimeNanosUnsafe()
      holders = yield* store.findByHashes(hashes)
      // A stalled database or a pause of this process can make the result older than `lease`. Then read again.
    } while (clock.monotonicTimeNanosUnsafe() - readAt >= leaseNanos)
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

  // Run one batch of lookups at a time, so that requests with invented keys cannot occupy the connection pool.
  const lookUp = yield* Batcher.make({
    name: "ApiKeys.lookup",
    concurrency: 1,
    size: maxHashesPerStatement,
    timeout: lookupTimeout,
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
    peek,
    get: lookUp,
    evict: (keyId: string) =>
      Effect.sync(() => {
        generation++
        for (const [hash, { key }] of entries) if (key.id === keyId) entries.delete(hash)
      })
  }
})
