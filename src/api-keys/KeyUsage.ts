import { Clock, Context, DateTime, Effect, Layer } from "effect"
import type { ServiceUnavailable } from "../api/Errors.ts"
import type { TopUsageQuery, UsageCounts, UsageHistory, UsageInterval, UsageKind } from "../api/Usage.ts"
import { addUsage, noUsage } from "../api/Usage.ts"
import * as WriteBehind from "../database/WriteBehind.ts"

interface KeyCounts extends UsageCounts {
  readonly keyId: string
}

export interface MinuteCounts extends KeyCounts {
  /** The start of the minute, in epoch milliseconds. */
  readonly minute: number
}

export const resolutions = {
  minutes: { seconds: 60, keptSeconds: 60 * 60 },
  hours: { seconds: 60 * 60, keptSeconds: 30 * 24 * 60 * 60 }
}

export interface UsageStore {
  add(counts: Iterable<MinuteCounts>): Effect.Effect<void, unknown>
  read(keyId: string): Effect.Effect<UsageHistory, ServiceUnavailable>
  top(
    selection: Readonly<{ by: UsageKind; limit: number; seconds: number; since: DateTime.Utc }>,
    pending: ReadonlyArray<KeyCounts>
  ): Effect.Effect<ReadonlyArray<KeyCounts>, ServiceUnavailable>
}

/** Counts the requests of each API key, by minute and by hour. */
export class KeyUsage extends Context.Service<KeyUsage, {
  /** Counts one request at `atMs`, in epoch milliseconds. */
  count(keyId: string, kind: UsageKind, atMs: number): void
  /** Returns stored and pending counts. The pending counts of other processes are missing. */
  read(keyId: string): Effect.Effect<UsageHistory, ServiceUnavailable>
  /** Returns the keys with the most requests, highest first. */
  top(query: TopUsageQuery & { readonly limit: number }): Effect.Effect<ReadonlyArray<KeyCounts>, ServiceUnavailable>
}>()("petstore/KeyUsage") {
  /** Keeps the counts in memory. */
  static readonly layerMemory = Layer.effect(KeyUsage, Effect.suspend(() => Effect.flatMap(memoryStore, make)))
}

const startOf = (atMs: number, seconds: number): number => atMs - atMs % (seconds * 1_000)

export const make = Effect.fnUntraced(function*(store: UsageStore) {
  const pending = yield* WriteBehind.make<string, MinuteCounts>({
    table: "key_usage",
    interval: "2 seconds",
    // In a database outage, each key in use adds one entry a minute, so 1,000 keys reach the maximum in 100 minutes.
    maxPending: 100_000,
    combine: (older, newer) => ({ ...older, ...addUsage(older, newer) }),
    // If a write fails although it was committed, its retry counts the same requests twice.
    write: (counts) => store.add(counts.values())
  })

  return KeyUsage.of({
    count: (keyId, kind, atMs) => {
      const minute = startOf(atMs, resolutions.minutes.seconds)
      pending.add(`${minute} ${keyId}`, { keyId, minute, ...noUsage, [kind]: 1 })
    },
    read: Effect.fn("KeyUsage.read")(function*(keyId) {
      const now = yield* Clock.currentTimeMillis
      const stored = yield* store.read(keyId)
      return addCounts(stored, pending.values().filter((counts) => counts.keyId === keyId), now)
    }, pending.betweenFlushes),
    top: Effect.fn("KeyUsage.top")(function*({ by = "allowed", limit, window = "hour" }) {
      const [{ seconds }, count] = window === "hour" ? [resolutions.minutes, 60] : [resolutions.hours, 24]
      const since = (yield* Clock.currentTimeMillis) - count * seconds * 1_000
      const own = pending.values().filter(({ minute }) => startOf(minute, seconds) > since)
      return yield* store.top({ by, limit, seconds, since: DateTime.makeUnsafe(since) }, sumByKey(own))
    }, pending.betweenFlushes)
  })
})

const addCounts = (stored: UsageHistory, counts: Iterable<MinuteCounts>, now: number): UsageHistory => {
  const sum = (name: keyof UsageHistory): ReadonlyArray<UsageInterval> => {
    const { keptSeconds, seconds } = resolutions[name]
    const sums = new Map(stored[name].map((interval) => [interval.from.epochMilliseconds, interval]))
    for (const each of counts) {
      const from = startOf(each.minute, seconds)
      sums.set(from, { from: DateTime.makeUnsafe(from), ...addUsage(sums.get(from) ?? noUsage, each) })
    }
    return [...sums.values()]
      .filter(({ from }) => from.epochMilliseconds + keptSeconds * 1_000 > now)
      .toSorted((a, b) => a.from.epochMilliseconds - b.from.epochMilliseconds)
  }
  return { minutes: sum("minutes"), hours: sum("hours") }
}

const sumByKey = (counts: Iterable<KeyCounts>): ReadonlyArray<KeyCounts> => {
  const sums = new Map<string, KeyCounts>()
  for (const { keyId, ...each } of counts) sums.set(keyId, { keyId, ...addUsage(sums.get(keyId) ?? noUsage, each) })
  return [...sums.values()]
}

export const memoryStore = Effect.sync((): UsageStore => {
  const stored: Array<MinuteCounts> = []
  return {
    add: (counts) => Effect.sync(() => void stored.push(...counts)),
    read: (keyId) =>
      Effect.sync(() => addCounts({ minutes: [], hours: [] }, stored.filter((counts) => counts.keyId === keyId), 0)),
    top: ({ by, limit, seconds, since }, pending) =>
      Effect.sync(() =>
        sumByKey([
          ...stored.filter(({ minute }) => startOf(minute, seconds) > since.epochMilliseconds),
          ...pending
        ]).filter((counts) => counts[by] > 0).toSorted((a, b) => b[by] - a[by] || (a.keyId < b.keyId ? -1 : 1))
          .slice(0, limit)
      )
  }
})
