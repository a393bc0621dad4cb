/** Tests the usage of keys over time, in memory and on each database. */
import { assert, describe, it as single, layer } from "@effect/vitest"
import { DateTime, Effect, Exit, Layer, Scope } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { ApiKeys } from "../../src/api-keys/ApiKeys.ts"
import { make, memoryStore, type MinuteCounts, type UsageStore } from "../../src/api-keys/KeyUsage.ts"
import * as SqlApiKeys from "../../src/api-keys/SqlApiKeys.ts"
import { usageStore } from "../../src/api-keys/SqlKeyHistory.ts"
import type { UsageInterval, UsageKind } from "../../src/api/Usage.ts"
import { databases, random, stores } from "../support/Harness.ts"

const minuteMs = 60_000
const hourMs = 60 * minuteMs
/** 2026-11-23T10:00:00Z */
const start = 1_795_428_000_000

/** Sets the clock before a layer is built. A later step would run all periodic work in between. */
const atStart = Layer.effectDiscard(TestClock.setTime(start))

/** Counts requests of a key, by default at the time of the test clock. */
const count = Effect.fnUntraced(function*(
  usage: ApiKeys["Service"]["usage"],
  key: { readonly id: string },
  counts: Partial<Record<UsageKind, number>>,
  time?: number
) {
  const at = time ?? (yield* DateTime.now).epochMilliseconds
  for (const outcome of ["allowed", "rejected", "banned"] as const) {
    for (let n = counts[outcome] ?? 0; n > 0; n--) usage.count(key, outcome, at)
  }
})

/** Returns an interval as a row: minutes since the start, allowed, rejected, banned. */
const toRow = ({ allowed, banned, from, rejected }: UsageInterval) => [
  (from.epochMilliseconds - start) / minuteMs,
  allowed,
  rejected,
  banned
]

const read = (usage: ApiKeys["Service"]["usage"], keyId: string) =>
  Effect.map(usage.read(keyId), ({ hours, minutes }) => ({ minutes: minutes.map(toRow), hours: hours.map(toRow) }))

for (const store of stores) {
  describe.skipIf(store.skip)(`The usage of keys on ${store.name}`, () => {
    layer(Layer.provide(store.layer, atStart))((it) => {
      it.effect("has allowed, rejected and banned requests by minute and by hour", () =>
        Effect.gen(function*() {
          const { usage } = yield* ApiKeys
          assert.deepStrictEqual(yield* usage.read("key_none"), { minutes: [], hours: [] })
          const key = { id: "key_counted" }
          yield* TestClock.setTime(start + 59 * minuteMs)
          yield* count(usage, key, { allowed: 3, rejected: 2 }, start + 30_000)
          yield* count(usage, key, { allowed: 1, banned: 4 }, start + 10 * minuteMs)
          yield* count(usage, { id: "key_other" }, { allowed: 9 })
          yield* count(usage, key, { rejected: 1 })
          const expected = {
            minutes: [[0, 3, 2, 0], [10, 1, 0, 4], [59, 0, 1, 0]],
            hours: [[0, 4, 3, 4]]
          }
          assert.deepStrictEqual(yield* read(usage, key.id), expected)
          yield* TestClock.adjust("3 seconds")
          assert.deepStrictEqual(yield* read(usage, key.id), expected)

          // Some counts of this minute are stored now, and one is not.
          yield* count(usage, key, { allowed: 1 })
          assert.deepStrictEqual((yield* read(usage, key.id)).minutes.at(-1), [59, 1, 1, 0])
          yield* TestClock.adjust("3 seconds")
          yield* read(usage, key.id)
          // A minute is visible for 60 minutes, the current one among them.
          yield* TestClock.setTime(start + 60 * minuteMs)
          assert.deepStrictEqual(yield* read(usage, key.id), {
            minutes: [[10, 1, 0, 4], [59, 1, 1, 0]],
            hours: [[0, 5, 3, 4]]
          })
          yield* count(usage, key, { allowed: 1 })
          assert.deepStrictEqual((yield* read(usage, key.id)).hours, [[0, 5, 3, 4], [60, 1, 0, 0]])
        }))

      it.effect("has each of the last 720 hours", () =>
        Effect.gen(function*() {
          const { usage } = yield* ApiKeys
          const key = { id: "key_month" }
          yield* TestClock.setTime(start + 2 * hourMs)
          for (const hour of [0, -1, -719, -720]) {
            yield* count(usage, key, { allowed: 1 }, start + (2 + hour) * hourMs)
          }
          const hours = Effect.map(
            read(usage, key.id),
            (history) => history.hours.map(([minutes = 0]) => minutes / 60 - 2)
          )
          assert.deepStrictEqual(yield* hours, [-719, -1, 0])
          yield* TestClock.adjust("1 hour")
          assert.deepStrictEqual(yield* hours, [-1, 0])
        }))
    })
  })
}

const storedOn = <E>(database: Layer.Layer<SqlClient.SqlClient, E>) =>
  SqlApiKeys.layer.pipe(Layer.provide(random), Layer.provideMerge(database), Layer.provide(atStart))

for (const database of databases) {
  describe.skipIf(database.skip)(`The stored usage of keys on ${database.name}`, () => {
    layer(storedOn(database.layer))((it) => {
      it.effect("is the sum of all processes that use the database", () =>
        Effect.gen(function*() {
          const store = yield* usageStore
          const processes = [yield* make(store), yield* make(store), yield* make(store), yield* make(store)] as const
          for (let round = 0; round < 5; round++) {
            for (const usage of processes) {
              for (let key = 0; key < 50; key++) yield* count(usage, { id: `key_shared_${key}` }, { allowed: 1 })
            }
            yield* TestClock.adjust("2 seconds")
            // A read waits for the write that has begun.
            for (const usage of processes) yield* usage.read("key_shared_0")
          }
          const { usage } = yield* ApiKeys
          for (let key = 0; key < 50; key++) {
            assert.deepStrictEqual((yield* read(usage, `key_shared_${key}`)).hours, [[0, 20, 0, 0]])
          }
        }))

      it.effect("is deleted after an hour for minutes, and after 30 days for hours", () =>
        Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          const { usage } = yield* ApiKeys
          yield* count(usage, { id: "key_old" }, { allowed: 1 })
          yield* TestClock.adjust("2 seconds")
          const kept = Effect.map(
            sql<{ readonly seconds: number }>`SELECT seconds FROM key_usage WHERE key_id = 'key_old' ORDER BY seconds`,
            (rows) => rows.map(({ seconds }) => seconds).join()
          )
          while ((yield* kept) !== "60,3600") yield* TestClock.adjust("2 seconds")
          const age = (seconds: number) =>
            sql`UPDATE key_usage SET starts_at = starts_at - make_interval(secs => ${seconds}) WHERE key_id = 'key_old'`
          yield* age(3_600)
          while ((yield* kept) !== "3600") yield* TestClock.adjust("1 minute")
          yield* age(30 * 86_400)
          while ((yield* kept) !== "") yield* TestClock.adjust("1 minute")
        }))

      it.effect("keeps the counts of an outage, and returns to the database by itself", () =>
        Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          const { usage } = yield* ApiKeys
          const key = { id: "key_outage" }
          yield* count(usage, key, { allowed: 1 })
          yield* sql`ALTER TABLE key_usage RENAME TO gone`
          yield* TestClock.adjust("4 seconds")
          yield* count(usage, key, { allowed: 1, rejected: 1 })
          assert.isTrue(Exit.isFailure(yield* Effect.exit(usage.read(key.id))))
          yield* TestClock.adjust("4 seconds")
          yield* sql`ALTER TABLE gone RENAME TO key_usage`
          const counts = Effect.map(read(usage, key.id), ({ minutes: [first = []] }) => first.slice(1))
          assert.deepStrictEqual(yield* counts, [2, 1, 0])
          yield* TestClock.adjust("4 seconds")
          assert.deepStrictEqual(yield* counts, [2, 1, 0])
        }))
    })
  })
}

describe("The memory and the writes for the usage of keys", () => {
  /** A store that keeps what it is given, and fails while `isDown`. */
  const recordingStore = Effect.map(memoryStore, (memory) => {
    const writes: Array<ReadonlyArray<MinuteCounts>> = []
    const recording = { writes, isDown: false }
    const store: UsageStore = {
      ...memory,
      add: (counts) =>
        Effect.suspend(() => {
          if (recording.isDown) return Effect.die("The database is down")
          writes.push(counts)
          return memory.add(counts)
        })
    }
    return { recording, store }
  })

  single.effect(
    "write at most 4,000 counts every two seconds, oldest first",
    () =>
      Effect.gen(function*() {
        yield* TestClock.setTime(start)
        const { recording: { writes }, store } = yield* recordingStore
        const usage = yield* make(store)
        for (let n = 0; n < 10_000; n++) usage.count({ id: `key_${n}` }, "allowed", start)
        // The first interval ends at once.
        yield* TestClock.adjust("1 second")
        assert.deepStrictEqual(writes.map((counts) => counts.length), [1_000, 1_000, 1_000, 1_000])
        assert.strictEqual(writes[0]?.[0]?.keyId, "key_0")
        assert.deepStrictEqual((yield* read(usage, "key_9999")).hours, [[0, 1, 0, 0]])
        yield* TestClock.adjust("4 seconds")
        assert.deepStrictEqual(
          writes.flat().map(({ keyId }) => keyId),
          Array.from({ length: 10_000 }, (_, n) => `key_${n}`)
        )
      })
  )

  single.effect("write all pending counts at a graceful shutdown", () =>
    Effect.gen(function*() {
      const { recording: { writes }, store } = yield* recordingStore
      const scope = yield* Scope.make()
      const usage = yield* Effect.provideService(make(store), Scope.Scope, scope)
      for (let n = 0; n < 10_000; n++) usage.count({ id: `key_${n}` }, "rejected", start)
      yield* Scope.close(scope, Exit.void)
      assert.lengthOf(writes.flat(), 10_000)
    }))

  single.effect("hold at most 100,000 counts of an outage, the newest ones", () =>
    Effect.gen(function*() {
      yield* TestClock.setTime(start)
      const { recording, store } = yield* recordingStore
      const usage = yield* make(store)
      recording.isDown = true
      for (let n = 0; n < 250_000; n++) usage.count({ id: `key_${n}` }, "allowed", start)
      yield* TestClock.adjust("2 seconds")
      recording.isDown = false
      yield* TestClock.adjust("100 seconds")
      const written = recording.writes.flat().map(({ keyId }) => keyId)
      assert.isAtMost(written.length, 100_000)
      assert.isAtLeast(written.length, 90_000)
      assert.strictEqual(written.at(-1), "key_249999")
    }))

  single.effect("count nothing twice when requests come during a failed write", () =>
    Effect.gen(function*() {
      yield* TestClock.setTime(start)
      const { recording, store } = yield* recordingStore
      const key = { id: "key_during" }
      let attempts = 0
      const usage = yield* make({
        ...store,
        add: (counts) =>
          Effect.suspend(() => {
            attempts++
            usage.count(key, "allowed", start)
            return store.add(counts)
          })
      })
      recording.isDown = true
      usage.count(key, "allowed", start)
      yield* TestClock.adjust("6 seconds")
      recording.isDown = false
      yield* TestClock.adjust("20 seconds")
      const { hours } = yield* read(usage, key.id)
      assert.deepStrictEqual(hours, [[0, 1 + attempts, 0, 0]])
    }))
})
