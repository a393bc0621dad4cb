import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { decide, mostRestrictive, type State, unban } from "../../src/rate-limit/Policy.ts"
import { asExpected, model } from "./Model.ts"

const limitsOf = fc.record({ perMinute: fc.integer({ min: 1, max: 5 }), perDay: fc.integer({ min: 1, max: 12 }) })
const pause = fc.oneof(
  fc.constant(0),
  fc.integer({ min: 1, max: 59_999 }),
  fc.constantFrom(59_999, 60_000, 60_001, 120_000, 3_600_000, 86_399_999, 86_400_000)
)

describe("Policy: limits", () => {
  it("decides as the reference model, for any limits, their changes and times, with and without bans", () => {
    const changed = fc.option(limitsOf, { freq: 4, nil: undefined })
    const steps = fc.array(
      fc.record({ pause, changed, requests: fc.integer({ min: 0, max: 12 }), lift: fc.boolean() }),
      { maxLength: 40 }
    )
    const start = fc.integer({ min: 0, max: 2_000_000_000_000 })
    fc.assert(fc.property(limitsOf, fc.boolean(), steps, start, (initialLimits, bannable, steps, start) => {
      const expected = model(initialLimits, bannable)
      let limits = initialLimits
      let state: State = {}
      let now = start
      for (const { changed = limits, lift, pause, requests } of steps) {
        now += pause
        limits = changed
        expected.change(changed)
        for (let i = 0; i < requests; i++) {
          const { decision, next } = decide(state, limits, now, bannable)
          state = next
          assert.deepStrictEqual(asExpected(decision), expected.request(now))
        }
        if (lift && requests % 5 === 0) {
          state = unban(state, now)
          expected.lift(now)
        }
      }
    }))
  })

  it("allows exactly as many further requests before the reset as the most restrictive window has remaining", () => {
    fc.assert(fc.property(limitsOf, fc.integer({ min: 1, max: 20 }), (limits, before) => {
      let state: State = {}
      let window = mostRestrictive(decide({}, limits, 0, false).decision.windows)
      for (let i = 0; i < before; i++) {
        const { decision, next } = decide(state, limits, 0, false)
        state = next
        window = mostRestrictive(decision.windows)
      }
      let allowed = 0
      while (true) {
        const { decision, next } = decide(state, limits, 0, false)
        if (!decision.allowed) break
        state = next
        allowed++
      }
      assert.strictEqual(allowed, window.remaining)
    }))
  })

  it("keeps the used requests of open windows when the limits change, in both directions", () => {
    const [low, high] = [{ perMinute: 2, perDay: 20 }, { perMinute: 5, perDay: 50 }]
    let state: State = {}
    /** Sends a request, and returns whether it is allowed and what remains of each window. */
    const send = (limits: typeof low) => {
      const { decision, next } = decide(state, limits, 0, true)
      state = next
      return [decision.allowed, ...decision.windows.map(({ remaining }) => remaining)]
    }
    assert.deepStrictEqual([send(low), send(low), send(low)], [[true, 1, 19], [true, 0, 18], [false, 0, 18]])
    assert.deepStrictEqual([send(high), send(high)], [[true, 2, 47], [true, 1, 46]])
    assert.deepStrictEqual([send(low), send(high), send(high)], [[false, 0, 16], [true, 0, 45], [false, 0, 45]])
  })

  it("shows the exhausted window with the later reset, else the window with fewer requests remaining", () => {
    const of = (minute: readonly [number, number], day: readonly [number, number]) =>
      mostRestrictive([
        { name: "minute", limit: 9, seconds: 60, remaining: minute[0], resetAt: minute[1] },
        { name: "day", limit: 9, seconds: 86_400, remaining: day[0], resetAt: day[1] }
      ]).name
    assert.strictEqual(of([3, 10], [4, 99]), "minute")
    assert.strictEqual(of([4, 10], [3, 99]), "day")
    assert.strictEqual(of([0, 10], [3, 99]), "minute")
    assert.strictEqual(of([3, 10], [0, 99]), "day")
    assert.strictEqual(of([0, 10], [0, 99]), "day")
    assert.strictEqual(of([0, 99], [0, 10]), "minute")
  })
})

describe("Policy: bans", () => {
  const limits = { perMinute: 3, perDay: 1_000 }
  const minute = 60_000
  const hour = 60 * minute

  /** Sends `requests` requests of one key at each of `times`. Returns the milliseconds of ban left after each. */
  const bansOf = (times: ReadonlyArray<number>, requests: number): ReadonlyArray<number | undefined> => {
    let state: State = {}
    return times.map((now) => {
      for (let i = 0; i < requests; i++) state = decide(state, limits, now, true).next
      return state.ban && now < state.ban.until ? state.ban.until - now : undefined
    })
  }

  it("bans a key after as many rejections in a minute as its limit per minute, and not for fewer", () => {
    assert.deepStrictEqual(bansOf([0], 5), [undefined])
    assert.deepStrictEqual(bansOf([0], 6), [minute])
    assert.deepStrictEqual(bansOf([0, minute, 2 * minute], 5), [undefined, undefined, undefined])
  })

  it("doubles each further ban up to an hour, and starts again at a minute after an hour without a ban", () => {
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

  it("shows the end of a ban and the usage, charges nothing during the ban, and allows requests after it", () => {
    let state: State = {}
    for (let i = 0; i < 6; i++) state = decide(state, limits, 1000, true).next
    const banned = state
    const { decision, next } = decide(banned, limits, 1000 + minute - 1, true)
    assert.deepInclude(decision, { allowed: false, bannedUntil: 1000 + minute })
    assert.deepStrictEqual(decision.windows.map(({ remaining, resetAt }) => [remaining, resetAt]), [
      [0, 1000 + minute],
      [997, 1000 + 24 * hour]
    ])
    assert.deepStrictEqual(next, banned)
    assert.isTrue(decide(banned, limits, 1000 + minute, true).decision.allowed)
  })

  it("never bans a client that waits as long as Retry-After says", () => {
    const pauses = fc.array(fc.integer({ min: 0, max: 70_000 }), { maxLength: 200 })
    fc.assert(fc.property(limitsOf, pauses, (limits, pauses) => {
      let state: State = {}
      let now = 0
      for (let i = 0; i < 200; i++) {
        const { decision, next } = decide(state, limits, now, true)
        state = next
        assert.isUndefined(decision.bannedUntil)
        now = decision.allowed ? now + (pauses[i] ?? 0) : mostRestrictive(decision.windows).resetAt
      }
    }))
  })
})
