import { assert, describe, it } from "@effect/vitest"
import { Clock, Effect } from "effect"
import { RedisDown } from "../../../src/rate-limit/redis/RedisClient.ts"
import { deviation, SharedClock } from "../../../src/rate-limit/redis/SharedClock.ts"
import * as SteadyClock from "../../../src/rate-limit/SteadyClock.ts"

/** A connection whose commands return `replies` in turn. */
const replying = (...replies: ReadonlyArray<unknown>) => {
  const left = [...replies]
  return {
    left,
    connection: { run: () => Effect.suspend(() => Effect.succeed(left.shift() as never)) }
  }
}

const setup = Effect.gen(function*() {
  const offsets: Array<number> = []
  const clock = new SharedClock(SteadyClock.make(yield* Clock.Clock), (offset) => offsets.push(offset))
  return { clock, offsets, start: clock.now() }
})

const script = () => Effect.succeed(null)

describe("deviation", () => {
  it("is zero between sending and receiving, and the distance outside of it", () => {
    assert.strictEqual(deviation(100, 100, 110), 0)
    assert.strictEqual(deviation(110, 100, 110), 0)
    assert.strictEqual(deviation(111, 100, 110), 1)
    assert.strictEqual(deviation(97, 100, 110), -3)
  })
})

describe("SharedClock", () => {
  it.effect("takes the shared time at the first synchronization, and reports by how much it moved", () =>
    Effect.gen(function*() {
      const { clock, offsets, start } = yield* setup
      yield* clock.synchronize(replying([start + 5_000, 300, 1]).connection)
      assert.strictEqual(clock.now(), start + 5_300)
      assert.deepStrictEqual(offsets, [5_300])
    }))

  it.effect("follows small deviations of replies", () =>
    Effect.gen(function*() {
      const { clock, offsets, start } = yield* setup
      yield* clock.synchronize(replying([start, 0, 1]).connection)
      yield* clock.run(replying({ now: start + 7 }).connection, script)
      assert.strictEqual(clock.now(), start + 7)
      assert.deepStrictEqual(offsets, [0])
    }))

  it.effect("continues its time when Redis's clock has stepped and no process has confirmed it since", () =>
    Effect.gen(function*() {
      const { clock, start } = yield* setup
      yield* clock.synchronize(replying([start, 0, 1]).connection)
      const { connection, left } = replying([start + 3_600_000, 0, 0], -3_600_000)
      yield* clock.synchronize(connection)
      assert.strictEqual(clock.now(), start)
      assert.lengthOf(left, 0)
    }))

  it.effect("takes the shared time after a suspension, when another process has confirmed it", () =>
    Effect.gen(function*() {
      const { clock, start } = yield* setup
      yield* clock.synchronize(replying([start, 0, 1]).connection)
      yield* clock.synchronize(replying([start + 3_600_000, 0, 1]).connection)
      assert.strictEqual(clock.now(), start + 3_600_000)
    }))

  it.effect("runs a script again after a synchronization if its estimate was wrong, and gives up after the second time", () =>
    Effect.gen(function*() {
      const { clock, start } = yield* setup
      const reply = { now: start + 10_000 }
      assert.strictEqual(yield* clock.run(replying(null, [start + 10_000, 0, 1], reply).connection, script), reply)
      assert.strictEqual(clock.now(), start + 10_000)
      const failed = yield* Effect.flip(clock.run(replying(null, [start, 0, 1], null).connection, script))
      assert.instanceOf(failed, RedisDown)
    }))
})
