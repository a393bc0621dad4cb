import { assert, describe, layer } from "@effect/vitest"
import { Clock, Context, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import * as fc from "fast-check"
import { planLimits } from "../../src/api/Plans.ts"
import type { Caller } from "../../src/rate-limit/CallerStates.ts"
import { RateLimiter } from "../../src/rate-limit/RateLimiter.ts"
import * as SqlRateLimiter from "../../src/rate-limit/SqlRateLimiter.ts"
import { databases, limiterOn } from "../support/Harness.ts"
import * as Redis from "../support/Redis.ts"
import * as SteppedClock from "../support/SteppedClock.ts"
import { asExpected, type Expected, model } from "./Model.ts"

/** The limiters under test, and control of their clocks. */
class Limiters extends Context.Service<Limiters, {
  /** One limiter, or several that share their counts. */
  readonly all: readonly [RateLimiter["Service"], ...ReadonlyArray<RateLimiter["Service"]>]
  /** Lets time pass, for the limiters and their store. */
  pass(milliseconds: number): Effect.Effect<void>
  /** Steps the wall clocks of the limiters, and of their store. */
  step(milliseconds: number): Effect.Effect<void>
}>()("test/Limiters") {}

/** One limiter, whose wall clock the test can step. */
const onSteppedClock = <E, R>(limiter: Layer.Layer<RateLimiter, E, R>) =>
  Layer.effect(
    Limiters,
    Effect.gen(function*() {
      const { clock, step } = SteppedClock.make(yield* Clock.Clock)
      const context = yield* Effect.provideService(Layer.build(limiter), Clock.Clock, clock)
      return {
        all: [Context.get(context, RateLimiter)],
        pass: (milliseconds) => TestClock.adjust(milliseconds),
        step: (milliseconds) => Effect.sync(() => step(milliseconds))
      }
    })
  )

/** The limiters of two processes on one Redis. The clock of Redis is weeks ahead of theirs. */
const onRedis = Layer.effect(
  Limiters,
  Effect.gen(function*() {
    const redis = yield* Redis.run
    let now = Date.now() + 5_000_000_000
    const setRedis = (milliseconds: number) => {
      now += milliseconds
      redis.setTime(now)
    }
    setRedis(0)
    yield* redis.startWithClock
    // On this clock no reply is late, so a busy machine cannot cause a timeout.
    const still = SteppedClock.makeStill(yield* Clock.Clock)
    const stepped = SteppedClock.make(still.clock)
    const limiter = Layer.build(Layer.fresh(limiterOn(redis.url))).pipe(
      Effect.map(Context.get(RateLimiter)),
      Effect.provideService(Clock.Clock, stepped.clock)
    )
    const all = [yield* limiter, yield* limiter] as const
    // Waits for the requests to Redis at the start, so that none is in flight while time passes.
    yield* Effect.sleep("50 millis")
    for (const one of all) yield* one.peek("key:none", { perMinute: 1, perDay: 1 })
    return {
      all,
      pass: (milliseconds) =>
        Effect.sync(() => {
          still.pass(milliseconds)
          setRedis(milliseconds)
        }),
      step: (milliseconds) =>
        Effect.sync(() => {
          stepped.step(milliseconds)
          setRedis(milliseconds)
        })
    }
  })
)

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
    layer: onSteppedClock(SqlRateLimiter.layer).pipe(Layer.provide(layer), Layer.orDie)
  })),
  { name: "Redis", skip: Redis.missing !== undefined, runs: 50, testClock: false, layer: Layer.orDie(onRedis) }
]

const hour = 3_600_000
const steps = [["back an hour", -hour], ["forward an hour", hour], ["forward a day", 24 * hour]] as const

for (const limiter of limiters) {
  describe.skipIf(limiter.skip)(`RateLimiter on ${limiter.name}`, () => {
    layer(limiter.layer, { excludeTestServices: !limiter.testClock })((it) => {
      for (const [plan, { perDay, perMinute }] of Object.entries(planLimits)) {
        it.effect(`allows exactly ${perMinute} requests a minute and ${perDay} a day on plan ${plan}, also concurrently`, () =>
          Effect.gen(function*() {
            const { all, pass } = yield* Limiters
            const charge = (index: number) =>
              (all[index % all.length] ?? all[0]).charge(`key:${plan}`, { perMinute, perDay })
            let allowed = 0
            for (let minute = 0; minute * perMinute < perDay + perMinute; minute++) {
              const decisions = yield* Effect.all(Array.from({ length: perMinute + 10 }, (_, index) => charge(index)), {
                concurrency: 100
              })
              const now = decisions.filter((decision) => decision.allowed).length
              assert.strictEqual(now, Math.min(perMinute, perDay - allowed))
              allowed += now
              yield* pass(60_000)
            }
            assert.strictEqual(allowed, perDay)
            yield* pass(86_400_000)
            assert.isTrue((yield* charge(0)).allowed)
          }))
      }

      it.effect("decides as the reference model, for any callers, limits, times and concurrency, with bans", () =>
        Effect.gen(function*() {
          const { all, pass } = yield* Limiters
          const context = yield* Effect.context<Limiters>()
          const step = fc.record({
            pause: fc.oneof(
              { weight: 4, arbitrary: fc.constant(0) },
              { weight: 4, arbitrary: fc.integer({ min: 1, max: 70_000 }) },
              { weight: 1, arbitrary: fc.constantFrom(59_999, 60_000, 3_600_000) }
            ),
            caller: fc.constantFrom("key:a", "key:b", "address:a"),
            concurrency: fc.integer({ min: 1, max: 10 }),
            lift: fc.boolean()
          })
          const limits = fc.record({
            perMinute: fc.integer({ min: 1, max: 5 }),
            perDay: fc.integer({ min: 1, max: 12 })
          })
          let runs = 0
          const property = fc.asyncProperty(
            limits,
            fc.array(step, { maxLength: 20 }),
            (limits, steps) =>
              Effect.gen(function*() {
                const run = runs++
                const models = new Map<string, ReturnType<typeof model>>()
                let time: number | undefined
                for (const { concurrency, caller, lift, pause } of steps) {
                  yield* pass(pause)
                  const charged: Caller = caller.startsWith("key:") ? `key:${run}${caller}` : `address:${run}${caller}`
                  const expected = models.get(charged) ?? model(limits, caller.startsWith("key:"))
                  models.set(charged, expected)
                  const decisions = yield* Effect.all(
                    Array.from(
                      { length: concurrency },
                      (_, index) => (all[index % all.length] ?? all[0]).charge(charged, limits)
                    ),
                    { concurrency: "unbounded" }
                  )
                  const now: number = decisions[0]?.decidedAt ?? 0
                  if (time !== undefined) assert.strictEqual(now, time + pause)
                  time = now
                  // Concurrent requests can be decided in any order.
                  const sorted = (decided: ReadonlyArray<Expected>) =>
                    decided.map((one) => JSON.stringify(one)).toSorted()
                  assert.deepStrictEqual(
                    sorted(decisions.map(asExpected)),
                    sorted(decisions.map(() => expected.request(now)))
                  )
                  if (lift && concurrency % 3 === 0) {
                    yield* all[0].unban(charged)
                    expected.lift(now)
                  }
                }
              }).pipe(Effect.runPromiseWith(context))
          )
          yield* Effect.promise(() => fc.assert(property, { numRuns: limiter.runs }))
        }))

      it.effect("bans keys but no addresses, in every process at once, until the ban ends or is lifted", () =>
        Effect.gen(function*() {
          const { all, pass } = yield* Limiters
          const [one] = all
          const last = all.at(-1) ?? one
          const limits = { perMinute: 2, perDay: 100 }
          for (const caller of ["key:eager", "address:eager"] as const) {
            for (let i = 0; i < 5; i++) yield* one.charge(caller, limits)
            assert.strictEqual((yield* last.peek(caller, limits)).bannedUntil !== undefined, caller === "key:eager")
          }
          yield* last.unban("key:eager")
          assert.isUndefined((yield* one.peek("key:eager", limits)).bannedUntil)
          yield* pass(60_000)
          assert.isTrue((yield* one.charge("key:eager", limits)).allowed)
        }))

      for (const [step, by] of steps) {
        it.effect(`ends windows and bans exactly after their length when clocks step ${step}`, () =>
          Effect.gen(function*() {
            const limiters = yield* Limiters
            const { all, pass } = limiters
            const perMinute = { perMinute: 3, perDay: 1_000 }
            const perDay = { perMinute: 1_000, perDay: 3 }
            const [used, banned, daily]: ReadonlyArray<Caller> = [`key:used ${by}`, `key:banned ${by}`, `key:day ${by}`]
            const cases = [
              { caller: used ?? "key:", limits: perMinute, requests: 3, window: 0, length: 60_000 },
              { caller: banned ?? "key:", limits: perMinute, requests: 6, window: 0, length: 60_000 },
              { caller: daily ?? "key:", limits: perDay, requests: 3, window: 1, length: 86_400_000 }
            ] as const
            const before = yield* Effect.forEach(cases, ({ caller, limits, requests }) =>
              Effect.gen(function*() {
                for (let i = 0; i < requests; i++) yield* all[0].charge(caller, limits)
                return yield* all[0].peek(caller, limits)
              }))
            yield* pass(10_000)
            yield* limiters.step(by)

            let passed = 10_000
            for (const [index, { caller, length, limits, window }] of cases.entries()) {
              const resetAt = (before[index]?.windows[window].resetAt ?? 0) + by
              for (const limiter of all) {
                const decision = yield* limiter.peek(caller, limits)
                assert.isFalse(decision.allowed)
                assert.strictEqual(decision.windows[window].resetAt, resetAt)
                assert.strictEqual(decision.windows[window].resetAt - decision.decidedAt, length - passed)
                assert.strictEqual(decision.bannedUntil, caller === banned ? resetAt : undefined)
              }
              yield* pass(Math.max(0, length - passed - 1))
              passed = Math.max(passed, length - 1)
              for (const limiter of all) assert.isFalse((yield* limiter.peek(caller, limits)).allowed)
              // The first two cases end at the same instant, and the third much later.
              if (index === 0) continue
              yield* pass(1)
              passed += 1
              for (const ended of cases.slice(0, index + 1)) {
                if (ended.length !== length) continue
                const decisions = yield* Effect.all(
                  Array.from(
                    { length: 4 },
                    (_, index) => (all[index % all.length] ?? all[0]).charge(ended.caller, ended.limits)
                  ),
                  { concurrency: "unbounded" }
                )
                assert.strictEqual(decisions.filter(({ allowed }) => allowed).length, 3)
              }
            }
          }))
      }

      it.effect("counts each caller separately", () =>
        Effect.gen(function*() {
          const { all: [limiter] } = yield* Limiters
          const limits = { perMinute: 1, perDay: 1 }
          for (const caller of ["key:apart", "key:other", "address:apart"] as const) {
            assert.isTrue((yield* limiter.charge(caller, limits)).allowed)
            assert.isFalse((yield* limiter.charge(caller, limits)).allowed)
          }
        }))
    })
  })
}

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
          yield* chargeEach
          const before = yield* size
          yield* Effect.replicateEffect(chargeEach, 5, { discard: true })
          assert.strictEqual(yield* size, before)
        }))
    })
  })
}
