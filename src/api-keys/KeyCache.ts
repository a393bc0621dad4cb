/**
 * Who holds which secret, remembered: a request with a known key costs no round trip to the database.
 *
 * A poll asks the database which keys changed and forgets those. What is remembered counts only for a second after the
 * start of the last poll that succeeded: so a revoked key works nowhere for longer, also where the poll does not get
 * through, and no message between processes is needed.
 */
import { Clock, Deferred, Duration, Effect, Exit, Schedule, Scope } from "effect"
import { forgetOldest } from "../Oldest.ts"
import type { Holder, KeyStore } from "./KeyStore.ts"

/** Polls start this often, also while one before is under way: a slow database is asked in time, too. */
const pollInterval = Duration.millis(250)

/** How long after the start of a poll its word counts: less than a second, by the time a request takes to pass here. */
const confirmedFor = Duration.millis(900)

const lookupTimeout = Duration.seconds(2)
const hashesPerLookup = 1_000

const holdersKept = 100_000
const unknownKept = 10_000

export const make = Effect.fnUntraced(function*(store: KeyStore) {
  const scope = yield* Scope.Scope
  const holders = new Map<string, Holder>()
  const unknown = new Set<string>()
  /** Counts what was forgotten, so that a look-up that began before does not bring it back. */
  let generation = 0

  const forget = (isForgotten: (id: string) => boolean): void => {
    generation++
    for (const [hash, { key }] of holders) if (isForgotten(key.id)) holders.delete(hash)
    unknown.clear()
  }

  // Nothing is remembered yet, so that no change matters.
  let mark = 2n ** 64n - 1n
  /** The changes that the last poll told: they are told again for as long as an older transaction is open. */
  let told: ReadonlyMap<string, string> = new Map()
  // Of the monotonic clock: a step of the wall clock makes nothing count for longer.
  let confirmedAt: bigint | undefined

  const poll = Effect.gen(function*() {
    const startedAt = yield* Clock.monotonicTimeNanos
    const since = mark
    const { changes, mark: next } = yield* store.changesSince(since)
    // Marks only grow, unless the database was replaced by another.
    if (next < since) forget(() => true)
    const fresh = new Set([...changes].filter(([id, change]) => told.get(id) !== change).map(([id]) => id))
    if (fresh.size > 0) forget((id) => fresh.has(id))
    told = changes
    mark = next
    if (confirmedAt === undefined || startedAt > confirmedAt) confirmedAt = startedAt
  }).pipe(
    Effect.timeout(confirmedFor),
    Effect.catchCause((cause) => Effect.logWarning("Changes of keys cannot be read", cause))
  )
  yield* poll
  yield* Effect.forkScoped(Effect.repeat(Effect.forkIn(poll, scope), Schedule.spaced(pollInterval)))

  // Look-ups of the same hash are one, and those that come while another is under way share the next query: however many
  // keys are made up, they ask the database one thing at a time.
  let waiting = new Map<string, Deferred.Deferred<Holder | undefined>>()
  let isLookingUp = false

  const lookUpWaiting = Effect.gen(function*() {
    while (waiting.size > 0) {
      const batch = new Map([...waiting].slice(0, hashesPerLookup))
      waiting = new Map([...waiting].slice(hashesPerLookup))
      const before = generation
      const found = yield* store.findByHashes([...batch.keys()]).pipe(
        Effect.timeout(lookupTimeout),
        Effect.orDie,
        Effect.exit
      )
      for (const [hash, deferred] of batch) {
        const holder = Exit.map(found, (byHash) => byHash.get(hash))
        if (Exit.isSuccess(holder) && generation === before) remember(hash, holder.value)
        Deferred.doneUnsafe(deferred, holder)
      }
    }
    // In one step with the last look at what is waiting: whoever comes later starts anew.
    isLookingUp = false
  })

  const remember = (hash: string, holder: Holder | undefined): void => {
    if (holder === undefined) {
      if (unknown.size >= unknownKept) unknown.clear()
      unknown.add(hash)
    } else {
      holders.set(hash, holder)
      forgetOldest(holders, holdersKept)
    }
  }

  const lookUp = Effect.fnUntraced(
    function*(hash: string) {
      let deferred = waiting.get(hash)
      if (deferred === undefined) {
        deferred = Deferred.makeUnsafe<Holder | undefined>()
        waiting.set(hash, deferred)
      }
      if (!isLookingUp) {
        isLookingUp = true
        yield* Effect.forkIn(lookUpWaiting, scope)
      }
      return yield* Deferred.await(deferred)
    },
    Effect.timeout(lookupTimeout),
    Effect.orDie
  )

  return {
    /** Who holds the secret with this hash, as of a second ago at most. Dies when the database cannot tell in time. */
    get: Effect.fnUntraced(function*(hash: string) {
      const now = yield* Clock.monotonicTimeNanos
      if (confirmedAt !== undefined && now - confirmedAt < Duration.toNanosUnsafe(confirmedFor)) {
        const holder = holders.get(hash)
        if (holder !== undefined) return holder
        if (unknown.has(hash)) return undefined
      }
      return yield* lookUp(hash)
    }),
    /** Forgets a key at once, where this process changed it. */
    forget: (id: string) => Effect.sync(() => forget((other) => other === id))
  }
})
