/** The guarantees of a rate limiter, in memory and on a real Redis whose clock the test sets. */
import { assert, describe, layer } from "@effect/vitest"
import { Clock, Context, Effect, Layer } from "effect"
import { TestClock } from "effect/testing"
import * as fc from "fast-check"
import { planLimits } from "../../src/api/Plans.ts"
import type { Caller } from "../../src/rate-limit/CallerStates.ts"
import { RateLimiter } from "../../src/rate-limit/RateLimiter.ts"
import * as Redis from "../support/Redis.ts"
import * as SteppedClock from "../support/SteppedClock.ts"
import * as Limiters from "./Limiters.ts"
import { asExpected, type Expected, model } from "./Model.ts"

/** The limiters under test, and control of the clock that they count on. */
class Subject extends Context.Service<Subject, {
  /** One limiter, or several that share their counts. */
  readonly all: readonly [RateLimiter["Service"], ...ReadonlyArray<RateLimiter["Service"]>]
  /** Lets time pass. */
  pass(milliseconds: number): Effect.Effect<void>
  /** Steps the wall clock. */
  step(milliseconds: number): Effect.Effect<void>
}>()("test/rate-limit/Subject") {}

/** One limiter in memory, on `TestClock`. `SqlRateLimiter` decides in the same memory. */
const onTestClock = Layer.effect(
  Subject,
  Effect.gen(function*() {
    const { clock, step } = SteppedClock.make(yield* Clock.Clock)
    const context = yield* Effect.provideService(Layer.build(RateLimiter.layerMemory), Clock.Clock, clock)
    return {
      all: [Context.get(context, RateLimiter)],
      pass: TestClock.adjust,
      step: (milliseconds) => Effect.sync(() => step(milliseconds))
    }
  })
)

/** The limiters of two processes. The clock of their Redis is weeks ahead of theirs, and stands still. */
const onRedis = Layer.effect(
  Subject,
  Effect.gen(function*() {
    const redis = yield* Redis.run
    let now = Date.now() + 5_000_000_000
    const add = (milliseconds: number) => Effect.sync(() => redis.setTime(now += milliseconds))
    yield* add(0)
    yield* redis.startWithClock
    const limiter = Limiters.makePatient(redis.url)
    const all = [yield* limiter, yield* limiter] as const
    yield* Limiters.untilAll("shared", all)
    return { all, pass: add, step: add }
  })
)

const subjects = [
  { name: "memory", skip: false, isOnTestClock: true, layer: onTestClock },
  { name: "Redis", skip: Redis.missing !== undefined, isOnTestClock: false, layer: onRedis }
]

for (const subject of subjects) {
  describe.skipIf(subject.skip)(`RateLimiter on ${subject.name}`, () => {
    layer(subject.layer, { excludeTestServices: !subject.isOnTestClock })((it) => {
      for (const [plan, { perDay, perMinute }] of Object.entries(planLimits)) {
        it.effect(`allows exactly ${perMinute} requests a minute and ${perDay} a day on plan ${plan}, also concurrently`, () =>
          Effect.gen(function*() {
            const { all, pass } = yield* Subject
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

      it.effect("decides as the reference model, for any callers, limits, changes, times and concurrency, with bans", () =>
        Effect.gen(function*() {
          const { all, pass } = yield* Subject
          const context = yield* Effect.context<Subject>()
          const limitsOf = fc.record({
            perMinute: fc.integer({ min: 1, max: 5 }),
            perDay: fc.integer({ min: 1, max: 12 })
          })
          const step = fc.record({
            pause: fc.oneof(
              { weight: 4, arbitrary: fc.constant(0) },
              { weight: 4, arbitrary: fc.integer({ min: 1, max: 70_000 }) },
              { weight: 1, arbitrary: fc.constantFrom(59_999, 60_000, 3_600_000, 3_660_000, 86_399_999) }
            ),
            caller: fc.constantFrom("key:a", "key:b", "address:a"),
            concurrency: fc.integer({ min: 1, max: 10 }),
            lift: fc.boolean(),
            changed: fc.option(limitsOf, { freq: 4, nil: undefined })
          })
          let runs = 0
          const property = fc.asyncProperty(
            limitsOf,
            fc.array(step, { maxLength: 20 }),
            (initialLimits, steps) =>
              Effect.gen(function*() {
                const run = runs++
                let limits = initialLimits
                const models = new Map<string, ReturnType<typeof model>>()
                let time: number | undefined
                for (const { concurrency, caller, changed = limits, lift, pause } of steps) {
                  limits = changed
                  yield* pass(pause)
                  const charged: Caller = caller.startsWith("key:") ? `key:${run}${caller}` : `address:${run}${caller}`
                  const expected = models.get(charged) ?? model(limits, caller.startsWith("key:"))
                  models.set(charged, expected)
                  expected.change(limits)
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
          yield* Effect.promise(() => fc.assert(property, { numRuns: 100 }))
        }))

      it.effect("bans keys but no addresses, in every process at once, until the ban ends or is lifted", () =>
        Effect.gen(function*() {
          const { all, pass } = yield* Subject
          const [one] = all
          const last = all.at(-1) ?? one
          const limits = { perMinute: 2, perDay: 100 }
          for (const caller of ["key:eager", "address:eager"] as const) {
            for (let i = 0; i < 5; i++) yield* one.charge(caller, limits)
            assert.strictEqual((yield* last.peek(caller, limits)).bannedUntil !== undefined, caller === "key:eager")
          }
          assert.strictEqual(yield* last.unban("key:eager"), subject.name === "Redis" ? "shared" : "own")
          assert.isUndefined((yield* one.peek("key:eager", limits)).bannedUntil)
          yield* pass(60_000)
          assert.isTrue((yield* one.charge("key:eager", limits)).allowed)
        }))

      it.effect("holds a caller for no longer than one window or ban when the clock steps back", () =>
        Effect.gen(function*() {
          const { all: [limiter], pass, step } = yield* Subject
          const cases = [
            { caller: "key:stepped", limits: { perMinute: 3, perDay: 100 }, requests: 3, length: 60_000 },
            { caller: "key:stepped and banned", limits: { perMinute: 3, perDay: 100 }, requests: 6, length: 60_000 },
            { caller: "key:stepped day", limits: { perMinute: 100, perDay: 3 }, requests: 3, length: 86_400_000 }
          ] as const
          for (const { caller, length, limits, requests } of cases) {
            for (let i = 0; i < requests; i++) yield* limiter.charge(caller, limits)
            yield* step(-2 * 86_400_000)
            const { allowed, decidedAt, windows } = yield* limiter.charge(caller, limits)
            assert.isFalse(allowed)
            for (const { resetAt, seconds } of windows) assert.isAtMost(resetAt, decidedAt + seconds * 1000)
            yield* pass(length)
            assert.isTrue((yield* limiter.charge(caller, limits)).allowed)
          }
        }))
    })
  })
}

describe("RateLimiter in memory", () => {
  layer(RateLimiter.layerMemory)((it) => {
    it.effect("keeps the last 100,000 addresses, and all keys", () =>
      Effect.gen(function*() {
        const limiter = yield* RateLimiter
        const limits = { perMinute: 1, perDay: 1 }
        const callers = ["key:kept", "address:first", "address:again"] as const
        for (const caller of callers) yield* limiter.charge(caller, limits)
        for (let i = 0; i < 99_999; i++) {
          if (i === 50_000) yield* limiter.charge("address:again", limits)
          yield* limiter.charge(`address:${i}`, limits)
        }
        const allowed = yield* Effect.forEach(callers, (caller) => limiter.peek(caller, limits))
        assert.deepStrictEqual(allowed.map((decision) => decision.allowed), [false, true, false])
      }))
  })
})
