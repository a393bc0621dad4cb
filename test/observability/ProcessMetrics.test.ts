/** Tests the metrics of the process. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { readFileSync } from "node:fs"
import * as ProcessMetrics from "../../src/observability/ProcessMetrics.ts"

describe("The metrics of the process", () => {
  it.live("show CPU, memory, delays of the event loop, garbage collections and versions", () =>
    Effect.gen(function*() {
      const metrics = yield* ProcessMetrics.make
      yield* Effect.sleep("50 millis")
      const samples = new Map(
        metrics(true).split("\n").filter((line) => !line.startsWith("#")).map((line) => {
          const space = line.lastIndexOf(" ")
          return [line.slice(0, space), Number(line.slice(space))]
        })
      )
      const { version } = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8"))
      assert.strictEqual(
        samples.get(`petstore_build_info{node="${process.version}",revision="unknown",version="${version}"}`),
        1
      )
      for (
        const name of [
          "petstore_ready",
          "process_cpu_seconds_total",
          "process_resident_memory_bytes",
          "process_start_time_seconds",
          "nodejs_heap_size_used_bytes",
          "nodejs_external_memory_bytes"
        ]
      ) {
        assert.isAbove(samples.get(name) ?? 0, 0, name)
      }
      assert.isAtLeast(samples.get("nodejs_eventloop_lag_p99_seconds") ?? -1, 0)
      assert.isAtLeast(samples.get("nodejs_gc_duration_seconds_total") ?? -1, 0)
    }))
})
