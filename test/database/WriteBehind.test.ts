/** Tests values that are written in the background. */
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber, Logger, Scope } from "effect"
import { TestClock } from "effect/testing"
import * as WriteBehind from "../../src/database/WriteBehind.ts"

describe("Values that are written in the background", () => {
  it.effect("are written once, also if the end comes during a write", () =>
    Effect.gen(function*() {
      const scope = yield* Scope.make()
      const responded = yield* Deferred.make<void>()
      const written: Array<string> = []
      const pending = yield* Scope.provide(
        WriteBehind.make({
          table: "example",
          interval: "1 second",
          // An interrupted statement commits too.
          write: (values: ReadonlyMap<string, number>) =>
            Effect.suspend(() => {
              written.push(...values.keys())
              return Deferred.await(responded)
            }),
          warning: "The example cannot be written"
        }),
        scope
      )
      pending.set("first", 1)
      yield* TestClock.adjust("1 second")
      assert.deepStrictEqual(written, ["first"])
      pending.set("second", 2)
      const end = yield* Effect.forkChild(Scope.close(scope, Exit.void))
      yield* TestClock.adjust("1 second")
      yield* Deferred.succeed(responded, undefined)
      yield* Fiber.join(end)
      assert.deepStrictEqual(written, ["first", "second"])
    }))

  it.effect("are lost with a warning, the oldest first, if too many wait", () =>
    Effect.gen(function*() {
      const warnings: Array<unknown> = []
      const written: Array<number> = []
      const logger = Logger.make(({ message }) => warnings.push(message))
      const make = WriteBehind.make({
        table: "example",
        interval: "1 second",
        maxPending: 10,
        write: (values: ReadonlyMap<number, number>) => Effect.sync(() => written.push(...values.keys())),
        warning: "The example cannot be written"
      })
      const pending = yield* Effect.provide(make, Logger.layer([logger]))
      yield* TestClock.adjust("1 second")
      for (let key = 0; key < 12; key++) pending.set(key, key)
      yield* TestClock.adjust("1 second")
      assert.deepStrictEqual(written, [2, 3, 4, 5, 6, 7, 8, 9, 10, 11])
      assert.deepStrictEqual(warnings, [["The example cannot be written: 2 values were lost, because too many wait"]])
    }))
})
