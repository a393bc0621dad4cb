/** Counts the requests of each API key over time, in memory, and adds the counts to a store in the background. */
import { Clock, DateTime, Effect, Semaphore } from "effect"
import type { UsageCounts, UsageHistory, UsageInterval, UsageKind } from "../api/Usage.ts"
import { addUsage, noUsage } from "../api/Usage.ts"
import * as WriteBehind from "../database/WriteBehind.ts"

/** The requests of a key in one minute. `minute` is its begin in epoch milliseconds. */
export interface MinuteCounts extends UsageCounts {
  readonly keyId: string
  readonly minute: number
}

/** The length of an interval, and for how long its counts are kept from its begin. */
export const resolutions = {
  minutes: { seconds: 60, keptSeconds: 60 * 60 },
  hours: { seconds: 60 * 60, keptSeconds: 30 * 24 * 60 * 60 }
}

/** Stores the counts of keys, in minutes and in hours. A database error is a defect. */
export interface UsageStore {
  /** Adds counts to those that are stored. */
  add(counts: ReadonlyArray<MinuteCounts>): Effect.Effect<void>
  /** Returns the counts of a key, oldest first. They can include some that are no longer kept. */
  read(keyId: string): Effect.Effect<UsageHistory>
}

export interface KeyUsage {
  /** Counts a request of a key, decided `at` in epoch milliseconds. The counts hang on the key object, for speed. */
  count(key: { readonly id: string }, kind: UsageKind, at: number): void
  /** Returns all counts of this process, and those that others wrote. Dies if the database does not respond. */
  read(keyId: string): Effect.Effect<UsageHistory>
}

const minuteMs = 60_000

/**
 * The maximum of counts that wait for a write. Beyond it the oldest are lost, and the log says so. One key has one
 * entry for each minute, so these are 1,000 keys in an outage of 100 minutes.
 */
const maxPending = 100_000

/** The maximum of counts in one flush, which bounds the load on the database to 2,000 counts a second. */
const maxPerFlush = 4_000

/** The counts of a minute that are not written yet. */
type Tally = MinuteCounts & Record<UsageKind, number>

/** Makes the counter on a store. It writes pending counts every two seconds, and once more when its scope closes. */
export const make = Effect.fnUntraced(function*(store: UsageStore) {
  const tallies = new WeakMap<{ readonly id: string }, Tally>()
  // A read and a write exclude each other. Otherwise a read could miss counts that are being written.
  const turn = yield* Semaphore.make(1)

  const pending = yield* WriteBehind.make({
    table: "key_usage",
    interval: "2 seconds",
    maxPending,
    maxPerFlush,
    write: (written: ReadonlyMap<Tally, Tally>) =>
      Effect.suspend(() => {
        const taken = [...written.keys()].map((tally) => ({ tally, counts: { ...tally } }))
        for (const { tally } of taken) Object.assign(tally, noUsage)
        return Effect.onError(store.add(taken.map(({ counts }) => counts)), () =>
          Effect.sync(() => {
            for (const { counts, tally } of taken) Object.assign(tally, addUsage(tally, counts))
          }))
      }).pipe(turn.withPermits(1)),
    // The next flush writes the counts again. It counts them twice if the failed write has committed.
    warning: "The usage of keys cannot be stored"
  })

  const usage: KeyUsage = {
    count: (key, kind, at) => {
      const minute = at - at % minuteMs
      let tally = tallies.get(key)
      if (tally?.minute !== minute) {
        tally = { keyId: key.id, minute, ...noUsage }
        tallies.set(key, tally)
      }
      tally[kind]++
      pending.set(tally, tally)
    },
    read: Effect.fn("KeyUsage.read")(function*(keyId) {
      const now = yield* Clock.currentTimeMillis
      const stored = yield* store.read(keyId)
      const own = new Set(pending.values().filter((tally) => tally.keyId === keyId))
      return addCounts(stored, own, now)
    }, turn.withPermits(1))
  }
  return usage
})

/** Returns the sum of stored intervals and of counts, without those that are no longer kept at `now`. */
const addCounts = (stored: UsageHistory, counts: Iterable<MinuteCounts>, now: number): UsageHistory => {
  const sum = (name: keyof UsageHistory): ReadonlyArray<UsageInterval> => {
    const { keptSeconds, seconds } = resolutions[name]
    const sums = new Map(stored[name].map((interval) => [interval.from.epochMilliseconds, interval]))
    for (const each of counts) {
      const from = each.minute - each.minute % (seconds * 1_000)
      sums.set(from, { from: DateTime.makeUnsafe(from), ...addUsage(sums.get(from) ?? noUsage, each) })
    }
    return [...sums.values()]
      .filter(({ from }) => from.epochMilliseconds + keptSeconds * 1_000 > now)
      .toSorted((a, b) => a.from.epochMilliseconds - b.from.epochMilliseconds)
  }
  return { minutes: sum("minutes"), hours: sum("hours") }
}

/** Makes a store in the memory of this process, for tests. */
export const memoryStore = Effect.sync((): UsageStore => {
  const stored: Array<MinuteCounts> = []
  return {
    add: (counts) => Effect.sync(() => void stored.push(...counts)),
    read: (keyId) =>
      Effect.sync(() => addCounts({ minutes: [], hours: [] }, stored.filter((counts) => counts.keyId === keyId), 0))
  }
})
