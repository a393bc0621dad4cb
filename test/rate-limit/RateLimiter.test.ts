import { assert, describe, layer } from "@effect/vitest"
import { Clock, Context, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { planLimits } from "../../src/api/Plans.ts"
import type { Caller } from "../../src/rate-limit/CallerStates.ts"
import { RateLimiter } from "../../src/rate-limit/RateLimiter.ts"
import * as SqlRateLimiter from "../../src/rate-limit/SqlRateLimiter.ts"
import { databases } from "../support/Harness.ts"
import * as Redis from "../support/Redis.ts"
import * as SteppedClock from "../support/SteppedClock.ts"
import { hour, Limiters, limiterSuite, onRedis } from "./LimiterSuite.ts"

/** Waits, in real time, until the database runs no statement. PGlite runs each within a turn of the event loop. */
const waitForStatements = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  const active = sql`SELECT FROM pg_stat_activity
    WHERE datname = current_database() AND state = 'active' AND pid <> pg_backend_pid()`
  do yield* TestClock.withLive(Effect.sleep("10 millis"))
  while ((yield* active).length > 0)
})

/**
 * One limiter, whose wall clock the test can step. Before much time passes, `wait` runs half a second later, when the
 * limiter has begun to write. Otherwise the clock reaches the timeout of the write before the database responds, and
 * the limiter repeats the write for as long as time passes.
 */
const onSteppedClock = <E, R, R2 = never>(
  limiter: Layer.Layer<RateLimiter, E, R>,
  wait: Effect.Effect<unknown, unknown, R2> = Effect.void
) =>
  Layer.effect(
    Limiters,
    Effect.gen(function*() {
      const services = yield* Effect.context<R2>()
      const { clock, step } = SteppedClock.make(yield* Clock.Clock)
      const context = yield* Effect.provideService(Layer.build(limiter), Clock.Clock, clock)
      return {
        all: [Context.get(context, RateLimiter)],
        pass: (milliseconds) =>
          Effect.gen(function*() {
            const first = Math.min(milliseconds, 500)
            yield* TestClock.adjust(first)
            yield* Effect.orDie(Effect.provide(wait, services))
            yield* TestClock.adjust(milliseconds - first)
          }),
        step: (milliseconds) => Effect.sync(() => step(milliseconds))
      }
    })
  )

/** One Redis, which starts with the clock that the suite sets. */
const onOneRedis = onRedis(Effect.fnUntraced(function*({ setServers }) {
  const redis = yield* Redis.run
  setServers([redis])
  yield* redis.startWithClock
  return redis.url
}))

const limiters = [
  {
    name: "memory",
    skip: false,
    runs: 100,
    testClock: true,
    layer: onSteppedClock(RateLimiter.layerMemory)
  },
  ...databases.map(({ layer, ...database }) => ({
    ...database,
    runs: 10,
    testClock: true,
    layer: onSteppedClock(SqlRateLimiter.layer, waitForStatements).pipe(Layer.provide(layer), Layer.orDie)
  })),
  { name: "Redis", skip: Redis.missing !== undefined, runs: 50, testClock: false, layer: Layer.orDie(onOneRedis) }
]

for (const limiter of limiters) limiterSuite(limiter)

for (const database of databases) {
  describe.skipIf(database.skip)(`RateLimiter on ${database.name}`, () => {
    layer(database.layer)((it) => {
      /** Runs `use` with a new limiter, as a new process would. */
      const inProcess = <A, E>(use: Effect.Effect<A, E, RateLimiter>) =>
        Effect.scoped(Effect.provide(use, Layer.fresh(SqlRateLimiter.layer)))

      const limits = { perMinute: 3, perDay: 100 }
      const charge = (caller: Caller) => Effect.flatMap(RateLimiter, (limiter) => limiter.charge(caller, limits))
      const peek = (caller: Caller) => Effect.flatMap(RateLimiter, (limiter) => limiter.peek(caller, limits))

      it.effect("restores counts and bans unchanged after a restart", () =>
        Effect.gen(function*() {
          const before = yield* inProcess(Effect.gen(function*() {
            yield* charge("key:counted")
            yield* charge("key:counted")
            for (let i = 0; i < 7; i++) yield* charge("key:banned")
            return [yield* peek("key:counted"), yield* peek("key:banned")]
          }))
          const after = yield* inProcess(Effect.all([peek("key:counted"), peek("key:banned")]))
          assert.deepStrictEqual(after, before)
          assert.isDefined(after[1]?.bannedUntil)
          yield* inProcess(Effect.flatMap(RateLimiter, (limiter) => limiter.unban("key:banned")))
          assert.isUndefined((yield* inProcess(peek("key:banned"))).bannedUntil)
        }))

      it.effect("continues the counts, rejections and bans in the rows of earlier versions", () =>
        Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          const now = yield* Clock.currentTimeMillis
          const resetAt = now + 30_000
          const used = { minute: { used: 3, resetAt }, day: { used: 3, resetAt } }
          const rows = {
            "key:rejected": { ...used, refusals: { used: 2, resetAt } },
            "key:banned": { ...used, ban: { seconds: 60, until: resetAt } }
          }
          for (const [caller, state] of Object.entries(rows)) {
            yield* sql`INSERT INTO rate_limits (caller, state, ends_at)
              VALUES (${caller}, ${JSON.stringify(state)}::text::jsonb, to_timestamp(${resetAt / 1000}::float8))
              ON CONFLICT (caller) DO UPDATE SET state = excluded.state, ends_at = excluded.ends_at`
          }
          const [rejected, banned] = yield* inProcess(Effect.all([charge("key:rejected"), peek("key:banned")]))
          // The third rejection begins a ban.
          assert.isTrue(rejected.banBegan)
          assert.strictEqual(banned.bannedUntil, resetAt)
        }))

      const boots = {
        "without a reboot": (sql: SqlClient.SqlClient) => sql`SELECT 1`,
        "with a reboot": (sql: SqlClient.SqlClient) =>
          sql`UPDATE rate_limits SET state = jsonb_set(state, '{savedAt,boot}', '"another"')`,
        "from rows of an earlier version": (sql: SqlClient.SqlClient) =>
          sql`UPDATE rate_limits SET state = state - 'savedAt'`
      }
      const restarts = [
        // Windows and bans last a minute. The second process starts 30 seconds after they began.
        { boot: "without a reboot", when: "before", step: "back an hour", by: -hour, left: 30 },
        { boot: "without a reboot", when: "before", step: "forward an hour", by: hour, left: 30 },
        { boot: "without a reboot", when: "before", step: "forward a day", by: 24 * hour, left: 30 },
        { boot: "without a reboot", when: "during", step: "back an hour", by: -hour, left: 30 },
        { boot: "without a reboot", when: "during", step: "forward an hour", by: hour, left: 30 },
        { boot: "without a reboot", when: "during", step: "forward a day", by: 24 * hour, left: 30 },
        { boot: "with a reboot", when: "before", step: "back an hour", by: -hour, left: 30 },
        { boot: "with a reboot", when: "before", step: "forward an hour", by: hour, left: 30 },
        // The time that passed is not known.
        { boot: "with a reboot", when: "during", step: "back an hour", by: -hour, left: 60 },
        { boot: "from rows of an earlier version", when: "during", step: "back an hour", by: -hour, left: 60 }
      ] as const
      for (const { boot, by, left, step, when } of restarts) {
        it.effect(`ends windows and bans ${left} s after a restart ${boot} when the clock steps ${step} ${when} the restart`, () =>
          Effect.gen(function*() {
            const sql = yield* SqlClient.SqlClient
            yield* sql`DELETE FROM rate_limits`
            const { clock, step } = SteppedClock.make(yield* Clock.Clock)
            const inSteppedProcess = <A, E>(use: Effect.Effect<A, E, RateLimiter>) =>
              Effect.scoped(Effect.flatMap(
                Effect.provideService(Layer.build(Layer.fresh(SqlRateLimiter.layer)), Clock.Clock, clock),
                (context) => Effect.provideContext(use, context)
              ))
            yield* inSteppedProcess(Effect.gen(function*() {
              for (let i = 0; i < 3; i++) yield* charge("key:used")
              for (let i = 0; i < 6; i++) yield* charge("key:banned")
              if (when === "before") {
                yield* TestClock.adjust("10 seconds")
                step(by)
                yield* TestClock.adjust("10 seconds")
              }
            }))
            yield* boots[boot](sql)
            if (when === "during") step(by)
            yield* TestClock.adjust(when === "before" ? "10 seconds" : "30 seconds")
            yield* inSteppedProcess(Effect.gen(function*() {
              const used = yield* peek("key:used")
              assert.strictEqual(used.windows[0].resetAt - used.decidedAt, left * 1000)
              const banned = yield* peek("key:banned")
              assert.strictEqual((banned.bannedUntil ?? 0) - banned.decidedAt, left * 1000)
              yield* TestClock.adjust(left * 1000 - 1)
              for (const caller of ["key:used", "key:banned"] as const) {
                assert.isFalse((yield* peek(caller)).allowed)
              }
              yield* TestClock.adjust(1)
              for (const caller of ["key:used", "key:banned"] as const) {
                assert.isTrue((yield* charge(caller)).allowed)
              }
            }))
          }))
      }

      it.effect("writes nothing to the database while a banned key sends requests", () =>
        Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          yield* sql`CREATE TABLE writes (caller text)`
          yield* sql`CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
            'BEGIN INSERT INTO writes VALUES (new.caller); RETURN new; END'`
          yield* sql`CREATE TRIGGER note BEFORE INSERT OR UPDATE ON rate_limits FOR EACH ROW EXECUTE FUNCTION note()`
          const writes = Effect.map(
            sql<{ readonly count: number }>`SELECT count(*)::int FROM writes WHERE caller = 'key:banned often'`,
            ([row]) => row?.count
          )
          yield* inProcess(Effect.gen(function*() {
            for (let i = 0; i < 6; i++) yield* charge("key:banned often")
            yield* TestClock.adjust("1 second")
            const before = yield* writes
            for (let i = 0; i < 20; i++) {
              assert.isDefined((yield* charge("key:banned often")).bannedUntil)
              yield* TestClock.adjust("1 second")
            }
            assert.strictEqual(yield* writes, before)
          }))
          assert.isAtLeast((yield* writes) ?? 0, 1)
        }))

      it.effect("keeps counting during an outage of the database, and saves the counts afterwards", () =>
        Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          yield* inProcess(Effect.gen(function*() {
            yield* charge("key:outage")
            yield* sql`ALTER TABLE rate_limits RENAME TO gone`
            yield* TestClock.adjust("1 second")
            yield* charge("key:outage")
            yield* charge("key:outage")
            assert.isFalse((yield* charge("key:outage")).allowed)
            yield* sql`ALTER TABLE gone RENAME TO rate_limits`
          }))
          assert.strictEqual((yield* inProcess(peek("key:outage"))).windows[0].remaining, 0)
        }))

      it.effect("stores the exact millisecond in which counts end", () =>
        Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          yield* TestClock.adjust(123)
          const { windows: [, day] } = yield* inProcess(charge("key:ends"))
          const [row] = yield* sql<{ readonly endsAt: Date }>`
            SELECT ends_at AS "endsAt" FROM rate_limits WHERE caller = 'key:ends'`
          assert.strictEqual(row?.endsAt.getTime(), day.resetAt)
        }))

      it.effect("updates rows in place, so that the table grows with the callers and not with their requests", () =>
        Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          const size = Effect.map(
            sql<{ readonly bytes: bigint }>`SELECT pg_relation_size('rate_limits') AS bytes`,
            ([row]) => row?.bytes
          )
          const callers = Array.from({ length: 2_000 }, (_, index): Caller => `key:busy ${index}`)
          const chargeEach = inProcess(
            Effect.flatMap(
              RateLimiter,
              (limiter) =>
                Effect.forEach(callers, (caller) => limiter.charge(caller, planLimits.pro), { discard: true })
            )
          )
          const growth = Effect.gen(function*() {
            yield* sql`TRUNCATE rate_limits`
            yield* chargeEach
            const before = yield* size
            yield* Effect.replicateEffect(chargeEach, 5, { discard: true })
            return Number(yield* size) - Number(before)
          })
          // An ANALYZE of autovacuum can keep old versions for a moment, so the table can grow in an attempt.
          assert.include([yield* growth, yield* growth, yield* growth], 0)
        }))
    })
  })
}
