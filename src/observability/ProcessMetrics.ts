/** Formats metrics of the process for Prometheus, mostly with the names of Prometheus' client libraries. */
import { Effect, Schedule } from "effect"
import { readFileSync } from "node:fs"
import { monitorEventLoopDelay, PerformanceObserver } from "node:perf_hooks"
import * as Brand from "../api/Brand.ts"
import { Settings } from "../config/Settings.ts"

export const { version: serviceVersion }: { readonly version: string } = JSON.parse(
  readFileSync(new URL("../../package.json", import.meta.url), "utf8")
)

const resolutionMs = 20

const metric = (type: "counter" | "gauge", name: string, help: string, value: number, labels = ""): string =>
  `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n${name}${labels} ${value}\n`

/** Event-loop delays are those of the last complete window, so that reading them does not change them. */
const delayWindow = "15 seconds"

export const make = Effect.fnUntraced(function*(schemaVersion: number) {
  const revision = yield* Settings.buildRevision.config
  const delay = monitorEventLoopDelay({ resolution: resolutionMs })
  let collectionSeconds = 0
  const observer = new PerformanceObserver((list) => {
    for (const { duration } of list.getEntries()) collectionSeconds += duration / 1_000
  })
  // Subtract the timer's resolution, because Node includes it in every delay.
  const lag = (percentile: number): number => Math.max(0, delay.percentile(percentile) / 1e9 - resolutionMs / 1_000)
  let lags = { p50: 0, p99: 0 }
  const endWindow = Effect.sync(() => {
    lags = { p50: lag(50), p99: lag(99) }
    delay.reset()
  })
  yield* Effect.forkScoped(Effect.schedule(endWindow, Schedule.fixed(delayWindow)))
  delay.enable()
  observer.observe({ entryTypes: ["gc"] })
  yield* Effect.addFinalizer(() =>
    Effect.sync(() => {
      delay.disable()
      observer.disconnect()
    })
  )
  return (isReady: boolean): string => {
    const { system, user } = process.cpuUsage()
    const { external, heapUsed, rss } = process.memoryUsage()
    const schema = `schema_version="${schemaVersion}"`
    const labels = `{node="${process.version}",revision="${revision}",${schema},version="${serviceVersion}"}`
    return [
      metric("gauge", `${Brand.name}_ready`, "1 while the database responds within a second, else 0.", Number(isReady)),
      metric("gauge", `${Brand.name}_build_info`, "Versions of the service, its build and Node.", 1, labels),
      metric("counter", "process_cpu_seconds_total", "CPU time.", (user + system) / 1e6),
      metric("gauge", "process_start_time_seconds", "Start time in Unix seconds.", performance.timeOrigin / 1_000),
      metric("gauge", "process_resident_memory_bytes", "Resident memory.", rss),
      metric("gauge", "nodejs_heap_size_used_bytes", "Used part of V8's heap.", heapUsed),
      metric("gauge", "nodejs_external_memory_bytes", "Memory of buffers outside V8's heap.", external),
      metric("gauge", "nodejs_eventloop_lag_p50_seconds", "Median event loop delay of 15 s.", lags.p50),
      metric("gauge", "nodejs_eventloop_lag_p99_seconds", "99th percentile event loop delay of 15 s.", lags.p99),
      metric("counter", "nodejs_gc_duration_seconds_total", "Time spent in garbage collection.", collectionSeconds)
    ].join("")
  }
})
