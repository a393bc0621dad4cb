/** The guarantees of a rate limiter, in memory and on a real Redis whose clock the test sets. */
import { assert, describe, layer } from "@effect/vitest"
import { Clock, Context, Effect, Layer } from "effect"
import { TestClock } from "effect/testing"
import * as fc from "fast-check"
import { planLimits } from "../../src/api/Plans.ts"
import type { Caller } from "../../src/rate-limit/CallerStates.ts"
import { RateLimiter } from "../../src/rate-limit/RateLimiter.ts"
import * as Redis from "../support/Redis.ts"
import * as Limiters from "./Limiters.ts"
import { asExpected, type Expected, model } from "./Model.ts"

/** The limiters under test, and control of the clock that they count on. */
class Subject extends Context.Service<Subject, {
  /** One limiter, or several that share their counts. */
  readonly all: readonly [RateLimiter["Service"], ...ReadonlyArray<RateLimiter["Service"]>]
  /** Moves the wall clock, also back. */
  move(milliseconds: number): Effect.Effect<void>
}>()("test/rate-limit/Subject") {}

/** One limiter in memory, on `TestClock`. `SqlRateLimiter` decides in the same memory. */
const onTestClock = Layer.effect(
  Subject,
  Effect.map(RateLimiter, (limiter) => ({
    all: [limiter],
    move: (milliseconds) => Effect.flatMap(Clock.currentTimeMillis, (now) => TestClock.setTime(now + milliseconds))
  }))
).pipe(Layer.provide(RateLimiter.layerMemory))

/** The limiters of two processes. The clock of their Redis is weeks ahead of theirs, and stands still. */
const onRedis = Layer.effect(
  Subject,
  Effect.gen(function*() {
    const redis = yield* Redis.run
    let now = Date.now() + 5_000_000_000
    const move = (milliseconds: number) => Effect.sync(() => redis.setTime(now += milliseconds))
    yield* move(0)
    yield* redis.startWithClock
    return { all: yield* Limiters.withoutLateReplies(Limiters.makeTwo(redis.url)), move }
  })
)

const subjects = [
  { name: "memory", skip: false, isOnTestClock: true, layer: onTestClock },
  { name: "Redis", skip: Redis.missing !== undefined, isOnTestClock: false, layer: onRedis }
]

const limitsOf = fc.record({ perMinute: fc.integer({ min: 1, max: 5 }), perDay: fc.integer({ min: 1, max: 12 }) })

/** Concurrent requests of a caller, after a pause. */
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

for (const subject of subjects) {
  describe.skipIf(subject.skip)(`RateLimiter on ${subject.name}`, () => {
    layer(subject.layer, { excludeTestServices: !subject.isOnTestClock })((it) => {
      it.effect.each(Object.entries(planLimits))(
        "allows exactly the limits of plan %s, also concurrently",
        ([plan, limits]) =>
          Effect.gen(function*() {
            const { all, move } = yield* Subject
            const { perDay, perMinute } = limits
            const charge = (index: number) => (all[index % all.length] ?? all[0]).charge(`key:${plan}`, limits)
            let allowed = 0
            for (let minute = 0; minute * perMinute < perDay + perMinute; minute++) {
              const requests = Array.from({ length: perMinute + 10 }, (_, index) => charge(index))
              const decisions = yield* Effect.all(requests, { concurrency: 100 })
              const now = decisions.filter((decision) => decision.allowed).length
              assert.strictEqual(now, Math.min(perMinute, perDay - allowed))
              allowed += now
              yield* move(60_000)
            }
            assert.strictEqual(allowed, perDay)
            yield* move(86_400_000)
            assert.isTrue((yield* charge(0)).allowed)
          })
      )

      it.effect("decides as the reference model, for any callers, limits, changes, times and concurrency, with bans", () =>
        Effect.gen(function*() {
          const { all, move } = yield* Subject
          const context = yield* Effect.context<Subject>()
          let runs = 0
          const property = fc.asyncProperty(
            limitsOf,
            fc.array(step, { maxLength: 20 }),
            (initialLimits, steps) =>
              Effect.gen(function*() {
                const run = runs++
                let limits = initialLimits
                const models = new Map<string, ReturnType<typeof model>>()
                for (const { concurrency, caller, changed = limits, lift, pause } of steps) {
                  limits = changed
                  yield* move(pause)
                  const isKey = caller.startsWith("key:")
                  const charged: Caller = isKey ? `key:${run}${caller}` : `address:${run}${caller}`
                  const expected = models.get(charged) ?? model(limits, isKey)
                  models.set(charged, expected)
                  expected.change(limits)
                  const charges = Array.from(
                    { length: concurrency },
                    (_, index) => (all[index % all.length] ?? all[0]).charge(charged, limits)
                  )
                  const decisions = yield* Effect.all(charges, { concurrency: "unbounded" })
                  const now: number = decisions[0]?.decidedAt ?? 0
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
          const { all, move } = yield* Subject
          const [one] = all
          const last = all.at(-1) ?? one
          const limits = { perMinute: 2, perDay: 100 }
          for (const caller of ["key:eager", "address:eager"] as const) {
            for (let i = 0; i < 5; i++) yield* one.charge(caller, limits)
            assert.strictEqual((yield* last.peek(caller, limits)).bannedUntil !== undefined, caller === "key:eager")
          }
          assert.strictEqual(yield* last.unban("key:eager"), subject.name === "Redis" ? "shared" : "own")
          assert.isUndefined((yield* one.peek("key:eager", limits)).bannedUntil)
          yield* move(60_000)
          assert.isTrue((yield* one.charge("key:eager", limits)).allowed)
        }))

      it.effect.each<readonly [string, number, number, number, number]>([
        ["the minute", 3, 100, 3, 60_000],
        ["the minute, and a ban", 3, 100, 6, 60_000],
        ["the day", 100, 3, 3, 86_400_000]
      ])(
        "holds a caller at its limit of %s no longer when the clock steps back",
        ([name, perMinute, perDay, requests, length]) =>
          Effect.gen(function*() {
            const { all: [limiter], move } = yield* Subject
            const charge = limiter.charge(`key:stepped in ${name}`, { perMinute, perDay })
            yield* Effect.replicateEffect(charge, requests)
            yield* move(-2 * 86_400_000)
            const { allowed, decidedAt, windows } = yield* charge
            assert.isFalse(allowed)
            for (const { resetAt, seconds } of windows) assert.isAtMost(resetAt, decidedAt + seconds * 1000)
            yield* move(length)
            assert.isTrue((yield* charge).allowed)
          })
      )
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
