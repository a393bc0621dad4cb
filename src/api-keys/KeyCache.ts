/**
 * Who holds which secret, remembered: a request with a known key costs no round trip to the database.
 *
 * A poll asks the database which keys changed and forgets those. What is remembered counts only for a second after the
 * start of the last poll that succeeded: so a revoked key works nowhere for longer, also where the poll does not get
 * through, and no message between processes is needed.
 */
import { Clock, Duration, Effect, Schedule, Semaphore } from "effect"
import type { Holder, KeyStore } from "./KeyStore.ts"

const pollInterval = Duration.millis(250)

/** How long after the start of a poll its word counts: less than a second, by the time a request takes to pass here. */
const confirmedFor = 900_000_000n // nanoseconds

/** Look-ups under way at once: unknown keys cannot take the database from those that have one. */
const concurrentLookups = 8
const lookupTimeout = Duration.seconds(2)

const holdersKept = 100_000
const unknownKept = 10_000

export const make = Effect.fnUntraced(function*(store: KeyStore) {
  const holders = new Map<string, Holder>()
  const unknown = new Set<string>()
  const lookups = yield* Semaphore.make(concurrentLookups)
  // Nothing is remembered yet, so that no change matters.
  let mark = 2n ** 64n - 1n
  // Of the monotonic clock: a step of the wall clock makes nothing count for longer.
  let confirmedAt: bigint | undefined
  /** Counts what was forgotten, so that a look-up that began before does not bring it back. */
  let generation = 0

  const forget = (ids: ReadonlyArray<string>): void => {
    generation++
    if (ids.length === 0) return
    const changed = new Set(ids)
    for (const [hash, { key }] of holders) if (changed.has(key.id)) holders.delete(hash)
    unknown.clear()
  }

  const poll = Effect.gen(function*() {
    const startedAt = yield* Clock.monotonicTimeNanos
    const changes = yield* store.changesSince(mark)
    // Marks only grow, unless the database was replaced by another.
    if (changes.mark < mark) holders.clear()
    forget(changes.ids)
    mark = changes.mark
    confirmedAt = startedAt
  }).pipe(
    Effect.timeout("1 second"),
    Effect.catchCause((cause) => Effect.logDebug("Changes of keys cannot be read", cause))
  )
  yield* poll
  yield* Effect.forkScoped(Effect.repeat(poll, Schedule.spaced(pollInterval)))

  const lookup = Effect.fnUntraced(
    function*(hash: string) {
      const before = generation
      const holder = yield* store.findByHash(hash)
      if (generation === before) {
        if (holder === undefined) {
          if (unknown.size >= unknownKept) unknown.clear()
          unknown.add(hash)
        } else {
          if (holders.size >= holdersKept) holders.delete(holders.keys().next().value ?? hash)
          holders.set(hash, holder)
        }
      }
      return holder
    },
    lookups.withPermits(1),
    Effect.timeout(lookupTimeout),
    Effect.orDie
  )

  return {
    /** Who holds the secret with this hash, as of a second ago at most. Dies when the database cannot tell in time. */
    get: Effect.fnUntraced(function*(hash: string) {
      const now = yield* Clock.monotonicTimeNanos
      if (confirmedAt !== undefined && now - confirmedAt < confirmedFor) {
        const holder = holders.get(hash)
        if (holder !== undefined) return holder
        if (unknown.has(hash)) return undefined
      }
      return yield* lookup(hash)
    }),
    /** Forgets a key at once, where this process changed it. */
    forget: (id: string) => Effect.sync(() => forget([id]))
  }
})
