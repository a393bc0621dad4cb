/** Tests values that are written in the background. */
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber, Scope } from "effect"
import { TestClock } from "effect/testing"
import * as WriteBehind from "../../src/database/WriteBehind.ts"

describe("Values that are written in the background", () => {
  it.effect("are written once, also if the end comes during a write", () =>
    Effect.gen(function*() {
      const scope = yield* Scope.make()
      const responded = yield* Deferred.make<void>()
      const written: Array<number> = []
      // An interrupted statement commits too.
      const write = (values: ReadonlyMap<number, boolean>) =>
        Effect.suspend(() => {
          written.push(...values.keys())
          return Deferred.await(responded)
        })
      const make = WriteBehind.make({ table: "example", interval: "1 second", write, warning: "It cannot be written" })
      const pending = yield* Scope.provide(make, scope)
      pending.set(1, true)
      yield* TestClock.adjust("1 second")
      assert.deepStrictEqual(written, [1])
      pending.set(2, true)
      const end = yield* Effect.forkChild(Scope.close(scope, Exit.void))
      yield* TestClock.adjust("1 second")
      yield* Deferred.succeed(responded, undefined)
      yield* Fiber.join(end)
      assert.deepStrictEqual(written, [1, 2])
    }))
})
