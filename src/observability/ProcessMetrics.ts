/**
 * The metrics of the process itself in the text format of Prometheus, with the names of its client libraries.
 * They are CPU, memory, delay of the event loop, garbage collection, and versions.
 */
import { Effect, Predicate } from "effect"
import { readFileSync } from "node:fs"
import { constants, monitorEventLoopDelay, type PerformanceEntry, PerformanceObserver } from "node:perf_hooks"
import * as Settings from "../config/Settings.ts"

const { version }: { readonly version: string } = JSON.parse(
  readFileSync(new URL("../../package.json", import.meta.url), "utf8")
)

/** The version of the service. */
export const serviceVersion = version

/** Milliseconds between two measurements of the delay of the event loop. */
const resolution = 20

const collections = new Map([
  [constants.NODE_PERFORMANCE_GC_MAJOR, "major"],
  [constants.NODE_PERFORMANCE_GC_MINOR, "minor"],
  [constants.NODE_PERFORMANCE_GC_INCREMENTAL, "incremental"],
  [constants.NODE_PERFORMANCE_GC_WEAKCB, "weakcb"]
])

type Sample = readonly [labels: string, value: number]

const family = (
  type: "counter" | "gauge" | "summary",
  name: string,
  help: string,
  samples: ReadonlyArray<Sample>
) => [
  `# HELP ${name} ${help}`,
  `# TYPE ${name} ${type}`,
  ...samples.map(([labels, value]) => `${name}${labels} ${value}`)
]

const kindOf = (entry: PerformanceEntry): string | undefined =>
  Predicate.hasProperty(entry, "detail") && Predicate.hasProperty(entry.detail, "kind")
    ? collections.get(Number(entry.detail.kind))
    : undefined

/**
 * Measures this process until the scope closes. Returns a function that returns the metrics. The delays of the event
 * loop are those since its last call.
 */
export const make = Effect.acquireRelease(
  Effect.sync(() => {
    const delay = monitorEventLoopDelay({ resolution })
    delay.enable()
    const pauses = new Map([...collections.values()].map((kind) => [kind, { count: 0, seconds: 0 }]))
    const observer = new PerformanceObserver((list) => {
      for (const entry of list.getEntries()) {
        const pause = pauses.get(kindOf(entry) ?? "")
        if (pause === undefined) continue
        pause.count++
        pause.seconds += entry.duration / 1_000
      }
    })
    observer.observe({ entryTypes: ["gc"] })
    return { delay, observer, pauses }
  }),
  ({ delay, observer }) =>
    Effect.sync(() => {
      delay.disable()
      observer.disconnect()
    })
).pipe(Effect.zipWith(Settings.buildRevision.config, ({ delay, pauses }, revision) => (): string => {
  const { system, user } = process.cpuUsage()
  const { external, heapTotal, heapUsed, rss } = process.memoryUsage()
  // The histogram counts the resolution as well: a timer that is on time has a delay of that length.
  const lag = (quantile: number): number => Math.max(0, delay.percentile(quantile * 100) / 1e9 - resolution / 1_000)
  const lags = [0.5, 0.9, 0.99].map((quantile): Sample => [`{quantile="${quantile}"}`, lag(quantile)])
  delay.reset()
  return [
    family("counter", "process_cpu_user_seconds_total", "CPU time in user mode.", [["", user / 1e6]]),
    family("counter", "process_cpu_system_seconds_total", "CPU time in system mode.", [["", system / 1e6]]),
    family("counter", "process_cpu_seconds_total", "CPU time.", [["", (user + system) / 1e6]]),
    family("gauge", "process_start_time_seconds", "Start of the process, in Unix time.", [[
      "",
      performance.timeOrigin / 1_000
    ]]),
    family("gauge", "process_resident_memory_bytes", "Resident memory.", [["", rss]]),
    family("gauge", "nodejs_heap_size_total_bytes", "Size of V8's heap.", [["", heapTotal]]),
    family("gauge", "nodejs_heap_size_used_bytes", "Used part of V8's heap.", [["", heapUsed]]),
    family("gauge", "nodejs_external_memory_bytes", "Memory of buffers outside V8's heap.", [["", external]]),
    family("gauge", "nodejs_eventloop_lag_seconds", "Delay of the event loop since the last scrape.", lags),
    family(
      "counter",
      "nodejs_gc_duration_seconds_total",
      "Time of garbage collections.",
      [...pauses].map(([kind, { seconds }]): Sample => [`{kind="${kind}"}`, seconds])
    ),
    family(
      "counter",
      "nodejs_gc_runs_total",
      "Garbage collections.",
      [...pauses].map(([kind, { count }]): Sample => [`{kind="${kind}"}`, count])
    ),
    family("gauge", "nodejs_version_info", "Version of Node.", [[`{version="${process.version}"}`, 1]]),
    family("gauge", "petstore_build_info", "Version and build of the service.", [[
      `{revision="${revision}",version="${serviceVersion}"}`,
      1
    ]])
  ].flat().map((line) => `${line}\n`).join("")
}))
