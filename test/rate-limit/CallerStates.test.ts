import { assert, describe, it } from "@effect/vitest"
import { Clock, Effect } from "effect"
import { TestClock } from "effect/testing"
import { setFlagsFromString } from "node:v8"
import { runInNewContext } from "node:vm"
import * as CallerStates from "../../src/rate-limit/CallerStates.ts"
import { decide, endOf, type State } from "../../src/rate-limit/Policy.ts"

setFlagsFromString("--expose-gc")
const collectGarbage: () => void = runInNewContext("gc")

/** Returns the megabytes of the heap in use. */
const heapMegabytes = (): number => {
  collectGarbage()
  return process.memoryUsage().heapUsed / 1e6
}

const limits = { perMinute: 60, perDay: 1_000 }
const million = 1_000_000
/** A time of charging. Its windows end one millisecond after the start of the test. */
const chargedAt = 1 - 86_400_000

const now = Effect.map(Clock.Clock, (clock) => () => clock.currentTimeMillisUnsafe())

describe("CallerStates", () => {
  it.effect(
    "bounds the memory of a million keys and a million addresses, and deletes states that have ended",
    () =>
      Effect.gen(function*() {
        const callers = yield* CallerStates.make<State>(endOf, yield* now)
        const charge = (caller: CallerStates.Caller) => {
          const { decision, next } = decide(callers.get(caller) ?? {}, limits, chargedAt, CallerStates.isKey(caller))
          callers.set(caller, next)
          return decision
        }
        // The first check for ended states runs now, the next one in a minute.
        yield* TestClock.adjust(0)
        const before = heapMegabytes()
        for (let i = 0; i < million; i++) charge(`address:${i}`)
        const addresses = heapMegabytes() - before
        assert.isBelow(addresses, 100)
        for (let i = 0; i < million; i++) charge(`key:${i}`)
        const keys = heapMegabytes() - before - addresses
        assert.isBelow(keys, 500)

        // No key is evicted. The oldest addresses are.
        assert.strictEqual(charge("key:0").windows[0].remaining, 58)
        assert.strictEqual(charge("address:0").windows[0].remaining, 59)
        assert.strictEqual(charge(`address:${million - 1}`).windows[0].remaining, 58)

        yield* TestClock.adjust("1 minute")
        while (callers.all().next().done !== true) yield* Effect.yieldNow
        assert.isUndefined(callers.get("address:0"))
        assert.isBelow(heapMegabytes() - before, 20)
      }),
    60_000
  )

  it.effect("evicts the addresses with the oldest last request", () =>
    Effect.gen(function*() {
      const callers = yield* CallerStates.make<number>(() => Infinity, yield* now)
      callers.set("key:kept", 1)
      callers.set("address:first", 1)
      callers.set("address:again", 1)
      for (let i = 0; i < 99_999; i++) {
        if (i === 50_000) callers.set("address:again", 2)
        callers.set(`address:${i}`, 1)
      }
      assert.strictEqual(callers.get("key:kept"), 1)
      assert.isUndefined(callers.get("address:first"))
      assert.strictEqual(callers.get("address:again"), 2)
    }))
})
