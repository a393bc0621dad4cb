import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { clamp, decide, endOf, mostRestrictive, type State } from "../../src/rate-limit/Policy.ts"

const limitsOf = fc.record({ perMinute: fc.integer({ min: 1, max: 5 }), perDay: fc.integer({ min: 1, max: 12 }) })

describe("Policy: limits", () => {
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

describe("Policy: clocks", () => {
  it("ends every count and ban within its length from now, whatever is stored, and changes nothing else", () => {
    const end = fc.integer({ min: 0, max: 4_000_000_000_000 })
    const count = fc.record({ used: fc.integer({ min: 0, max: 10 }), resetAt: end })
    const ban = fc.record({ seconds: fc.integer({ min: 0, max: 3_600 }), until: end })
    const states = fc.record({ minute: count, day: count, refusals: count, ban }, { requiredKeys: [] })
    fc.assert(fc.property(states, end, (state, now) => {
      const clamped = clamp(state, now)
      const expected = structuredClone(state)
      if (expected.minute) expected.minute.resetAt = Math.min(expected.minute.resetAt, now + 60_000)
      if (expected.day) expected.day.resetAt = Math.min(expected.day.resetAt, now + 86_400_000)
      if (expected.refusals) expected.refusals.resetAt = Math.min(expected.refusals.resetAt, now + 60_000)
      if (expected.ban) expected.ban.until = Math.min(expected.ban.until, now + expected.ban.seconds * 1000)
      assert.strictEqual(
        JSON.stringify(clamped),
        JSON.stringify(expected, ["minute", "day", "refusals", "ban", "used", "resetAt", "seconds", "until"])
      )
      assert.isAtMost(endOf(clamped), now + 86_400_000)
      assert.deepStrictEqual(
        decide(state, { perMinute: 5, perDay: 5 }, now, true),
        decide(clamped, { perMinute: 5, perDay: 5 }, now, true)
      )
    }))
  })
})
