import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Fiber } from "effect"
import { SingleFlight } from "../../../src/rate-limit/redis/SingleFlight.ts"

const setup = Effect.gen(function*() {
  const gate = yield* Deferred.make<void>()
  const flights = new SingleFlight<string, string>()
  const result = { runs: 0 }
  const effect = Effect.andThen(Effect.sync(() => result.runs++), Deferred.await(gate))
  return { gate, flights, result, effect }
})

describe("SingleFlight", () => {
  it.effect("runs an effect once for all that ask while it runs, and again afterwards", () =>
    Effect.gen(function*() {
      const { effect, flights, gate, result } = yield* setup
      const all = yield* Effect.forkChild(
        Effect.all([flights.run("a", effect), flights.run("a", effect), flights.run("b", effect)], {
          concurrency: "unbounded"
        })
      )
      yield* Effect.yieldNow
      assert.strictEqual(result.runs, 2)
      yield* Deferred.succeed(gate, undefined)
      yield* Fiber.join(all)
      yield* flights.run("a", effect)
      assert.strictEqual(result.runs, 3)
    }))

  it.effect("gives a failure to all that wait, and none of it to later runs", () =>
    Effect.gen(function*() {
      const { flights, gate } = yield* setup
      const failing = Effect.andThen(Deferred.await(gate), Effect.fail("down"))
      const waiting = yield* Effect.forkChild(
        Effect.replicateEffect(Effect.flip(flights.run("a", failing)), 2, { concurrency: "unbounded" })
      )
      yield* Effect.yieldNow
      yield* Deferred.succeed(gate, undefined)
      assert.deepStrictEqual(yield* Fiber.join(waiting), ["down", "down"])
      yield* flights.run("a", Effect.void)
    }))
})
