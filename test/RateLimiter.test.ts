import { assert, describe, it, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import * as fc from "fast-check"
import { planLimits } from "../src/api/Plans.ts"
import type { Caller } from "../src/rate-limit/Callers.ts"
import { decide, type State, tightest } from "../src/rate-limit/Rule.ts"
import { RateLimiter } from "../src/RateLimiter.ts"
import { databases } from "./Harness.ts"

/** The rule again, told by the whole history of admitted requests instead of by counts. */
const model = (limits: { readonly perMinute: number; readonly perDay: number }) => {
  const windows = [
    { length: 60_000, limit: limits.perMinute, opened: -Infinity, used: 0 },
    { length: 86_400_000, limit: limits.perDay, opened: -Infinity, used: 0 }
  ]
  return (now: number): { admitted: boolean; left: ReadonlyArray<{ remaining: number; resetAt: number }> } => {
    const isOpen = (window: typeof windows[number]) => now < window.opened + window.length
    const admitted = windows.every((window) => !isOpen(window) || window.used < window.limit)
    if (admitted) {
      for (const window of windows) {
        if (!isOpen(window)) Object.assign(window, { opened: now, used: 0 })
        window.used++
      }
    }
    return {
      admitted,
      left: windows.map((window) =>
        isOpen(window)
          ? { remaining: window.limit - window.used, resetAt: window.opened + window.length }
          : { remaining: window.limit, resetAt: now + window.length }
      )
    }
  }
}

const limitsOf = fc.record({ perMinute: fc.integer({ min: 1, max: 5 }), perDay: fc.integer({ min: 1, max: 12 }) })
const pauses = fc.array(
  fc.oneof(fc.constant(0), fc.integer({ min: 1, max: 59_999 }), fc.constantFrom(60_000, 86_399_999, 86_400_000)),
  { maxLength: 60 }
)

describe("The rule of the limits", () => {
  it("decides as the model does, for any limits and any times", () => {
    fc.assert(fc.property(limitsOf, pauses, fc.integer({ min: 0, max: 2_000_000_000_000 }), (limits, pauses, start) => {
      const expected = model(limits)
      let state: State = {}
      let now = start
      for (const pause of pauses) {
        now += pause
        const { decision, next } = decide(state, limits, now, false)
        state = next
        const { admitted, left } = expected(now)
        assert.strictEqual(decision.admitted, admitted)
        assert.deepStrictEqual(decision.windows.map(({ remaining, resetAt }) => ({ remaining, resetAt })), left)
      }
    }))
  })

  it("tells true: after an answer with Remaining r exactly r more requests pass before that window's reset", () => {
    fc.assert(fc.property(limitsOf, fc.integer({ min: 1, max: 20 }), (limits, before) => {
      let state: State = {}
      let shown = tightest(decide({}, limits, 0, false).decision)
      for (let i = 0; i < before; i++) {
        const { decision, next } = decide(state, limits, 0, false)
        state = next
        shown = tightest(decision)
      }
      let passed = 0
      while (true) {
        const { decision, next } = decide(state, limits, 0, false)
        if (!decision.admitted) break
        state = next
        passed++
      }
      assert.strictEqual(passed, shown.remaining)
    }))
  })

  it("shows the window that holds back most: the exhausted one with the later reset, else the fewer remaining", () => {
    const of = (minute: readonly [number, number], day: readonly [number, number]) =>
      tightest({
        admitted: true,
        banned: false,
        banBegan: false,
        decidedAt: 0,
        windows: [
          { name: "minute", limit: 9, seconds: 60, remaining: minute[0], resetAt: minute[1] },
          { name: "day", limit: 9, seconds: 86_400, remaining: day[0], resetAt: day[1] }
        ]
      }).name
    assert.strictEqual(of([3, 10], [4, 99]), "minute")
    assert.strictEqual(of([4, 10], [3, 99]), "day")
    assert.strictEqual(of([0, 10], [3, 99]), "minute")
    assert.strictEqual(of([3, 10], [0, 99]), "day")
    assert.strictEqual(of([0, 10], [0, 99]), "day")
    assert.strictEqual(of([0, 99], [0, 10]), "minute")
  })
})

describe("The rule of bans", () => {
  const limits = { perMinute: 3, perDay: 1_000 }
  const minute = 60_000
  const hour = 60 * minute

  /** A caller that sends `requests` at each of `times`: whether it is banned after each, and until when. */
  const bansOf = (times: ReadonlyArray<number>, requests: number): ReadonlyArray<number | undefined> => {
    let state: State = {}
    return times.map((now) => {
      for (let i = 0; i < requests; i++) state = decide(state, limits, now, true).next
      return state.ban && now < state.ban.until ? state.ban.until - now : undefined
    })
  }

  it("bans who collects as many refusals in a minute as requests are allowed, and nobody for fewer", () => {
    assert.deepStrictEqual(bansOf([0], 5), [undefined])
    assert.deepStrictEqual(bansOf([0], 6), [minute])
    assert.deepStrictEqual(bansOf([0, minute, 2 * minute], 5), [undefined, undefined, undefined])
  })

  it("doubles with each further ban up to an hour, and forgets after an hour without one", () => {
    let now = 0
    const lengths: Array<number | undefined> = []
    let state: State = {}
    for (let i = 0; i < 9; i++) {
      for (let j = 0; j < 6; j++) state = decide(state, limits, now, true).next
      lengths.push(state.ban?.seconds)
      now = state.ban?.until ?? now
    }
    assert.deepStrictEqual(lengths, [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600])
    const [again] = bansOf([0], 6)
    for (let j = 0; j < 6; j++) state = decide(state, limits, now + hour, true).next
    assert.strictEqual(state.ban?.seconds, (again ?? 0) / 1000)
  })

  it("shows nothing remaining until the ban's end, charges nothing meanwhile, and admits from then on", () => {
    let state: State = {}
    for (let i = 0; i < 6; i++) state = decide(state, limits, 1000, true).next
    const banned = state
    const { decision, next } = decide(banned, limits, 1000 + minute - 1, true)
    assert.isTrue(decision.banned && !decision.admitted)
    assert.deepStrictEqual(decision.windows.map(({ remaining, resetAt }) => [remaining, resetAt]), [
      [0, 1000 + minute],
      [0, 1000 + minute]
    ])
    assert.deepStrictEqual(next, banned)
    assert.isTrue(decide(banned, limits, 1000 + minute, true).decision.admitted)
  })

  it("never bans a client that waits as long as Retry-After says", () => {
    const pauses = fc.array(fc.integer({ min: 0, max: 70_000 }), { maxLength: 200 })
    fc.assert(fc.property(limitsOf, pauses, (limits, pauses) => {
      let state: State = {}
      let now = 0
      for (let i = 0; i < 200; i++) {
        const { decision, next } = decide(state, limits, now, true)
        state = next
        assert.isFalse(decision.banned)
        now = decision.admitted ? now + (pauses[i] ?? 0) : tightest(decision).resetAt
      }
    }))
  })
})

const limiters = [
  { name: "memory", skip: false, layer: RateLimiter.layerMemory },
  ...databases.map(({ layer, ...database }) => ({ ...database, layer: RateLimiter.layer.pipe(Layer.provide(layer)) }))
]

for (const limiter of limiters) {
  describe.skipIf(limiter.skip)(`RateLimiter on ${limiter.name}`, () => {
    layer(limiter.layer)((it) => {
      for (const [plan, { perDay, perMinute }] of Object.entries(planLimits)) {
        it.effect(`admits exactly ${perMinute} a minute and ${perDay} a day on plan ${plan}, also at once`, () =>
          Effect.gen(function*() {
            const limiter = yield* RateLimiter
            const charge = limiter.charge(`key:${plan}`, { perMinute, perDay })
            let admitted = 0
            for (let minute = 0; minute * perMinute < perDay + perMinute; minute++) {
              const decisions = yield* Effect.all(Array.from({ length: perMinute + 10 }, () => charge), {
                concurrency: "unbounded"
              })
              const now = decisions.filter((decision) => decision.admitted).length
              assert.strictEqual(now, Math.min(perMinute, perDay - admitted))
              admitted += now
              yield* TestClock.adjust("60 seconds")
            }
            assert.strictEqual(admitted, perDay)
            yield* TestClock.adjust("1 day")
            assert.isTrue((yield* charge).admitted)
          }))
      }

      it.effect("bans keys but no addresses, until the ban ends or is lifted", () =>
        Effect.gen(function*() {
          const limiter = yield* RateLimiter
          const limits = { perMinute: 2, perDay: 100 }
          for (const caller of ["key:eager", "address:eager"] as const) {
            for (let i = 0; i < 5; i++) yield* limiter.charge(caller, limits)
            assert.strictEqual((yield* limiter.peek(caller, limits)).banned, caller === "key:eager")
          }
          yield* limiter.unban("key:eager")
          assert.isFalse((yield* limiter.peek("key:eager", limits)).banned)
          yield* TestClock.adjust("1 minute")
          assert.isTrue((yield* limiter.charge("key:eager", limits)).admitted)
        }))

      it.effect("counts each caller apart", () =>
        Effect.gen(function*() {
          const limiter = yield* RateLimiter
          const limits = { perMinute: 1, perDay: 1 }
          for (const caller of ["key:a", "key:b", "address:a"] as const) {
            assert.isTrue((yield* limiter.charge(caller, limits)).admitted)
            assert.isFalse((yield* limiter.charge(caller, limits)).admitted)
          }
        }))

      it.effect("forgets the addresses that called longest ago, but no key, when a flood of addresses comes", () =>
        Effect.gen(function*() {
          const limiter = yield* RateLimiter
          const limits = { perMinute: 1, perDay: 1 }
          yield* limiter.charge("key:kept", limits)
          yield* limiter.charge("address:first", limits)
          for (let i = 0; i < 100_000; i++) yield* limiter.charge(`address:${i}`, limits)
          assert.isFalse((yield* limiter.charge("key:kept", limits)).admitted)
          assert.isFalse((yield* limiter.charge("address:99999", limits)).admitted)
          assert.isTrue((yield* limiter.charge("address:first", limits)).admitted)
        }))
    })
  })
}

for (const database of databases) {
  describe.skipIf(database.skip)(`RateLimiter on ${database.name}`, () => {
    layer(database.layer)((it) => {
      /** What `use` does with a limiter of its own, as in a process of its own. */
      const inProcess = <A, E>(use: Effect.Effect<A, E, RateLimiter>) =>
        Effect.scoped(Effect.provide(use, Layer.fresh(RateLimiter.layer)))

      const limits = { perMinute: 3, perDay: 100 }
      const charge = (caller: Caller) => Effect.flatMap(RateLimiter, (limiter) => limiter.charge(caller, limits))
      const peek = (caller: Caller) => Effect.flatMap(RateLimiter, (limiter) => limiter.peek(caller, limits))

      it.effect("knows counts and bans again after a restart, as they were", () =>
        Effect.gen(function*() {
          const before = yield* inProcess(Effect.gen(function*() {
            yield* charge("key:counted")
            yield* charge("key:counted")
            for (let i = 0; i < 7; i++) yield* charge("key:banned")
            return [yield* peek("key:counted"), yield* peek("key:banned")]
          }))
          const after = yield* inProcess(Effect.all([peek("key:counted"), peek("key:banned")]))
          assert.deepStrictEqual(after, before)
          assert.isTrue(after[1]?.banned)
          yield* inProcess(Effect.flatMap(RateLimiter, (limiter) => limiter.unban("key:banned")))
          assert.isFalse((yield* inProcess(peek("key:banned"))).banned)
        }))

      it.effect("goes on counting while the database is gone, and keeps what it counted when it is back", () =>
        Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          yield* inProcess(Effect.gen(function*() {
            yield* charge("key:outage")
            yield* sql`ALTER TABLE rate_limits RENAME TO gone`
            yield* TestClock.adjust("1 second")
            yield* charge("key:outage")
            yield* charge("key:outage")
            assert.isFalse((yield* charge("key:outage")).admitted)
            yield* sql`ALTER TABLE gone RENAME TO rate_limits`
          }))
          assert.strictEqual((yield* inProcess(peek("key:outage"))).windows[0].remaining, 0)
        }))
    })
  })
}
