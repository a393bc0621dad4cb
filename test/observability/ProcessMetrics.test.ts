/** Tests the metrics of the process for Prometheus. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { TestClock } from "effect/testing"
import { setTimeout } from "node:timers/promises"
import * as ProcessMetrics from "../../src/observability/ProcessMetrics.ts"

it.effect("Every reader of /metrics gets the event-loop delays of the last 15 seconds", () =>
  Effect.gen(function*() {
    const format = yield* ProcessMetrics.make(1)
    const readP99 = Effect.sync(() => Number(/^nodejs_eventloop_lag_p99_seconds (.*)$/m.exec(format(true))?.[1]))
    // Let the monitor's timer of 20 ms start, block the event loop, and let the timer record the delay.
    const block = Effect.promise(async () => {
      await setTimeout(100)
      const end = performance.now() + 200
      while (performance.now() < end);
      await setTimeout(100)
    })
    yield* block
    assert.strictEqual(yield* readP99, 0)
    yield* TestClock.adjust("15 seconds")
    const [first, second] = [yield* readP99, yield* readP99]
    assert.isAbove(first, 0.1)
    assert.strictEqual(second, first)
    yield* TestClock.adjust("15 seconds")
    assert.isBelow(yield* readP99, 0.1)
  }))
