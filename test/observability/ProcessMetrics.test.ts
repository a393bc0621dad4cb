/** Tests the metrics of the process. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { readFileSync } from "node:fs"
import * as ProcessMetrics from "../../src/observability/ProcessMetrics.ts"

/** The value of a sample in a text of metrics. */
const valueOf = (text: string, sample: string): number => {
  const line = text.split("\n").find((each) => each.startsWith(`${sample} `)) ?? assert.fail(`${sample} is missing`)
  return Number(line.slice(sample.length))
}

const blockFor = (ms: number): void => {
  const end = performance.now() + ms
  while (performance.now() < end);
}

describe("The metrics of the process", () => {
  it.live("show CPU, memory, delays of the event loop since the last scrape, and garbage collections", () =>
    Effect.gen(function*() {
      const metrics = yield* ProcessMetrics.make
      yield* Effect.sleep("50 millis")
      const before = metrics()
      // The interval in which the histogram is reset does not count.
      yield* Effect.sleep("50 millis")
      blockFor(200)
      yield* Effect.promise(async () => {
        let garbage: ReadonlyArray<string> = []
        for (let i = 0; i < 200; i++) {
          garbage = Array.from({ length: 10_000 }, (_, index) => `${index}`)
          await new Promise((resolve) => setImmediate(resolve))
        }
        return garbage
      })
      const after = metrics()
      assert.isAbove(valueOf(after, "process_cpu_seconds_total"), valueOf(before, "process_cpu_seconds_total") + 0.1)
      assert.isAbove(valueOf(after, "process_resident_memory_bytes"), 10e6)
      assert.isAbove(valueOf(after, "nodejs_heap_size_used_bytes"), 1e6)
      assert.isAbove(valueOf(after, `nodejs_eventloop_lag_seconds{quantile="0.99"}`), 0.1)
      assert.isAbove(
        valueOf(after, `nodejs_gc_runs_total{kind="minor"}`),
        valueOf(before, `nodejs_gc_runs_total{kind="minor"}`)
      )
      const uptime = Date.now() / 1000 - valueOf(after, "process_start_time_seconds")
      assert.isTrue(uptime > 0 && uptime < 3_600)
    }))

  it.effect("name the versions of the service and of Node", () =>
    Effect.gen(function*() {
      const text = (yield* ProcessMetrics.make)()
      const { version } = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8"))
      assert.strictEqual(valueOf(text, `petstore_build_info{revision="unknown",version="${version}"}`), 1)
      assert.strictEqual(valueOf(text, `nodejs_version_info{version="${process.version}"}`), 1)
    }))
})
