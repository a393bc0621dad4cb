/** The guarantees of every rate limiter, as a suite over a layer. */
import { assert, describe, layer } from "@effect/vitest"
import { Clock, Context, Effect, Layer } from "effect"
import * as fc from "fast-check"
import { planLimits } from "../../src/api/Plans.ts"
import type { Caller } from "../../src/rate-limit/CallerStates.ts"
import { RateLimiter } from "../../src/rate-limit/RateLimiter.ts"
import { limiterOn } from "../support/Harness.ts"
import * as SteppedClock from "../support/SteppedClock.ts"
import { asExpected, type Expected, model } from "./Model.ts"

/** The limiters under test, and control of their clocks. */
export class Limiters extends Context.Service<Limiters, {
  /** One limiter, or several that share their counts. */
  readonly all: readonly [RateLimiter["Service"], ...ReadonlyArray<RateLimiter["Service"]>]
  /** Lets time pass, for the limiters and their store. */
  pass(milliseconds: number): Effect.Effect<void>
  /** Steps the wall clocks of the limiters, and of their store. */
  step(milliseconds: number): Effect.Effect<void>
}>()("test/Limiters") {}

/** The clocks of Redis servers. They stand still. */
interface ServerClocks {
  setServers(servers: ReadonlyArray<{ setTime(milliseconds: number): void }>): void
  pass(milliseconds: number): void
}

/**
 * The limiters of two processes on Redis servers whose clocks are weeks ahead of theirs. `run` starts the servers after
 * it has set their clocks, and returns the URL.
 */
export const onRedis = <E, R>(
  run: (clocks: ServerClocks) => Effect.Effect<string, E, R>
) =>
  Layer.effect(
    Limiters,
    Effect.gen(function*() {
      let now = Date.now() + 5_000_000_000
      let servers: ReadonlyArray<{ setTime(milliseconds: number): void }> = []
      const setRedis = (milliseconds: number) => {
        now += milliseconds
        for (const { setTime } of servers) setTime(now)
      }
      const url = yield* run({
        setServers: (all) => {
          servers = all
          setRedis(0)
        },
        pass: setRedis
      })
      // On this clock no reply is late, so a busy machine cannot cause a timeout.
      const still = SteppedClock.makeStill(yield* Clock.Clock)
      const stepped = SteppedClock.make(still.clock)
      const limiter = Layer.build(Layer.fresh(limiterOn(url))).pipe(
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

export const hour = 3_600_000
export const steps = [["back an hour", -hour], ["forward an hour", hour], ["forward a day", 24 * hour]] as const

/** Declares the suite for the limiters of a layer. */
export const limiterSuite = <E>(limiter: {
  readonly name: string
  readonly skip: boolean
  /** The number of random sequences of requests. */
  readonly runs: number
  readonly testClock: boolean
  readonly layer: Layer.Layer<Limiters, E>
}): void => {
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

      it.effect("decides as the reference model, for any callers, limits, changes, times and concurrency, with bans", () =>
        Effect.gen(function*() {
          const { all, pass } = yield* Limiters
          const context = yield* Effect.context<Limiters>()
          const limitsOf = fc.record({
            perMinute: fc.integer({ min: 1, max: 5 }),
            perDay: fc.integer({ min: 1, max: 12 })
          })
          const step = fc.record({
            pause: fc.oneof(
              { weight: 4, arbitrary: fc.constant(0) },
              { weight: 4, arbitrary: fc.integer({ min: 1, max: 70_000 }) },
              { weight: 1, arbitrary: fc.constantFrom(59_999, 60_000, 3_600_000) }
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
