/** Who holds which secret, remembered: a request with a known key costs no round trip to the database. */
import { Duration, Effect } from "effect"
import * as Batch from "../database/Batch.ts"
import * as Freshness from "../database/Freshness.ts"
import { forgetOldest } from "../Oldest.ts"
import type { Holder, KeyStore } from "./KeyStore.ts"

const lookupTimeout = Duration.seconds(2)
const hashesPerLookup = 1_000

const holdersKept = 100_000
const unknownKept = 10_000

export const make = Effect.fnUntraced(function*(store: KeyStore) {
  const holders = new Map<string, Holder>()
  const unknown = new Set<string>()
  /** Counts what was forgotten, so that a look-up that began before does not bring it back. */
  let generation = 0

  const forget = (isForgotten: (id: string) => boolean): void => {
    generation++
    for (const [hash, { key }] of holders) if (isForgotten(key.id)) holders.delete(hash)
    unknown.clear()
  }

  // The highest there is: nothing is remembered yet, so that no change matters.
  let mark = 2n ** 64n - 1n
  /** The changes that the last poll told: they are told again for as long as an older transaction is open. */
  let told: ReadonlyMap<string, string> = new Map()

  const poll = Effect.gen(function*() {
    const since = mark
    const { changes, mark: next } = yield* store.changesSince(since)
    // Marks only grow, unless the database was replaced by another.
    if (next < since) forget(() => true)
    const fresh = new Set([...changes].filter(([id, change]) => told.get(id) !== change).map(([id]) => id))
    if (fresh.size > 0) forget((id) => fresh.has(id))
    told = changes
    mark = next
  })
  const isFresh = yield* Freshness.make(poll, "Changes of keys cannot be read")

  const remember = (hash: string, holder: Holder | undefined): void => {
    if (holder === undefined) {
      if (unknown.size >= unknownKept) unknown.clear()
      unknown.add(hash)
    } else {
      holders.set(hash, holder)
      forgetOldest(holders, holdersKept)
    }
  }

  // However many keys are made up, the database is asked one thing at a time.
  const ask = yield* Batch.make({
    concurrency: 1,
    size: hashesPerLookup,
    patience: lookupTimeout,
    run: Effect.fnUntraced(function*(hashes: ReadonlyArray<string>) {
      const before = generation
      const found = yield* store.findByHashes(hashes)
      if (generation === before) { for (const hash of hashes) remember(hash, found.get(hash)) }
      return found
    })
  })
  const lookUp = (hash: string) => Effect.orDie(Effect.timeout(ask(hash), lookupTimeout))

  return {
    /** Who holds the secret with this hash, as of a second ago at most. Dies when the database cannot tell in time. */
    get: (hash: string): Effect.Effect<Holder | undefined> =>
      Effect.suspend(() => {
        if (isFresh()) {
          const holder = holders.get(hash)
          if (holder !== undefined || unknown.has(hash)) return Effect.succeed(holder)
        }
        return lookUp(hash)
      }),
    /** Forgets a key at once, where this process changed it. */
    forget: (id: string) => Effect.sync(() => forget((other) => other === id))
  }
})
