import { PgClient } from "@effect/sql-pg"
import { assert, it } from "@effect/vitest"
import { Clock, Context, Duration, Effect, Exit, Fiber, Layer, Metric, Random, Redacted, Scope } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { KeyUsage, make, memoryStore } from "../../src/api-keys/KeyUsage.ts"
import * as SqlKeyUsage from "../../src/api-keys/SqlKeyUsage.ts"
import { noUsage, type UsageInterval, type UsageKind } from "../../src/api/Usage.ts"
import { AdminShare } from "../../src/database/AdminShare.ts"
import { BackgroundFailures } from "../../src/database/BackgroundFailures.ts"
import { clientOn, describeOnEach, stores } from "../support/Databases.ts"
import { until, untilTrue } from "../support/Process.ts"

const minuteMs = 60_000
const hourMs = 60 * minuteMs
const retention = Duration.days(30)
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

/** Moves the clock by 2 seconds, and waits for the writes that begin then. */
const step = (usages: ReadonlyArray<Usage>) =>
  Effect.andThen(TestClock.adjust("2 seconds"), Effect.forEach(usages, (usage) => usage.read("key_none")))

/**
 * Ends the current minute, and writes all counts: each process starts within 30 seconds after the minute. The steps are
 * shorter than the timeout of a write: a repeated write counts twice in minutes of more than two hours ago.
 */
const flush = Effect.fnUntraced(function*(...usages: ReadonlyArray<Usage>) {
  const now = yield* Clock.currentTimeMillis
  const end = now - now % minuteMs + minuteMs
  while ((yield* Clock.currentTimeMillis) < end) yield* step(usages)
  // With several processes, another one may add up the counts in a later step.
  for (let i = 0; i < 16 * usages.length; i++) yield* step(usages)
})

const read = (usage: Usage, keyId: string) =>
  Effect.map(usage.read(keyId), ({ hours, minutes }) => ({ minutes: toRows(minutes), hours: toRows(hours) }))

// A step of the clock after a layer is built would run all periodic work in between.
const atStart = Layer.effectDiscard(TestClock.setTime(start))
const storesAtStart = stores.map((store) => ({ ...store, layer: Layer.provide(store.layer, atStart) }))

describeOnEach(storesAtStart, "Key usage", (it, store) => {
  /** Waits until all written counts are in the totals: a run that the clock has started can still add some up. */
  const added = store === "memory" ? Effect.void : untilTrue(
    Effect.map(
      Effect.flatMap(SqlClient.SqlClient, (sql) => sql`SELECT FROM key_usage_minutes WHERE NOT is_added_up LIMIT 1`),
      (rows) => rows.length === 0
    ),
    "all counts are added up"
  )
  const newStore = store === "memory" ? memoryStore : SqlKeyUsage.makeStore(retention)

  it.effect("counts allowed, rejected and banned requests by minute and by hour", () =>
    Effect.gen(function*() {
      const usage = yield* KeyUsage
      assert.deepStrictEqual(yield* usage.read("key_none"), { minutes: [], hours: [] })
      const key = "key_counted"
      yield* TestClock.setTime(start + 57 * minuteMs)
      count(usage, key, { allowed: 3, rejected: 2 }, 0.5)
      count(usage, key, { allowed: 1, banned: 4 }, 10)
      // A key whose id has the same end.
      count(usage, "key_miscounted", { allowed: 9 }, 57)
      count(usage, key, { rejected: 1 }, 57)
      const expected = { minutes: [[0, 3, 2, 0], [10, 1, 0, 4], [57, 0, 1, 0]], hours: [[0, 4, 3, 4]] }
      assert.deepStrictEqual(yield* read(usage, key), expected)
      yield* flush(usage)
      assert.deepStrictEqual(yield* read(usage, key), expected)

      // Some counts of this minute are stored now, and one is late.
      count(usage, key, { allowed: 1 }, 57)
      assert.deepStrictEqual((yield* read(usage, key)).minutes.at(-1), [57, 1, 1, 0])
      yield* flush(usage)
      assert.deepStrictEqual((yield* read(usage, key)).minutes.at(-1), [57, 1, 1, 0])
      // A minute is visible for 60 minutes, the current one among them.
      yield* TestClock.setTime(start + hourMs)
      count(usage, key, { allowed: 1 }, 60)
      const minutes = [[10, 1, 0, 4], [57, 1, 1, 0], [60, 1, 0, 0]]
      assert.deepStrictEqual(yield* read(usage, key), { minutes, hours: [[0, 5, 3, 4], [60, 1, 0, 0]] })
      yield* flush(usage)
      assert.deepStrictEqual((yield* read(usage, key)).hours, [[0, 5, 3, 4], [60, 1, 0, 0]])
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

  it.effect("lists the keys with the most requests of one kind in the current hour or day of UTC", () =>
    Effect.gen(function*() {
      const usage = yield* KeyUsage
      // The hour begins at 180, and the day at -600.
      const now = 180 + 50
      yield* TestClock.setTime(start + now * minuteMs)
      count(usage, "a", { allowed: 50, rejected: 10 }, 180)
      count(usage, "b", { allowed: 30, banned: 20 }, now - 1)
      count(usage, "c", { rejected: 20 }, 179)
      count(usage, "c", { allowed: 90 }, -600)
      count(usage, "d", { allowed: 990 }, -601)
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
        yield* added
        count(usage, "a", { allowed: 1 }, now)
      }
    }))

  it.effect("counts a write once that is repeated because its confirmation was lost", () =>
    Effect.gen(function*() {
      yield* TestClock.setTime(start + 5 * hourMs)
      const store = yield* newStore
      let attempts = 0
      const usage = yield* make({
        ...store,
        add: (batch) =>
          Effect.andThen(store.add(batch), Effect.suspend(() => ++attempts < 3 ? Effect.fail("lost") : Effect.void))
      })
      const key = "key_repeated"
      count(usage, key, { allowed: 5 }, 300)
      // The other process may add up these counts.
      yield* flush(usage, yield* KeyUsage)
      assert.strictEqual(attempts, 3)
      assert.deepStrictEqual(yield* read(usage, key), { minutes: [[300, 5, 0, 0]], hours: [[300, 5, 0, 0]] })
      yield* added
      const [first] = yield* usage.top({ limit: 1 })
      assert.deepStrictEqual(first, { keyId: key, allowed: 5, rejected: 0, banned: 0 })
    }))

  if (store === "memory") return

  it.effect("is the sum over all processes that use the database, including those that were shut down gracefully", () =>
    Effect.gen(function*() {
      yield* TestClock.setTime(start + 6 * hourMs)
      const newProcess = Effect.map(Layer.build(Layer.fresh(SqlKeyUsage.layer(retention))), Context.get(KeyUsage))
      const ended = yield* Scope.make()
      const processes = [yield* Scope.provide(newProcess, ended), yield* newProcess, yield* newProcess]
      const countAll = (minute: number) =>
        processes.forEach((usage) => count(usage, "key_shared", { allowed: 1_000 }, minute))
      for (let round = 0; round < 3; round++) {
        countAll(360 + 2 * round)
        yield* flush(...processes)
      }
      countAll(366)
      // The minute has not ended, and the shutdown writes it.
      yield* Scope.close(ended, Exit.void)
      yield* flush(...processes.slice(1))
      const usage = yield* KeyUsage
      assert.deepStrictEqual((yield* read(usage, "key_shared")).hours, [[360, 12_000, 0, 0]])
      yield* added
      const shared = { keyId: "key_shared", allowed: 12_000, rejected: 0, banned: 0 }
      assert.deepStrictEqual(yield* usage.top({ limit: 1, window: "day" }), [shared])
    }))

  if (store === "PostgreSQL") {
    it.effect("is added up without a wait for the rows that another process adds up at the moment", () =>
      Effect.gen(function*() {
        const sql = yield* PgClient.PgClient
        const mayRun = Context.Reference<boolean>("test/MayRun", { defaultValue: () => false })
        // Only the test adds up, and not the timer of this store.
        const share = AdminShare.of((statements) => Effect.flatMap(mayRun, (may) => may ? statements : Effect.never))
        const usageStore = yield* Effect.provideService(SqlKeyUsage.makeStore(retention), AdminShare, share)
        const other = Context.get(
          yield* Layer.build(Layer.fresh(clientOn(Redacted.value(sql.config.url ?? assert.fail())))),
          PgClient.PgClient
        )
        const counts = ["key_locked", "key_unlocked1"].map((keyId) => ({
          ...noUsage,
          keyId,
          allowed: 1,
          minute: start
        }))
        const totals =
          sql`SELECT key_id AS key FROM key_usage_totals WHERE seconds = 3600 AND key_id LIKE 'key%locked%'`
        yield* Effect.gen(function*() {
          yield* usageStore.add({ number: 0, counts })
          const lock = other`SELECT FROM key_usage_minutes WHERE part = 'ed' FOR UPDATE`
          yield* other.withTransaction(Effect.gen(function*() {
            yield* lock
            const adding = yield* Effect.forkChild(usageStore.addUp)
            yield* until(() => adding.pollUnsafe() !== undefined)
          }))
          assert.deepStrictEqual(yield* totals, [{ key: "key_unlocked1" }])
        }).pipe(Effect.provideService(mayRun, true))
      }))
  }

  it.effect("includes the counts of processes of the previous version during an upgrade", () =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      const usage = yield* KeyUsage
      const key = "key_upgraded"
      yield* TestClock.setTime(start + 7 * hourMs)
      for (
        const [seconds, minute] of [[60, 0], [3_600, 0], [3_600, -60], [3_600, -17 * 60], [3_600, -18 * 60]] as const
      ) {
        const startsAt = new Date(start + 7 * hourMs + minute * minuteMs)
        yield* sql`INSERT INTO key_usage VALUES (${key}, ${seconds}, ${startsAt}, 10, 1, 0)`
      }
      count(usage, key, { allowed: 5 }, 7 * 60)
      for (let round = 0; round < 2; round++) {
        const { hours, minutes } = yield* read(usage, key)
        assert.deepStrictEqual(minutes.map((row) => row.slice(1)), [[15, 1, 0]])
        assert.deepStrictEqual(hours.map(([, allowed]) => allowed), [10, 10, 10, 15])
        const [ofHour] = yield* usage.top({ limit: 1 })
        assert.deepStrictEqual(ofHour, { keyId: key, allowed: 15, rejected: 1, banned: 0 })
        const ofDay = (yield* usage.top({ limit: 9, window: "day" })).find(({ keyId }) => keyId === key)
        assert.deepStrictEqual(ofDay, { keyId: key, allowed: 35, rejected: 3, banned: 0 })
        yield* flush(usage)
        yield* added
      }
    }))

  it.effect("survives an outage, counts its failed writes in a metric, and reconnects to the database by itself", () =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      const usage = yield* KeyUsage
      const key = "key_outage"
      usage.count(key, "allowed", yield* Clock.currentTimeMillis)
      const failures = Effect.map(Metric.snapshot, (metrics) => {
        const metric = metrics.find(({ attributes }) => attributes?.["task"] === "write_key_usage")
        return metric?.type === "Counter" ? Number(metric.state.count) : NaN
      })
      const before = yield* failures
      yield* sql`ALTER TABLE key_usage_minutes RENAME TO gone`
      yield* TestClock.adjust("92 seconds")
      usage.count(key, "allowed", yield* Clock.currentTimeMillis)
      usage.count(key, "rejected", yield* Clock.currentTimeMillis)
      assert.isTrue(Exit.isFailure(yield* Effect.exit(usage.read(key))))
      assert.isAbove(yield* failures, before)
      yield* sql`ALTER TABLE gone RENAME TO key_usage_minutes`
      for (let i = 0; i < 2; i++) {
        yield* flush(usage)
        assert.deepStrictEqual((yield* read(usage, key)).minutes.map((row) => row.slice(1)), [[1, 0, 0], [1, 1, 0]])
      }
    }))
})

it.effect("Key usage writes the counts of a minute once it has ended, within 35 seconds", () =>
  Effect.gen(function*() {
    for (const [share, from] of [[0, 0], [1 - Number.EPSILON, 29]] as const) {
      yield* TestClock.setTime(start)
      const written: Array<number> = []
      const store = yield* memoryStore
      const add: typeof store.add = (batch) =>
        Effect.sync(() => void written.push(...batch.counts.map(({ allowed }) => allowed)))
      const usage = yield* Effect.provideService(make({ ...store, add }), Random.Random, {
        nextDoubleUnsafe: () => share,
        nextIntUnsafe: () => assert.fail("an integer of any size")
      })
      usage.count("key_a", "allowed", start)
      yield* TestClock.adjust(Duration.seconds(60 + from))
      assert.isEmpty(written)
      yield* TestClock.adjust(Duration.seconds(35 - from))
      assert.deepStrictEqual(written, [1])
    }
  }).pipe(Effect.provide(BackgroundFailures.layerIgnored)))

it.effect("Key usage has at most 100,000 counts during an outage of the database, the newest ones", () =>
  Effect.gen(function*() {
    yield* TestClock.setTime(start)
    const store = yield* memoryStore
    let isDown = true
    const add: typeof store.add = (batch) => Effect.suspend(() => isDown ? Effect.die("down") : store.add(batch))
    const usage = yield* make({ ...store, add })
    // Few counts a minute for a long time, which stay.
    for (let minute = 0; minute < 300; minute++) {
      usage.count("key_few", "allowed", start + minute * minuteMs)
      yield* TestClock.adjust("1 minute")
    }
    assert.deepStrictEqual((yield* read(usage, "key_few")).hours.map(([, allowed]) => allowed), [60, 60, 60, 60, 60])
    for (let n = 0; n < 240_000; n++) usage.count(`key_${n}`, "allowed", start + 5 * hourMs)
    yield* TestClock.adjust("2 seconds")
    isDown = false
    yield* TestClock.adjust("200 seconds")
    const keys = ["key_139999", "key_180099", "key_239999"]
    const hours = yield* Effect.forEach(keys, (key) => Effect.map(read(usage, key), (history) => history.hours))
    assert.deepStrictEqual(hours, [[], [[300, 1, 0, 0]], [[300, 1, 0, 0]]])
  }).pipe(Effect.provide(BackgroundFailures.layerIgnored)))

it.effect("Reads of usage that wait for a slow database fail with 503 within three seconds", () =>
  Effect.gen(function*() {
    const slow = Effect.delay(Effect.succeed({ minutes: [], hours: [] }), "1200 millis")
    const usage = yield* make({ ...yield* memoryStore, read: () => slow })
    const reads = yield* Effect.replicateEffect(Effect.forkChild(Effect.exit(usage.read("a"))), 5)
    yield* TestClock.adjust("3 seconds")
    const exits = yield* Fiber.joinAll(reads)
    assert.deepStrictEqual(exits.map(Exit.isSuccess), [true, true, false, false, false])
    for (const exit of exits.slice(2)) assert.include(String(exit), "ServiceUnavailable")
  }).pipe(Effect.provide(BackgroundFailures.layerIgnored)))
