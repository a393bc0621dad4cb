/** Tests the metric of failures of tasks beside the requests. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Logger, Metric } from "effect"
import { TestClock } from "effect/testing"
import * as WriteBehind from "../../src/database/WriteBehind.ts"

/** The failures of `task`, or `undefined` if the metric does not show it. */
const failuresOf = (task: string) =>
  Effect.map(Metric.snapshot, (metrics) => {
    const metric = metrics.find(({ attributes, id }) =>
      id === "background_failures_total" && attributes?.["task"] === task
    )
    return metric?.type === "Counter" ? Number(metric.state.count) : undefined
  })

describe("The metric of failures in the background", () => {
  it.effect("begins with 0, counts each failed write of a table, and no other", () =>
    Effect.gen(function*() {
      let isDown = true
      const pending = yield* WriteBehind.make({
        table: "example",
        interval: "1 second",
        write: () => isDown ? Effect.die("The database is down") : Effect.void,
        warning: "The example cannot be written"
      })
      assert.strictEqual(yield* failuresOf("write_example"), 0)
      // The first interval has nothing to write.
      yield* TestClock.adjust("1 second")
      pending.set("key", 1)
      yield* TestClock.adjust("2 seconds")
      assert.strictEqual(yield* failuresOf("write_example"), 2)
      isDown = false
      yield* TestClock.adjust("2 seconds")
      assert.strictEqual(yield* failuresOf("write_example"), 2)
    }).pipe(Effect.provide(Logger.layer([]))))
})
