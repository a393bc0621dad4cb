import { assert, describe, it } from "@effect/vitest"
import { Clock, Effect, Fiber } from "effect"
import { TestClock } from "effect/testing"
import { ServiceUnavailable } from "../../src/api/Errors.ts"
import { BackgroundFailures } from "../../src/database/BackgroundFailures.ts"
import * as KeyStates from "../../src/rate-limit/KeyStates.ts"

const state = { day: { used: 1, resetAt: 86_400_000 } }

/** States of keys on a store with one state for each key, which can refuse to save. */
const makeOn = Effect.fnUntraced(function*(bounds?: Parameters<typeof KeyStates.make>[1]) {
  const store = { loads: [] as Array<ReadonlyArray<string>>, isReadOnly: false }
  const states = yield* KeyStates.make({
    table: "key_limits",
    unavailable: new ServiceUnavailable(),
    load: (keys) => {
      store.loads.push(keys)
      return Effect.succeed(new Map(keys.map((key) => [key, state])))
    },
    save: () => store.isReadOnly ? Effect.fail(new ServiceUnavailable()) : Effect.void
  }, bounds).pipe(Effect.provide(BackgroundFailures.layerIgnored))
  const clock = yield* Clock.Clock
  /** Adds a state that a lookup of keys has read just now. */
  const addLoaded = (key: string) => states.addLoaded(key, state, clock.monotonicTimeNanosUnsafe())
  return { ...states, store, addLoaded }
})

describe("The states of keys", () => {
  it.effect("stay in memory while they are used, and for a minute after that", () =>
    Effect.gen(function*() {
      const { addLoaded, find } = yield* makeOn()
      addLoaded("a")
      for (let seconds = 0; seconds < 600; seconds += 59) {
        assert.strictEqual(find("a"), state)
        yield* TestClock.adjust("59 seconds")
      }
      yield* TestClock.adjust("2 minutes")
      assert.isUndefined(find("a"))
    }))

  it.effect("stay in memory for two seconds after their use, also if they are many as a minute ends", () =>
    Effect.gen(function*() {
      const { addLoaded, find } = yield* makeOn({ maxStates: 4 })
      addLoaded("a")
      yield* TestClock.adjust("59900 millis")
      assert.strictEqual(find("a"), state)
      addLoaded("b")
      yield* TestClock.adjust("1 second")
      assert.strictEqual(find("a"), state)
    }))

  it.effect("are loaded in one statement for all calls of an event-loop turn", () =>
    Effect.gen(function*() {
      const { load, store } = yield* makeOn()
      const keys = ["a", "b", "c"]
      const loading = yield* Effect.forkChild(Effect.forEach(keys, load, { concurrency: "unbounded" }))
      assert.deepStrictEqual(yield* Fiber.join(loading), [state, state, state])
      assert.deepStrictEqual(store.loads.map((each) => [...each].toSorted()), [keys])
    }))

  it.effect("are at most 100,000, however many keys are looked up", () =>
    Effect.gen(function*() {
      const { addLoaded, find } = yield* makeOn()
      for (let key = 0; key < 400_000; key++) {
        addLoaded(`${key}`)
        if (key % 5_000 === 0) yield* TestClock.adjust("1 second")
      }
      const held = Array.from({ length: 400_000 }, (_, key) => find(`${key}`)).filter((each) => each !== undefined)
      assert.isAtMost(held.length, 120_000)
      assert.isAtLeast(held.length, 50_000)
    }))

  it.effect("cannot change for further keys while 100,000 states cannot be saved, until they are saved", () =>
    Effect.gen(function*() {
      const { change, load, store, whyUnchangeable } = yield* makeOn()
      yield* load("loaded")
      store.isReadOnly = true
      for (let key = 0; key < 100_000; key++) change(`${key}`, state)
      yield* TestClock.adjust("1 second")
      for (const key of ["other", "loaded"]) {
        assert.match(whyUnchangeable(key)?.message ?? "", /cannot save the request counts/, key)
      }
      assert.isUndefined(whyUnchangeable("0"))
      store.isReadOnly = false
      yield* TestClock.adjust("1 second")
      assert.isUndefined(whyUnchangeable("other"))
    }))
})
