import { assert, it } from "@effect/vitest"
import { Clock, Context, Effect, Exit, Fiber, Layer, Metric, Scope } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { KeyUsage, make, memoryStore } from "../../src/api-keys/KeyUsage.ts"
import * as SqlKeyUsage from "../../src/api-keys/SqlKeyUsage.ts"
import type { UsageInterval, UsageKind } from "../../src/api/Usage.ts"
import { describeOnEach, stores } from "../support/Databases.ts"

const minuteMs = 60_000
const hourMs = 60 * minuteMs
/** 2026-11-23T10:00:00Z */
const start = 1_795_428_000_000

type Usage = KeyUsage["Service"]

/** Counts requests of a key in the minute `minute` since the start. */
const count = (usage: Usage, keyId: string, counts: Partial<Record<UsageKind, number>>, minute = 0) => {
  for (const outcome of ["allowed", "rejected", "banned"] as const) {
    for (let n = counts[outcome] ?? 0; n > 0; n--) usage.count(keyId, outcome, start + minute * minuteMs)
  }
}

/** Returns intervals as rows: minutes since the start, allowed, rejected, banned. */
const toRows = (intervals: ReadonlyArray<UsageInterval>) =>
  intervals.map((each) => [(each.from.epochMilliseconds - start) / minuteMs, each.allowed, each.rejected, each.banned])

/** Ends the write of all counts. If the clock jumped meanwhile, the write would time out, and its retry count twice. */
const flush = (usage: Usage) => Effect.andThen(TestClock.adjust("3 seconds"), usage.read("key_none"))

const read = (usage: Usage, keyId: string) =>
  Effect.map(usage.read(keyId), ({ hours, minutes }) => ({ minutes: toRows(minutes), hours: toRows(hours) }))

// A step of the clock after a layer is built would run all periodic work in between.
const atStart = Layer.effectDiscard(TestClock.setTime(start))
const storesAtStart = stores.map((store) => ({ ...store, layer: Layer.provide(store.layer, atStart) }))

describeOnEach(storesAtStart, "Key usage", (it, store) => {
  it.effect("counts allowed, rejected and banned requests by minute and by hour", () =>
    Effect.gen(function*() {
      const usage = yield* KeyUsage
      assert.deepStrictEqual(yield* usage.read("key_none"), { minutes: [], hours: [] })
      const key = "key_counted"
      yield* TestClock.setTime(start + 59 * minuteMs)
      count(usage, key, { allowed: 3, rejected: 2 }, 0.5)
      count(usage, key, { allowed: 1, banned: 4 }, 10)
      count(usage, "key_other", { allowed: 9 }, 59)
      count(usage, key, { rejected: 1 }, 59)
      const expected = { minutes: [[0, 3, 2, 0], [10, 1, 0, 4], [59, 0, 1, 0]], hours: [[0, 4, 3, 4]] }
      assert.deepStrictEqual(yield* read(usage, key), expected)
      yield* flush(usage)
      assert.deepStrictEqual(yield* read(usage, key), expected)

      // Some counts of this minute are stored now, and one is not.
      count(usage, key, { allowed: 1 }, 59)
      assert.deepStrictEqual((yield* read(usage, key)).minutes.at(-1), [59, 1, 1, 0])
      yield* flush(usage)
      // A minute is visible for 60 minutes, the current one among them.
      yield* TestClock.setTime(start + hourMs)
      count(usage, key, { allowed: 1 }, 60)
      const minutes = [[10, 1, 0, 4], [59, 1, 1, 0], [60, 1, 0, 0]]
      assert.deepStrictEqual(yield* read(usage, key), { minutes, hours: [[0, 5, 3, 4], [60, 1, 0, 0]] })
      yield* flush(usage)
    }))

  it.effect("covers each of the last 720 hours", () =>
    Effect.gen(function*() {
      const usage = yield* KeyUsage
      const key = "key_month"
      yield* TestClock.setTime(start + 2 * hourMs)
      for (const hour of [2, 1, -717, -718]) count(usage, key, { allowed: 1 }, 60 * hour)
      const hours = Effect.map(read(usage, key), (history) => history.hours.map(([minutes = 0]) => minutes / 60))
      assert.deepStrictEqual(yield* hours, [-717, 1, 2])
      yield* flush(usage)
      assert.deepStrictEqual(yield* hours, [-717, 1, 2])
      yield* TestClock.adjust("1 hour")
      assert.deepStrictEqual(yield* hours, [1, 2])
    }))

  it.effect("lists the keys with the most requests of one kind in the last 60 minutes or 24 hours", () =>
    Effect.gen(function*() {
      const usage = yield* KeyUsage
      const now = 3 * 60
      yield* TestClock.setTime(start + now * minuteMs)
      count(usage, "a", { allowed: 50, rejected: 10 }, now - 59)
      count(usage, "b", { allowed: 30, banned: 20 }, now - 1)
      count(usage, "c", { rejected: 20 }, now - 60)
      count(usage, "c", { allowed: 90 }, now - 23 * 60)
      count(usage, "d", { allowed: 990 }, now - 24 * 60)
      const b = { keyId: "b", allowed: 30, rejected: 0, banned: 20 }
      const c = { keyId: "c", allowed: 90, rejected: 20, banned: 0 }
      // Before a flush, after it, and with some of the counts flushed.
      for (let round = 0; round < 3; round++) {
        const a = { keyId: "a", allowed: 50 + round, rejected: 10, banned: 0 }
        assert.deepStrictEqual(yield* usage.top({ limit: 2 }), [a, b])
        assert.deepStrictEqual(yield* usage.top({ limit: 9, window: "hour", by: "rejected" }), [a])
        assert.deepStrictEqual(yield* usage.top({ limit: 1, by: "banned" }), [b])
        assert.deepStrictEqual(yield* usage.top({ limit: 2, window: "day" }), [c, a])
        yield* flush(usage)
        count(usage, "a", { allowed: 1 }, now)
      }
    }))

  if (store === "memory") return

  it.effect("is the sum over all processes that use the database, including those that were shut down gracefully", () =>
    Effect.gen(function*() {
      const newProcess = Effect.map(Layer.build(Layer.fresh(SqlKeyUsage.layer)), Context.get(KeyUsage))
      const ended = yield* Scope.make()
      const processes = [yield* Scope.provide(newProcess, ended), yield* newProcess, yield* newProcess]
      const countAll = () => processes.forEach((usage) => count(usage, "key_shared", { allowed: 1 }))
      for (let round = 0; round < 4; round++) {
        countAll()
        yield* TestClock.adjust("2 seconds")
        // A read waits for the write that has begun.
        for (const usage of processes) yield* usage.read("key_shared")
      }
      // The shutdown begins during a write, whose statement would also commit if the shutdown interrupted it.
      countAll()
      yield* TestClock.adjust("2 seconds")
      countAll()
      yield* Scope.close(ended, Exit.void)
      for (const usage of processes.slice(1)) yield* usage.read("key_shared")
      assert.deepStrictEqual((yield* read(yield* KeyUsage, "key_shared")).hours, [[0, 16, 0, 0]])
    }))

  it.effect("survives an outage, counts its failed writes in a metric, and reconnects to the database by itself", () =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      const usage = yield* KeyUsage
      const key = "key_outage"
      const now = yield* Clock.currentTimeMillis
      usage.count(key, "allowed", now)
      const failures = Effect.map(Metric.snapshot, (metrics) => {
        const metric = metrics.find(({ attributes }) => attributes?.["task"] === "write_key_usage")
        return metric?.type === "Counter" ? Number(metric.state.count) : NaN
      })
      const before = yield* failures
      yield* sql`ALTER TABLE key_usage RENAME TO gone`
      yield* TestClock.adjust("2 seconds")
      usage.count(key, "allowed", now)
      usage.count(key, "rejected", now)
      assert.isTrue(Exit.isFailure(yield* Effect.exit(usage.read(key))))
      assert.isAbove(yield* failures, before)
      yield* sql`ALTER TABLE gone RENAME TO key_usage`
      for (let i = 0; i < 2; i++) {
        // Less than the timeout of a write, which takes real time.
        yield* TestClock.adjust("2 seconds")
        assert.deepStrictEqual((yield* read(usage, key)).minutes.map((row) => row.slice(1)), [[2, 1, 0]])
      }
    }))
})

it.effect("Key usage has at most 100,000 counts during an outage of the database, the newest ones", () =>
  Effect.gen(function*() {
    yield* TestClock.setTime(start)
    const store = yield* memoryStore
    let isDown = true
    const add: typeof store.add = (counts) => Effect.suspend(() => isDown ? Effect.die("down") : store.add(counts))
    const usage = yield* make({ ...store, add })
    for (let n = 0; n < 250_000; n++) usage.count(`key_${n}`, "allowed", start)
    yield* TestClock.adjust("2 seconds")
    isDown = false
    yield* TestClock.adjust("100 seconds")
    const keys = ["key_149999", "key_160000", "key_249999"]
    const hours = yield* Effect.forEach(keys, (key) => Effect.map(read(usage, key), (history) => history.hours))
    assert.deepStrictEqual(hours, [[], [[0, 1, 0, 0]], [[0, 1, 0, 0]]])
  }))

it.effect("Reads of usage that wait for a slow database fail with 503 within three seconds", () =>
  Effect.gen(function*() {
    const slow = Effect.delay(Effect.succeed({ minutes: [], hours: [] }), "1200 millis")
    const usage = yield* make({ ...yield* memoryStore, read: () => slow })
    const reads = yield* Effect.replicateEffect(Effect.forkChild(Effect.exit(usage.read("a"))), 5)
    yield* TestClock.adjust("3 seconds")
    const exits = yield* Fiber.joinAll(reads)
    assert.deepStrictEqual(exits.map(Exit.isSuccess), [true, true, false, false, false])
    for (const exit of exits.slice(2)) assert.include(String(exit), "ServiceUnavailable")
  }))
