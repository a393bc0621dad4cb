/** Caches the holders of secrets, so that a cached key costs no round trip to the database. */
import { Duration, Effect } from "effect"
import { evictOldest } from "../collections/evictOldest.ts"
import type { ChangePoller } from "../database/ChangePoller.ts"
import * as RequestBatcher from "../database/RequestBatcher.ts"
import type { ApiKeyStore, Holder } from "./ApiKeyStore.ts"

const lookupTimeout = Duration.seconds(2)
const maxHashesPerLookup = 1_000

const maxHolders = 100_000
const maxUnknownHashes = 10_000

export interface KeyCache {
  /** Returns the cached holder of the secret with this hash, at most one second old. */
  peek(hash: string): Holder | undefined
  /** Returns the holder from the cache or the database. Dies if the database does not respond in time. */
  get(hash: string): Effect.Effect<Holder | undefined>
  /** Evicts a key that this process has changed. */
  evict(id: string): void
}

export const make = Effect.fnUntraced(function*(store: ApiKeyStore, poller: ChangePoller["Service"]) {
  const holders = new Map<string, Holder>()
  /** Hashes of unknown secrets. */
  const unknown = new Set<string>()
  /** The number of invalidations. A lookup that began before an invalidation is not cached. */
  let generation = 0

  const evictKeys = (isEvicted: (id: string) => boolean): void => {
    generation++
    for (const [hash, { key }] of holders) if (isEvicted(key.id)) holders.delete(hash)
    unknown.clear()
  }
  yield* poller.subscribe(({ everything, keys }) => {
    if (everything || keys.size > 0) evictKeys((id) => everything || keys.has(id))
  })

  const evictHash = (hash: string): void => {
    holders.delete(hash)
    unknown.delete(hash)
  }
  const insert = (hash: string, holder: Holder | undefined): void => {
    if (holder === undefined) {
      if (unknown.size >= maxUnknownHashes) unknown.clear()
      unknown.add(hash)
    } else {
      holders.set(hash, holder)
      evictOldest(holders, maxHolders)
    }
  }

  // One statement at a time, however many made-up keys clients send.
  const find = yield* RequestBatcher.make({
    concurrency: 1,
    size: maxHashesPerLookup,
    timeout: lookupTimeout,
    run: Effect.fnUntraced(function*(hashes: ReadonlyArray<string>) {
      const before = generation
      const found = yield* store.findByHashes(hashes)
      for (const hash of hashes) {
        // The older entry is wrong, even if the new one is not cached.
        evictHash(hash)
        if (generation === before) insert(hash, found.get(hash))
      }
      return found
    })
  })
  const lookUp = (hash: string) => Effect.orDie(Effect.timeout(find(hash), lookupTimeout))

  const cache: KeyCache = {
    peek: (hash) => poller.isFresh() ? holders.get(hash) : undefined,
    get: (hash) =>
      Effect.suspend(() => {
        if (poller.isFresh()) {
          const holder = holders.get(hash)
          if (holder !== undefined || unknown.has(hash)) return Effect.succeed(holder)
        }
        return lookUp(hash)
      }),
    evict: (id) => evictKeys((other) => other === id)
  }
  return cache
})
