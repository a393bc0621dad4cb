import { assert, describe, it, layer } from "@effect/vitest"
import { Effect } from "effect"
import { TestClock } from "effect/testing"
import * as fc from "fast-check"
import { planLimits } from "../src/api/Plans.ts"
import { type Counts, decide, RateLimiter, tightest } from "../src/RateLimiter.ts"

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

const limits = fc.record({ perMinute: fc.integer({ min: 1, max: 5 }), perDay: fc.integer({ min: 1, max: 12 }) })
const pauses = fc.array(
  fc.oneof(fc.constant(0), fc.integer({ min: 1, max: 59_999 }), fc.constantFrom(60_000, 86_399_999, 86_400_000)),
  { maxLength: 60 }
)

describe("The rule of the limits", () => {
  it("decides as the model does, for any limits and any times", () => {
    fc.assert(fc.property(limits, pauses, fc.integer({ min: 0, max: 2_000_000_000_000 }), (limits, pauses, start) => {
      const expected = model(limits)
      let counts: Counts | undefined
      let now = start
      for (const pause of pauses) {
        now += pause
        const { decision, next } = decide(counts, limits, now)
        counts = next
        const { admitted, left } = expected(now)
        assert.strictEqual(decision.admitted, admitted)
        assert.deepStrictEqual(decision.windows.map(({ remaining, resetAt }) => ({ remaining, resetAt })), left)
      }
    }))
  })

  it("tells true: after an answer with Remaining r exactly r more requests pass before that window's reset", () => {
    fc.assert(fc.property(limits, fc.integer({ min: 1, max: 20 }), (limits, before) => {
      let counts: Counts | undefined
      let shown = tightest(decide(undefined, limits, 0).decision)
      for (let i = 0; i < before; i++) {
        const { decision, next } = decide(counts, limits, 0)
        counts = next
        shown = tightest(decision)
      }
      let passed = 0
      while (true) {
        const { decision, next } = decide(counts, limits, 0)
        if (!decision.admitted) break
        counts = next
        passed++
      }
      assert.strictEqual(passed, shown.remaining)
    }))
  })

  it("shows the window that holds back most: the exhausted one with the later reset, else the fewer remaining", () => {
    const of = (minute: readonly [number, number], day: readonly [number, number]) =>
      tightest({
        admitted: true,
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

layer(RateLimiter.layerMemory)("RateLimiter in memory", (it) => {
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
