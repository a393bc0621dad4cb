/**
 * Caches API keys by the hash of their secret, each for less than a second. A key in use is read again in the
 * background before its lease ends, so that its requests never wait for the database.
 */
import { Clock, Duration, Effect, Latch } from "effect"
import { evictOldest } from "../collections/evictOldest.ts"
import * as RequestBatcher from "../database/RequestBatcher.ts"
import type { ApiKeyStore, Holder } from "./ApiKeyStore.ts"

/** How long a holder is used after the start of its lookup. A request adds some time, so this is less than a second. */
const lease = Duration.toNanosUnsafe(Duration.millis(900))
/** A holder that is used at this age or later is read again. */
const refreshAge = Duration.toNanosUnsafe(Duration.millis(500))
/** The time in which refreshes are collected. One statement for each key costs a third of the lists of many keys. */
const refreshInterval = Duration.millis(50)
/** The timeout of a lookup, including the time in which it waits for the statement before it. */
const lookupTimeout = Duration.seconds(2)
/** The maximum number of hashes in a statement. */
const maxHashes = 1_000
/** The maximum number of cached holders. Beyond it the oldest are evicted. */
const maxHolders = 100_000

interface Entry {
  holder: Holder
  /** The start of the lookup that read the holder, by the monotonic clock. */
  readAt: bigint
  isRefreshing: boolean
}

/** Makes a cache of the holders in `store`, by the hashes of their secrets. Hashes of no key are not cached. */
export const make = Effect.fnUntraced(function*(store: Pick<ApiKeyStore, "findByHashes">) {
  const clock = yield* Clock.Clock
  const entries = new Map<string, Entry>()
  /** The number of changes by this process. The result of a lookup that began before a change is not cached. */
  let generation = 0

  const read = Effect.fnUntraced(function*(hashes: ReadonlyArray<string>) {
    const generationAtStart = generation
    const readAt = clock.monotonicTimeNanosUnsafe()
    const found = yield* store.findByHashes(hashes)
    for (const hash of hashes) {
      const holder = found.get(hash)
      const entry = entries.get(hash)
      if (holder === undefined || generation !== generationAtStart) entries.delete(hash)
      else if (entry === undefined) entries.set(hash, { holder, readAt, isRefreshing: false })
      else if (entry.readAt < readAt) {
        // Usage and the last use hang on the object of a holder, so an equal one stays the same object.
        if (!isEqual(entry.holder, holder)) entry.holder = holder
        entry.readAt = readAt
      }
    }
    evictOldest(entries, maxHolders)
    return found
  })

  // One statement runs at a time. Clients that send many invented keys cannot occupy the connections of the pool.
  const findHolder = yield* RequestBatcher.make({
    name: "ApiKeys.lookup",
    concurrency: 1,
    size: maxHashes,
    timeout: lookupTimeout,
    run: read
  })

  /** The hashes of holders in use that are read next. */
  const aging: Array<string> = []
  const isAging = yield* Latch.make()
  const refresh = Effect.gen(function*() {
    yield* isAging.await
    yield* Effect.sleep(refreshInterval)
    isAging.closeUnsafe()
    const hashes = aging.splice(0)
    for (let start = 0; start < hashes.length; start += maxHashes) {
      // A failure is not logged: a lookup after the lease fails too, and is.
      yield* Effect.ignoreCause(Effect.timeout(read(hashes.slice(start, start + maxHashes)), lookupTimeout))
    }
    for (const hash of hashes) {
      const entry = entries.get(hash)
      if (entry !== undefined) entry.isRefreshing = false
    }
  })
  yield* Effect.forkScoped(Effect.forever(Effect.withTracerEnabled(refresh, false)))

  /** Returns the cached holder of the secret with this hash, read less than a second ago. */
  const peek = (hash: string): Holder | undefined => {
    const entry = entries.get(hash)
    if (entry === undefined) return undefined
    const age = clock.monotonicTimeNanosUnsafe() - entry.readAt
    if (age >= lease) return undefined
    if (age >= refreshAge && !entry.isRefreshing) {
      entry.isRefreshing = true
      aging.push(hash)
      isAging.openUnsafe()
    }
    return entry.holder
  }
  return {
    peek,
    /** Reads the holder, or `undefined` if the hash belongs to no key. Dies if the store is silent for two seconds. */
    get: (hash: string): Effect.Effect<Holder | undefined> =>
      Effect.orDie(Effect.timeout(findHolder(hash), lookupTimeout)),
    /** Evicts all secrets of the key with this id. A process calls it for each key that it changes. */
    evict: (id: string): void => {
      generation++
      for (const [hash, { holder }] of entries) if (holder.id === id) entries.delete(hash)
    }
  }
})

const isEqual = (a: Holder, b: Holder): boolean =>
  a.plan === b.plan && a.endsAt === b.endsAt &&
  a.limits.perMinute === b.limits.perMinute && a.limits.perDay === b.limits.perDay
