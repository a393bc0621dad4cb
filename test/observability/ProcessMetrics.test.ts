/** Tests the metrics of the process. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import * as ProcessMetrics from "../../src/observability/ProcessMetrics.ts"

describe("The metrics of the process", () => {
  it.live("show CPU, memory, delays of the event loop, garbage collections and versions", () =>
    Effect.gen(function*() {
      const metrics = yield* ProcessMetrics.make
      const samples = metrics(true).replaceAll(/^#.*\n/gm, "")
      const { serviceVersion } = ProcessMetrics
      const labels = `{node="${process.version}",revision="unknown",version="${serviceVersion}"}`
      assert.include(samples, `petstore_ready 1\npetstore_build_info${labels} 1\n`)
      assert.match(samples, /^process_cpu_seconds_total 0*[1-9.]/m)
      for (
        const name of ["process_start_time_seconds", "process_resident_memory_bytes", "nodejs_heap_size_used_bytes"]
      ) {
        assert.match(samples, new RegExp(`^${name} [1-9]`, "m"))
      }
      for (const name of ["nodejs_eventloop_lag_p99_seconds", "nodejs_gc_duration_seconds_total"]) {
        assert.match(samples, new RegExp(`^${name} \\d`, "m"))
      }
    }))
})
