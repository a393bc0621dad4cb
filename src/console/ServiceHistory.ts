/** The history of the service from `/metrics`, in steps of some seconds, while the console shows it. */
import { Effect } from "effect"
import { useEffect, useState } from "preact/hooks"
import { repeatEvery, runInBackground } from "./Calls.ts"
import { growth, parse, quantile, type Scrape, sum, sumsBy } from "./MetricSamples.ts"

const durations = "petstore_http_server_request_duration_seconds"
const redisDurations = "petstore_rate_limit_redis_duration_seconds"
const decisionCounts = "petstore_rate_limit_decisions_total"

/** The classes of status codes that the overview shows. */
export const statusClasses = ["2xx", "3xx", "4xx", "429", "5xx"] as const
type StatusClass = typeof statusClasses[number]

/** Returns the class of a status code. 429 is a class of its own, because limits are what the service is about. */
const classOf = (status: string): StatusClass | undefined =>
  statusClasses.find((name) => name === (status === "429" ? status : `${status.charAt(0)}xx`))

/** The outcomes of rate limit decisions. */
export const outcomes = ["allowed", "rejected", "banned"] as const

/** The service between two scrapes. */
export interface Step {
  /** The end of the step, in Unix seconds. */
  readonly at: number
  /** Requests per second by class of status. */
  readonly statuses: Readonly<Record<StatusClass, number>>
  /** Decisions per second by outcome. */
  readonly decisions: Readonly<Record<typeof outcomes[number], number>>
  /** Latencies in seconds, without a request `undefined`. */
  readonly p50: number | undefined
  readonly p99: number | undefined
  readonly redisP99: number | undefined
  /** Share of one core. */
  readonly cpu: number
}

/** The last values of gauges, `undefined` while the service has no such metric. */
export interface Gauges {
  readonly inFlight: number | undefined
  readonly queued: number | undefined
  readonly connections: number | undefined
  readonly maxConnections: number | undefined
  readonly hasRedis: boolean
  /** Whether a process counts by itself, because Redis does not respond. */
  readonly isFallback: boolean
  readonly memoryBytes: number | undefined
  readonly startedAt: number | undefined
}

/** Returns what happened between two scrapes. */
export const stepOf = (before: Scrape, after: Scrape, seconds: number, at: number): Step => {
  const rates = (name: string, label: string) => {
    const old = sumsBy(before, name, label)
    return [...sumsBy(after, name, label)].map(([key, count]) => [key, growth(old.get(key), count) / seconds] as const)
  }
  const statuses = { "2xx": 0, "3xx": 0, "4xx": 0, "429": 0, "5xx": 0 }
  for (const [status, rate] of rates(`${durations}_count`, "http_response_status_code")) {
    const name = classOf(status)
    if (name !== undefined) statuses[name] += rate
  }
  const decisions = { allowed: 0, rejected: 0, banned: 0 }
  for (const [text, rate] of rates(decisionCounts, "outcome")) {
    const name = outcomes.find((outcome) => outcome === text)
    if (name !== undefined) decisions[name] += rate
  }
  const cpu = "process_cpu_seconds_total"
  return {
    at,
    statuses,
    decisions,
    p50: quantile(before, after, durations, 0.5),
    p99: quantile(before, after, durations, 0.99),
    redisP99: quantile(before, after, redisDurations, 0.99),
    cpu: growth(sum(before, cpu), sum(after, cpu)) / seconds
  }
}

const gaugesOf = (scrape: Scrape): Gauges => ({
  inFlight: sum(scrape, "petstore_http_server_requests_in_flight"),
  queued: sum(scrape, "petstore_http_server_requests_queued"),
  connections: sum(scrape, "petstore_database_connections"),
  maxConnections: sum(scrape, "petstore_database_max_connections"),
  hasRedis: scrape.has(`${redisDurations}_count`),
  isFallback: (sum(scrape, "petstore_rate_limit_fallback") ?? 0) > 0,
  memoryBytes: sum(scrape, "process_resident_memory_bytes"),
  startedAt: scrape.get("process_start_time_seconds")?.[0]?.value
})

export interface ServiceHistory {
  readonly steps: ReadonlyArray<Step>
  readonly gauges: Gauges | undefined
  readonly failure: string | undefined
}

/** Milliseconds between two scrapes, and the maximum number of steps: five minutes. */
const scrapeMs = 2_500
const maxSteps = 120

const scrape = Effect.tryPromise({
  try: async (signal) => {
    const response = await fetch("/metrics", { signal })
    if (!response.ok) throw new Error(`/metrics returned ${response.status}`)
    return parse(await response.text())
  },
  catch: (cause) => cause instanceof Error ? cause.message : String(cause)
})

/** Returns the last minutes of the service, from the moment at which the view appears. */
export const useServiceHistory = (): ServiceHistory => {
  const [history, setHistory] = useState<ServiceHistory>({ steps: [], gauges: undefined, failure: undefined })
  useEffect(() => {
    let last: { readonly scrape: Scrape; readonly atMs: number } | undefined
    const read = Effect.match(scrape, {
      onFailure: (failure) => setHistory((before) => ({ ...before, failure })),
      onSuccess: (current) => {
        const atMs = Date.now()
        const before = last
        last = { scrape: current, atMs }
        setHistory(({ steps }) => ({
          steps: before === undefined
            ? steps
            : [...steps, stepOf(before.scrape, current, (atMs - before.atMs) / 1_000, atMs / 1_000)].slice(-maxSteps),
          gauges: gaugesOf(current),
          failure: undefined
        }))
      }
    })
    return runInBackground(repeatEvery(read, scrapeMs))
  }, [])
  return history
}
