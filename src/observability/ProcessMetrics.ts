/** Registers metrics of the process, mostly with the names of Prometheus' client libraries. */
import { Effect, Function, Layer, Metric, Schedule } from "effect"
import { readFileSync } from "node:fs"
import { monitorEventLoopDelay, PerformanceObserver } from "node:perf_hooks"
import * as Brand from "../api/Brand.ts"
import { Settings } from "../config/Settings.ts"

export const { version: serviceVersion }: { readonly version: string } = JSON.parse(
  readFileSync(new URL("../../package.json", import.meta.url), "utf8")
)

export const layer = (schemaVersion: number) =>
  Layer.effectDiscard(Effect.gen(function*() {
    const revision = yield* Settings.buildRevision.config
    const context = yield* Effect.context()
    const resolutionMs = 20
    const delay = monitorEventLoopDelay({ resolution: resolutionMs })
    let collectionSeconds = 0
    const observer = new PerformanceObserver((list) => {
      for (const { duration } of list.getEntries()) collectionSeconds += duration / 1_000
    })
    // Subtract the timer's resolution, because Node includes it in every delay.
    const lag = (percentile: number): number => Math.max(0, delay.percentile(percentile) / 1e9 - resolutionMs / 1_000)
    // Report the last complete window of 15 s, so that no reader of the metrics (Prometheus or OTLP) resets the values
    // of the other.
    let lags = { p50: 0, p99: 0 }
    const endWindow = Effect.sync(() => {
      lags = { p50: lag(50), p99: lag(99) }
      delay.reset()
    })
    yield* Effect.forkScoped(Effect.schedule(endWindow, Schedule.fixed("15 seconds")))
    delay.enable()
    observer.observe({ entryTypes: ["gc"] })
    const register = <State>(metric: Metric.Metric<number, State>, get: () => State) =>
      Metric.registerUnsafe(metric, context, { get, update: Function.constVoid, modify: Function.constVoid })
    const gauge = (name: string, description: string, attributes: Metric.Metric.AttributeSet, read: () => number) =>
      register(Metric.gauge(name, { description, attributes }), () => ({ value: read() }))
    const counter = (name: string, description: string, attributes: Metric.Metric.AttributeSet, read: () => number) =>
      register(Metric.counter(name, { description, attributes }), () => ({ count: read(), incremental: true }))
    const { cpuUsage, memoryUsage, version: node } = process
    const versions = { node, revision, schema_version: String(schemaVersion), version: serviceVersion }
    const [s, bytes] = [{ unit: "s" }, { unit: "By" }]
    const registered = [
      gauge(`${Brand.name}_build_info`, "Versions of the service, its build and Node.", versions, () => 1),
      counter("process_cpu_seconds_total", "CPU time.", s, () => (cpuUsage().user + cpuUsage().system) / 1e6),
      gauge("process_start_time_seconds", "Start time in Unix seconds.", s, () => performance.timeOrigin / 1_000),
      gauge("process_resident_memory_bytes", "Resident memory.", bytes, memoryUsage.rss),
      gauge("nodejs_heap_size_used_bytes", "Used part of V8's heap.", bytes, () => memoryUsage().heapUsed),
      gauge("nodejs_external_memory_bytes", "Buffers outside V8's heap.", bytes, () => memoryUsage().external),
      gauge("nodejs_eventloop_lag_p50_seconds", "Median event loop delay of 15 s.", s, () => lags.p50),
      gauge("nodejs_eventloop_lag_p99_seconds", "99th percentile event loop delay of 15 s.", s, () => lags.p99),
      counter("nodejs_gc_duration_seconds_total", "Time spent in garbage collection.", s, () => collectionSeconds)
    ]
    yield* Effect.addFinalizer(() =>
      Effect.sync(() => {
        delay.disable()
        observer.disconnect()
        for (const { remove } of registered) remove()
      })
    )
  }))
