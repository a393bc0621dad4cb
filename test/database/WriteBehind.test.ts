/** Tests values that are written in the background. */
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber, Logger, Metric, Scope } from "effect"
import { TestClock } from "effect/testing"
import * as WriteBehind from "../../src/database/WriteBehind.ts"

/** Writes the keys of pending values with `write`, every second. */
const make = (table: string, write: (keys: ReadonlyArray<number>) => Effect.Effect<void>, maxPending?: number) =>
  WriteBehind.make({
    table,
    interval: "1 second",
    write: (values: ReadonlyMap<number, boolean>) => Effect.suspend(() => write([...values.keys()])),
    warning: "The example cannot be written",
    ...maxPending !== undefined && { maxPending }
  })

/** The failures of `task`, or `undefined` if the metric does not show it. */
const failuresOf = (task: string) =>
  Effect.map(Metric.snapshot, (metrics) => {
    const metric = metrics.find(({ attributes, id }) =>
      id === "background_failures_total" && attributes?.["task"] === task
    )
    return metric?.type === "Counter" ? Number(metric.state.count) : undefined
  })

describe("Values that are written in the background", () => {
  it.effect("are written once, also if the end comes during a write", () =>
    Effect.gen(function*() {
      const scope = yield* Scope.make()
      const responded = yield* Deferred.make<void>()
      const written: Array<number> = []
      // An interrupted statement commits too.
      const write = (keys: ReadonlyArray<number>) => {
        written.push(...keys)
        return Deferred.await(responded)
      }
      const pending = yield* Scope.provide(make("example", write), scope)
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

  it.effect("are lost with a warning, the oldest first, if too many wait", () =>
    Effect.gen(function*() {
      const warnings: Array<unknown> = []
      const written: Array<number> = []
      const logger = Logger.make(({ message }) => warnings.push(message))
      const write = (keys: ReadonlyArray<number>) => Effect.sync(() => void written.push(...keys))
      const pending = yield* Effect.provide(make("example", write, 10), Logger.layer([logger]))
      yield* TestClock.adjust("1 second")
      for (let key = 0; key < 12; key++) pending.set(key, true)
      yield* TestClock.adjust("1 second")
      assert.deepStrictEqual(written, [2, 3, 4, 5, 6, 7, 8, 9, 10, 11])
      assert.deepStrictEqual(warnings, [["The example cannot be written: 2 values were lost, because too many wait"]])
    }))

  it.effect("count each failed write in the metric of their table, which begins with 0", () =>
    Effect.gen(function*() {
      let isDown = true
      const pending = yield* make("counted", () => isDown ? Effect.die("The database is down") : Effect.void)
      assert.strictEqual(yield* failuresOf("write_counted"), 0)
      // The first interval has nothing to write.
      yield* TestClock.adjust("1 second")
      pending.set(1, true)
      yield* TestClock.adjust("2 seconds")
      assert.strictEqual(yield* failuresOf("write_counted"), 2)
      isDown = false
      yield* TestClock.adjust("2 seconds")
      assert.strictEqual(yield* failuresOf("write_counted"), 2)
    }).pipe(Effect.provide(Logger.layer([]))))
})
