import { assert, it } from "@effect/vitest"
import { ConfigProvider, Effect, Layer } from "effect"
import { PrometheusMetrics } from "effect/observability"
import { TestClock } from "effect/testing"
import { setTimeout } from "node:timers/promises"
import v8 from "node:v8"
import vm from "node:vm"
import * as ProcessMetrics from "../../src/observability/ProcessMetrics.ts"
import { untilTrue } from "../support/Process.ts"

const read = (name: string) =>
  Effect.map(PrometheusMetrics.format(), (text) => Number(new RegExp(`^${name} (.*)$`, "m").exec(text)?.[1]))

/** Replaces functions of `process` for as long as the scope lasts. */
const replaceInProcess = Effect.fnUntraced(function*(functions: Partial<typeof process>) {
  const { cpuUsage, memoryUsage } = process
  yield* Effect.addFinalizer(() => Effect.sync(() => Object.assign(process, { cpuUsage, memoryUsage })))
  Object.assign(process, functions)
})

it.effect("Memory is the resident one, the used part of V8's heap, and buffers outside it", () =>
  Effect.gen(function*() {
    const fixed = { rss: 5, heapTotal: 4, heapUsed: 3, external: 2, arrayBuffers: 1 }
    yield* replaceInProcess({ memoryUsage: Object.assign(() => fixed, { rss: () => fixed.rss }) })
    yield* Layer.build(ProcessMetrics.layer(1))
    const names = ["process_resident_memory_bytes", "nodejs_heap_size_used_bytes", "nodejs_external_memory_bytes"]
    assert.deepStrictEqual(yield* Effect.forEach(names, read), [fixed.rss, fixed.heapUsed, fixed.external])
  }))

it.effect("Times are in seconds: the CPU of user and system, and the start since 1970", () =>
  Effect.gen(function*() {
    yield* replaceInProcess({ cpuUsage: () => ({ user: 1_500_000, system: 250_000 }) })
    yield* Layer.build(ProcessMetrics.layer(1))
    assert.strictEqual(yield* read("process_cpu_seconds_total"), 1.75)
    assert.strictEqual(yield* read("process_start_time_seconds"), performance.timeOrigin / 1_000)
  }))

it.effect("nodejs_gc_duration_seconds_total is the time spent in garbage collection, in seconds", () =>
  Effect.gen(function*() {
    const startedAt = performance.now()
    yield* Layer.build(ProcessMetrics.layer(1))
    v8.setFlagsFromString("--expose-gc")
    const collect: () => void = vm.runInNewContext("gc")
    const seconds = read("nodejs_gc_duration_seconds_total")
    collect()
    yield* untilTrue(Effect.map(seconds, (value) => value > 0))
    // In milliseconds, the value would be higher than the time that passed.
    assert.isAtMost(yield* seconds, (performance.now() - startedAt) / 1_000)
  }))

it.effect("petstore_build_info has BUILD_REVISION, and the versions of the service, its schema and Node", () =>
  Effect.gen(function*() {
    const config = ConfigProvider.layer(ConfigProvider.fromUnknown({ BUILD_REVISION: "79d1fb3" }))
    yield* Layer.build(Layer.provide(ProcessMetrics.layer(6), config))
    const [, labels] = /^petstore_build_info\{(.*)\} 1$/m.exec(yield* PrometheusMetrics.format()) ?? []
    const expected = ["revision=\"79d1fb3\"", "version=\"1.0.0\"", "schema_version=\"6\"", `node="${process.version}"`]
    assert.sameMembers(labels?.split(",") ?? [], expected)
  }))

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
