import { assert, describe, it } from "@effect/vitest"
import { checkIntervalMs, maxReplyTimeMs, maxSilenceMs, ReplyWatch } from "../../../src/rate-limit/redis/ReplyWatch.ts"

/** Checks every interval from `from` until a reply is late or `until` has passed. Returns the time of the last check. */
const checkUntilLate = (watch: ReplyWatch, from: number, until: number): number => {
  let now = from
  while (now < until) {
    now += checkIntervalMs
    if (watch.isLate(now)) return now
  }
  return Infinity
}

describe("ReplyWatch", () => {
  it("finds a missing reply late within 50 ms", () => {
    const watch = new ReplyWatch(0)
    watch.sent()
    const lateAt = checkUntilLate(watch, 0, 1_000)
    assert.isAtLeast(lateAt, maxSilenceMs)
    assert.isBelow(lateAt, 50)
  })

  it("finds nothing late without a command in flight", () => {
    const watch = new ReplyWatch(0)
    watch.received(watch.sent())
    watch.dropped(watch.sent())
    assert.isTrue(watch.isIdle)
    assert.strictEqual(checkUntilLate(watch, 0, 1_000), Infinity)
  })

  it("allows a slow reply while other replies arrive, for 100 ms at most", () => {
    const watch = new ReplyWatch(0)
    watch.sent()
    let now = 0
    while (now < 1_000) {
      now += checkIntervalMs
      watch.received(watch.sent())
      if (watch.isLate(now)) break
    }
    assert.isAtLeast(now, maxReplyTimeMs)
    assert.isAtMost(now, maxReplyTimeMs + 2 * checkIntervalMs)
  })

  it("does not count the time in which the process stood still", () => {
    const watch = new ReplyWatch(0)
    const slot = watch.sent()
    assert.isFalse(watch.isLate(5_000))
    assert.isFalse(watch.isLate(10_000))
    watch.received(slot)
    assert.strictEqual(checkUntilLate(watch, 10_000, 11_000), Infinity)
  })

  it("confirms a late reply by a second check, so that a reply in the socket's buffer is still read", () => {
    const watch = new ReplyWatch(0)
    const slot = watch.sent()
    let now = 0
    while (now < maxSilenceMs) assert.isFalse(watch.isLate(now += checkIntervalMs))
    watch.received(slot)
    assert.isFalse(watch.isLate(now + checkIntervalMs))
  })

  it("does not count an idle time without checks", () => {
    const watch = new ReplyWatch(0)
    watch.received(watch.sent())
    watch.sent()
    watch.resume(1_000)
    const lateAt = checkUntilLate(watch, 1_000, 2_000)
    assert.isAtLeast(lateAt, 1_000 + maxSilenceMs)
    assert.isBelow(lateAt, 1_050)
  })
})
