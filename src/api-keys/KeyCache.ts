/** Caches API keys by the hash of their secret, so that a cached key costs no round trip to the database. */
import { Duration, Effect } from "effect"
import { evictOldest } from "../collections/evictOldest.ts"
import type { ChangePoller } from "../database/ChangePoller.ts"
import * as RequestBatcher from "../database/RequestBatcher.ts"
import type { ApiKeyStore, Holder, KeyLookup } from "./ApiKeyStore.ts"

/** The timeout of a lookup, including the time in which it waits for the statement before it. */
const lookupTimeout = Duration.seconds(2)
const maxHashesPerLookup = 1_000

/** The maximum number of cached holders. Beyond it the oldest is evicted. */
const maxHolders = 100_000
/** The maximum number of cached hashes that belong to no key. Beyond it all of them are evicted. */
const maxUnknownHashes = 10_000

/**
 * Makes a cache of the holders in `store`, by the hashes of their secrets. `poller` invalidates the keys that other
 * processes or operators change.
 */
export const make = Effect.fnUntraced(function*(store: ApiKeyStore, poller: ChangePoller["Service"]) {
  const holders = new Map<string, Holder>()
  /** The cached hashes that belong to no key. */
  const unknownHashes = new Set<string>()
  /** The number of invalidations. The result of a lookup that began before an invalidation is not cached. */
  let generation = 0

  const evictKeys = (isStale: (id: string) => boolean): void => {
    generation++
    for (const [hash, { key }] of holders) if (isStale(key.id)) holders.delete(hash)
    unknownHashes.clear()
  }
  yield* poller.subscribe(({ everything, keys }) => {
    if (everything || keys.size > 0) evictKeys((id) => everything || keys.has(id))
  })

  const evictHash = (hash: string): void => {
    holders.delete(hash)
    unknownHashes.delete(hash)
  }
  const insert = (hash: string, holder: Holder | undefined): void => {
    if (holder === undefined) {
      if (unknownHashes.size >= maxUnknownHashes) unknownHashes.clear()
      unknownHashes.add(hash)
    } else {
      holders.set(hash, holder)
      evictOldest(holders, maxHolders)
    }
  }

  // One statement runs at a time. Clients that send many invented keys cannot occupy the connections of the pool.
  const findHolder = yield* RequestBatcher.make({
    concurrency: 1,
    size: maxHashesPerLookup,
    timeout: lookupTimeout,
    run: Effect.fnUntraced(function*(hashes: ReadonlyArray<string>) {
      const generationAtStart = generation
      const found = yield* store.findByHashes(hashes)
      for (const hash of hashes) {
        // The lookup is newer than the cached entry. The entry is evicted even if the result may not be cached.
        evictHash(hash)
        if (generation === generationAtStart) insert(hash, found.get(hash))
      }
      return found
    })
  })
  const lookUp = (hash: string) => Effect.orDie(Effect.timeout(findHolder(hash), lookupTimeout))

  const cache: KeyLookup = {
    peek: (hash) => poller.isFresh() ? holders.get(hash) : undefined,
    get: (hash) =>
      Effect.suspend(() => {
        if (poller.isFresh()) {
          const holder = holders.get(hash)
          if (holder !== undefined || unknownHashes.has(hash)) return Effect.succeed(holder)
        }
        return lookUp(hash)
      }),
    evict: (id) => evictKeys((other) => other === id)
  }
  return cache
})
