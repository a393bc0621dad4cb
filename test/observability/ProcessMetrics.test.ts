import { assert, it } from "@effect/vitest"
import { ConfigProvider, Effect, Layer, Metric } from "effect"
import { PrometheusMetrics } from "effect/observability"
import { TestClock } from "effect/testing"
import { setTimeout } from "node:timers/promises"
import * as ProcessMetrics from "../../src/observability/ProcessMetrics.ts"

const read = (name: string) =>
  Effect.map(PrometheusMetrics.format(), (text) => Number(new RegExp(`^${name} (.*)$`, "m").exec(text)?.[1]))

it.effect("nodejs_heap_size_used_bytes is the used part of V8's heap, not all of it", () =>
  Effect.gen(function*() {
    const { memoryUsage } = process
    const fixed = { rss: 5, heapTotal: 4, heapUsed: 3, external: 2, arrayBuffers: 1 }
    yield* Effect.addFinalizer(() => Effect.sync(() => Object.assign(process, { memoryUsage })))
    Object.assign(process, { memoryUsage: Object.assign(() => fixed, { rss: () => fixed.rss }) })
    yield* Layer.build(ProcessMetrics.layer(1))
    assert.strictEqual(yield* read("nodejs_heap_size_used_bytes"), fixed.heapUsed)
  }))

it.effect("petstore_build_info has the schema version, the revision, and the versions of the service and of Node", () =>
  Effect.gen(function*() {
    const config = ConfigProvider.layer(ConfigProvider.fromUnknown({ BUILD_REVISION: "79d1fb3" }))
    yield* Layer.build(Layer.provide(ProcessMetrics.layer(7), config))
    const [line = ""] = /^petstore_build_info.*$/m.exec(yield* PrometheusMetrics.format()) ?? []
    const labels = [`schema_version="7"`, `revision="79d1fb3"`, `version="1.0.0"`, `node="${process.version}"`]
    for (const label of labels) assert.include(line, label)
    assert.match(line, / 1$/)
  }).pipe(Effect.provideService(Metric.MetricRegistry, new Map())))

it.effect("Every reader of /metrics gets the event-loop delays of the last 15 seconds", () =>
  Effect.gen(function*() {
    yield* Layer.build(ProcessMetrics.layer(1))
    const readP99 = read("nodejs_eventloop_lag_p99_seconds")
    // Let the monitor's timer of 20 ms start, block the event loop, and let the timer record the delay.
    yield* Effect.promise(async () => {
      await setTimeout(100)
      const end = performance.now() + 200
      while (performance.now() < end);
      await setTimeout(100)
    })
    assert.strictEqual(yield* readP99, 0)
    yield* TestClock.adjust("15 seconds")
    const [first, second] = [yield* readP99, yield* readP99]
    assert.isAbove(first, 0.1)
    assert.isBelow(first, 10)
    assert.strictEqual(second, first)
    assert.isBelow(yield* read("nodejs_eventloop_lag_p50_seconds"), first)
    yield* TestClock.adjust("15 seconds")
    assert.isBelow(yield* readP99, 0.1)
  }))
