import { Clock, Context, DateTime, Effect, Latch, Layer, Order, Random } from "effect"
import { databaseErrors } from "../api/DatabaseErrors.ts"
import type { ServiceUnavailable } from "../api/Errors.ts"
import type { TopUsageQuery, UsageCounts, UsageHistory, UsageInterval, UsageKind } from "../api/Usage.ts"
import { addUsage, noUsage } from "../api/Usage.ts"
import { BackgroundFailures } from "../database/BackgroundFailures.ts"
import * as Deadline from "../database/Deadline.ts"
import * as WriteBehind from "../database/WriteBehind.ts"

interface KeyCounts extends UsageCounts {
  readonly keyId: string
}

export interface MinuteCounts extends KeyCounts {
  /** The start of the minute, in epoch milliseconds. */
  readonly minute: number
}

/** Counts that no longer change. A retry writes the same counts under the same number. */
interface Batch {
  /**
   * Identifies the batch within its process: how many counts all earlier batches have together. So each row of a batch
   * can get a number that no other row of the process has (`rowsOf` of `SqlKeyUsage.ts`).
   */
  readonly number: number
  readonly counts: ReadonlyArray<MinuteCounts>
}

export const resolutions = {
  minutes: { seconds: 60, keptSeconds: 60 * 60 },
  hours: { seconds: 60 * 60, keptSeconds: 30 * 24 * 60 * 60 },
  days: { seconds: 24 * 60 * 60, keptSeconds: 2 * 24 * 60 * 60 }
}

export interface UsageStore {
  /** Writes a batch of this process. Until its rows are deleted, another call with the same batch changes nothing. */
  add(batch: Batch): Effect.Effect<void, unknown>
  /**
   * Adds written counts to the totals that `top` reads. Starts no further statement after 100 ms. Later runs add up the
   * rest.
   */
  readonly addUp: Effect.Effect<void>
  read(keyId: string, now: number): Effect.Effect<UsageHistory, ServiceUnavailable>
  /**
   * Returns the keys with the most requests of the kind `by`, in the hour or day that starts at `since`. Adds `pending`
   * to the stored totals. Written counts that no run of `addUp` has reached yet are missing.
   */
  top(
    selection: Readonly<{ by: UsageKind; limit: number; seconds: number; since: DateTime.Utc }>,
    pending: ReadonlyArray<KeyCounts>
  ): Effect.Effect<ReadonlyArray<KeyCounts>, ServiceUnavailable>
}

/** Counts the requests of each API key, by minute, hour and day. */
export class KeyUsage extends Context.Service<KeyUsage, {
  /** Counts one request at `atMs`, in epoch milliseconds. */
  count(keyId: string, kind: UsageKind, atMs: number): void
  /**
   * Returns the counts that are stored, or pending in this process. The pending counts of other processes are missing.
   */
  read(keyId: string): Effect.Effect<UsageHistory, ServiceUnavailable>
  /** Returns the keys with the most requests of one kind (`by`), highest first. */
  top(query: TopUsageQuery & { readonly limit: number }): Effect.Effect<ReadonlyArray<KeyCounts>, ServiceUnavailable>
}>()("api-keys/KeyUsage") {
  /** Keeps the counts in memory. */
  static readonly layerMemory = Layer.effect(KeyUsage, Effect.suspend(() => Effect.flatMap(memoryStore, make))).pipe(
    Layer.provide(BackgroundFailures.layerIgnored)
  )
}

export const startOf = (atMs: number, seconds: number): number => atMs - atMs % (seconds * 1_000)

/**
 * The maximum number of open counts, and also of sealed ones (the laws of `make`). Each key in use adds one count a
 * minute.
 */
const maxCounts = 50_000

/**
 * The maximum number of counts in a batch. It limits the time of a statement, and how long serializing the batch blocks
 * the event loop.
 */
const countsPerBatch = 1_000

/**
 * A process seals the counts of a minute up to this long after the minute's end. Each process has a random delay, so
 * that not all of them write at once.
 */
const maxSealDelayMs = 30_000

/** `top` adds the pending counts of at most this many keys: those with the most pending requests of the kind `by`. */
const maxRankedPending = 1_000

/**
 * Counts requests by key and minute. It keeps these laws:
 *
 * 1. A count stays open for up to `maxSealDelayMs` after the end of its minute, or longer (law 4). It is then sealed,
 *    which puts it in one batch, and stored once the batch is written. If `maxCounts` counts are open, or the scope
 *    closes, all of them are sealed early.
 * 2. A batch does not change, and its retry has no effect while the rows of an earlier attempt are stored. So no count
 *    is stored twice, unless such rows expire before the retry.
 * 3. At most `maxCounts` counts are open, and at most as many wait in batches, not counting a running write. Beyond
 *    that, the oldest batches are dropped, until 90 % are left.
 * 4. While a batch is not written, as in an outage of the database, counts stay open until there are `maxCounts`. So a
 *    process with few keys drops nothing for days.
 * 5. When the scope closes, all open counts are sealed, and one last flush writes the batches. Counts that it cannot
 *    write are lost.
 */
export const make = Effect.fnUntraced(function*(store: UsageStore) {
  const sealDelayMs = yield* Random.nextIntBetween(0, maxSealDelayMs)
  const withinDeadline = yield* Deadline.make(databaseErrors.unavailable)
  const sealed = yield* WriteBehind.make<number, Batch>({
    table: "key_usage",
    interval: "2 seconds",
    maxPending: maxCounts / countsPerBatch,
    // Add up before the flush ends. `top` waits for the flush, and then usually finds these counts in the totals.
    write: (batches) => Effect.andThen(Effect.forEach(batches.values(), store.add, { discard: true }), store.addUp)
  })

  /** The open counts, by minute and key. */
  const open = new Map<number, Map<string, Record<UsageKind, number>>>()
  let openCounts = 0
  const hasOpen = yield* Latch.make()
  let sealedCounts = 0
  const sealBefore = (minute: number): void => {
    const counts: Array<MinuteCounts> = []
    for (const [each, keys] of open) {
      if (each >= minute) continue
      for (const [keyId, own] of keys) counts.push({ keyId, minute: each, ...own })
      open.delete(each)
      openCounts -= keys.size
    }
    counts.sort((a, b) => a.minute - b.minute || Order.String(partOf(a.keyId), partOf(b.keyId)))
    for (let i = 0; i < counts.length; i += countsPerBatch) {
      const batch = { number: sealedCounts, counts: counts.slice(i, i + countsPerBatch) }
      sealed.add(batch.number, batch)
      sealedCounts += batch.counts.length
    }
  }
  const sealFinished = Effect.gen(function*() {
    yield* hasOpen.await
    const minuteMs = resolutions.minutes.seconds * 1_000
    const untilSeal = minuteMs - ((yield* Clock.currentTimeMillis) - sealDelayMs) % minuteMs
    yield* Effect.sleep(untilSeal)
    if (sealed.size() === 0) sealBefore(startOf((yield* Clock.currentTimeMillis) - sealDelayMs, minuteMs / 1_000))
    if (openCounts === 0) hasOpen.closeUnsafe()
  })
  yield* Effect.forkScoped(Effect.forever(sealFinished))
  // Finalizers run in reverse order, so this one seals the open counts before the last flush of `sealed`.
  yield* Effect.addFinalizer(() => Effect.sync(() => sealBefore(Infinity)))

  const pending = (): ReadonlyArray<MinuteCounts> => [
    ...sealed.values().flatMap(({ counts }) => counts),
    ...open.entries().flatMap(([minute, keys]) => Array.from(keys, ([keyId, own]) => ({ keyId, minute, ...own })))
  ]
  const pendingOf = (keyId: string): ReadonlyArray<MinuteCounts> => [
    ...sealed.values().flatMap(({ counts }) => counts.filter((each) => each.keyId === keyId)),
    ...open.entries().flatMap(([minute, keys]) => {
      const own = keys.get(keyId)
      return own === undefined ? [] : [{ keyId, minute, ...own }]
    })
  ]

  return KeyUsage.of({
    count: (keyId, kind, atMs) => {
      const minute = startOf(atMs, resolutions.minutes.seconds)
      let keys = open.get(minute)
      if (keys === undefined) open.set(minute, keys = new Map())
      let counts = keys.get(keyId)
      if (counts === undefined) {
        keys.set(keyId, counts = { ...noUsage })
        openCounts++
        hasOpen.openUnsafe()
      }
      counts[kind]++
      if (openCounts >= maxCounts) sealBefore(Infinity)
    },
    read: Effect.fn("KeyUsage.read")(
      function*(keyId) {
        const now = yield* Clock.currentTimeMillis
        const stored = yield* store.read(keyId, now)
        return addCounts(stored, pendingOf(keyId), now)
      },
      sealed.betweenFlushes,
      withinDeadline
    ),
    top: Effect.fn("KeyUsage.top")(
      function*({ by = "allowed", limit, window = "hour" }) {
        const { seconds } = window === "hour" ? resolutions.hours : resolutions.days
        const since = startOf(yield* Clock.currentTimeMillis, seconds)
        const own = sumByKey(pending().filter(({ minute }) => startOf(minute, seconds) === since))
        const ranked = own.toSorted((a, b) => b[by] - a[by]).slice(0, maxRankedPending)
        return yield* store.top({ by, limit, seconds, since: DateTime.makeUnsafe(since) }, ranked)
      },
      sealed.betweenFlushes,
      withinDeadline
    )
  })
})

/**
 * Keys whose ids end with the same two characters share rows of `key_usage_minutes`. So a read of one key reads 1 of
 * 3,844 parts.
 */
export const partOf = (keyId: string): string => keyId.slice(-2)

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
  const batches = new Map<number, ReadonlyArray<MinuteCounts>>()
  const stored = () => [...batches.values()].flat()
  return {
    add: ({ counts, number }) => Effect.sync(() => void batches.set(number, counts)),
    addUp: Effect.void,
    read: (keyId) =>
      Effect.sync(() => addCounts({ minutes: [], hours: [] }, stored().filter((counts) => counts.keyId === keyId), 0)),
    top: ({ by, limit, seconds, since }, pending) =>
      Effect.sync(() =>
        sumByKey([
          ...stored().filter(({ minute }) => startOf(minute, seconds) === since.epochMilliseconds),
          ...pending
        ]).filter((counts) => counts[by] > 0).toSorted((a, b) => b[by] - a[by] || Order.String(a.keyId, b.keyId))
          .slice(0, limit)
      )
  }
})
