/** The metrics of the process itself in the text format of Prometheus, with the names of its client libraries. */
import { Effect } from "effect"
import { readFileSync } from "node:fs"
import { monitorEventLoopDelay, PerformanceObserver } from "node:perf_hooks"
import * as Settings from "../config/Settings.ts"

const { version }: { readonly version: string } = JSON.parse(
  readFileSync(new URL("../../package.json", import.meta.url), "utf8")
)

/** The version of the service. */
export const serviceVersion = version

/** Milliseconds between two measurements of the delay of the event loop. */
const resolution = 20

/** Returns a metric: its name, its meaning, and its samples by their labels. */
const metric = (
  type: "counter" | "gauge",
  name: string,
  help: string,
  samples: Readonly<Record<string, number>>
): string =>
  [
    `# HELP ${name} ${help}`,
    `# TYPE ${name} ${type}`,
    ...Object.entries(samples).map(([labels, value]) => `${name}${labels} ${value}`)
  ].map((line) => `${line}\n`).join("")

/**
 * Measures this process until the scope closes. Returns a function that returns the metrics. The delays of the event
 * loop are those since its last call.
 */
export const make = Effect.gen(function*() {
  const revision = yield* Settings.buildRevision.config
  const delay = monitorEventLoopDelay({ resolution })
  let collectionSeconds = 0
  const observer = new PerformanceObserver((list) => {
    for (const { duration } of list.getEntries()) collectionSeconds += duration / 1_000
  })
  yield* Effect.acquireRelease(
    Effect.sync(() => {
      delay.enable()
      observer.observe({ entryTypes: ["gc"] })
    }),
    () =>
      Effect.sync(() => {
        delay.disable()
        observer.disconnect()
      })
  )
  return (): string => {
    const { system, user } = process.cpuUsage()
    const { external, heapUsed, rss } = process.memoryUsage()
    // The histogram counts the resolution as well: a timer that is on time has a delay of that length.
    const lag = (percentile: number): number => Math.max(0, delay.percentile(percentile) / 1e9 - resolution / 1_000)
    const lags = { "{quantile=\"0.5\"}": lag(50), "{quantile=\"0.99\"}": lag(99) }
    delay.reset()
    return [
      metric("counter", "process_cpu_seconds_total", "CPU time.", { "": (user + system) / 1e6 }),
      metric("gauge", "process_start_time_seconds", "Start of the process, in Unix time.", {
        "": performance.timeOrigin / 1_000
      }),
      metric("gauge", "process_resident_memory_bytes", "Resident memory.", { "": rss }),
      metric("gauge", "nodejs_heap_size_used_bytes", "Used part of V8's heap.", { "": heapUsed }),
      metric("gauge", "nodejs_external_memory_bytes", "Memory of buffers outside V8's heap.", { "": external }),
      metric("gauge", "nodejs_eventloop_lag_seconds", "Delay of the event loop since the last scrape.", lags),
      metric("counter", "nodejs_gc_duration_seconds_total", "Time of garbage collections.", { "": collectionSeconds }),
      metric("gauge", "petstore_build_info", "Version and build of the service, and version of Node.", {
        [`{node="${process.version}",revision="${revision}",version="${serviceVersion}"}`]: 1
      })
    ].join("")
  }
})
