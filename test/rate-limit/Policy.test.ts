import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { mostRestrictive } from "../../src/rate-limit/LimitHeaders.ts"
import { dayWindow, decide, minuteWindow, type State, unban } from "../../src/rate-limit/Policy.ts"

describe("Policy", () => {
  it("shows the window with fewer requests remaining, or the later reset, if the same number remains", () => {
    const shown = (remaining: number, resetAt: number, dayRemaining: number, dayResetAt: number) => {
      const day = { ...dayWindow, limit: 9, remaining: dayRemaining, resetAt: dayResetAt }
      return mostRestrictive([{ ...minuteWindow, limit: 9, remaining, resetAt }, day]).name
    }
    const names = [shown(0, 10, 3, 99), shown(4, 10, 3, 99), shown(0, 10, 0, 99), shown(0, 99, 0, 10)]
    assert.deepStrictEqual(names, ["minute", "day", "day", "minute"])
  })

  it("opens each window with its first request, charges both windows or neither, and closes each on time", () => {
    const day = 86_400_000
    const requests: ReadonlyArray<readonly [now: number, ...decision: ReadonlyArray<unknown>]> = [
      [0, true, [1, 60_000], [2, day]],
      [30_000, true, [0, 60_000], [1, day]],
      [59_999, false, [0, 60_000], [1, day]],
      [60_000, true, [1, 120_000], [0, day]],
      [61_000, false, [1, 120_000], [0, day]],
      [day - 1, false, [2, day + 59_999], [0, day]],
      [day, true, [1, day + 60_000], [2, 2 * day]]
    ]
    let state: State = {}
    for (const [now, ...expected] of requests) {
      const { decision: { allowed, windows }, next } = decide(state, { perMinute: 2, perDay: 3 }, now, true)
      state = next
      assert.deepStrictEqual([allowed, ...windows.map(({ remaining, resetAt }) => [remaining, resetAt])], expected)
    }
  })

  const send = (state: State, now: number, requests: number, perMinute = 4, isKey = true): State =>
    Array.from({ length: requests }).reduce<State>(
      (before) => decide(before, { perMinute, perDay: 1_000 }, now, isKey).next,
      state
    )

  it("bans a key, but no address, once its rejections in a minute reach its limit per minute, or three", () => {
    assert.isUndefined(send({}, 0, 7).ban)
    const banned = send({}, 0, 8)
    assert.deepStrictEqual(banned.ban, { seconds: 60, until: 60_000 })
    // Requests during a ban do not extend it, and do not count towards the next one.
    assert.deepStrictEqual(send(banned, 59_999, 100), banned)
    assert.isUndefined(send({}, 0, 3, 1).ban)
    assert.isDefined(send({}, 0, 4, 1).ban)
    assert.isUndefined(send({}, 0, 100, 4, false).ban)
    // Three rejections in each of two minutes.
    assert.isUndefined(send(send({}, 0, 7), 60_000, 7).ban)
  })

  it("counts the rejections of a key in a minute that begins with the first of them", () => {
    const banAfter = (...times: ReadonlyArray<number>) =>
      times.reduce<State>((state, now) => send(state, now, 1, 1), {}).ban
    // The first request is allowed, as is that of the next minute.
    assert.deepStrictEqual(banAfter(0, 1, 30_000, 60_000, 60_000), { seconds: 60, until: 120_000 })
    assert.isUndefined(banAfter(0, 1, 30_000, 60_000, 60_001))
  })

  it.each([
    ["a minute", 4, { perMinute: 4, perDay: 1_000 }, 60_000],
    ["a ban", 8, { perMinute: 4, perDay: 1_000 }, 60_000],
    ["a day", 4, { perMinute: 1_000, perDay: 4 }, 86_400_000]
  ])("holds a caller no longer than %s when the clock steps back", (_, requests, limits, length) => {
    const before = 2 * 86_400_000
    let state: State = {}
    for (let i = 0; i < requests; i++) state = decide(state, limits, before, true).next
    for (const now of [0, before - 1_800_000]) {
      const { decision, next } = decide(state, limits, now, true)
      assert.isFalse(decision.allowed)
      assert.isAtMost(mostRestrictive(decision.windows).resetAt, now + length)
      assert.isTrue(decide(next, limits, now + length, true).decision.allowed)
    }
  })

  it("doubles each further ban up to an hour, and starts again at a minute after an hour without a ban", () => {
    const lengths: Array<number | undefined> = []
    let state: State = {}
    for (let i = 0; i < 9; i++) {
      state = send(state, state.ban?.until ?? 0, 8)
      lengths.push(state.ban?.seconds)
    }
    assert.deepStrictEqual(lengths, [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600])
    const nextAfter = (ms: number) => send(state, (state.ban?.until ?? 0) + ms, 8).ban?.seconds
    assert.deepStrictEqual([nextAfter(3_599_999), nextAfter(3_600_000)], [3600, 60])
  })

  it("lifts a ban, and makes the next ban of that hour twice as long as the lifted one", () => {
    const banned = send(send({}, 0, 8), 60_000, 8)
    const lifted = unban(banned, 70_000)
    assert.deepStrictEqual(lifted.ban, { seconds: 120, until: 70_000 })
    assert.deepStrictEqual(unban(lifted, 80_000), lifted)
    assert.isUndefined(unban({}, 0).ban)
    // The minute is used up, so four rejections ban again. Those before the lifting do not count.
    assert.deepStrictEqual(send(lifted, 70_000, 3).ban, lifted.ban)
    assert.deepStrictEqual(send(lifted, 70_000, 4).ban, { seconds: 240, until: 310_000 })
    const nextAfter = (ms: number) => send(lifted, 70_000 + ms, 8).ban?.seconds
    assert.deepStrictEqual([nextAfter(3_599_999), nextAfter(3_600_000)], [240, 60])
  })

  it("never bans clients that wait as long as Retry-After says, and are fewer than a third of the limit a minute", () => {
    const limitsOf = fc.record({ perMinute: fc.integer({ min: 4, max: 9 }), perDay: fc.integer({ min: 1, max: 30 }) })
    const pause = fc.oneof({ weight: 4, arbitrary: fc.nat(300) }, { weight: 1, arbitrary: fc.nat(70_000) })
    const pauses = fc.array(pause, { maxLength: 200 })
    // A day that ends soon can add a rejection between those of two minutes.
    const days = fc.record({ used: fc.nat(30), resetAt: fc.integer({ min: 1, max: 120_000 }) })
    fc.assert(fc.property(limitsOf, days, pauses, (limits, day, pauses) => {
      let state: State = { day }
      let now = 0
      const clients = Math.ceil(limits.perMinute / 3) - 1
      for (let i = 0; i < 200; i++) {
        for (let other = 1; other < clients; other++) state = decide(state, limits, now, true).next
        // If any client is rejected, the last one is.
        const { decision, next } = decide(state, limits, now, true)
        state = next
        assert.isUndefined(decision.bannedUntil)
        now = decision.allowed ? now + (pauses[i] ?? 0) : mostRestrictive(decision.windows).resetAt
      }
    }))
  })
})
