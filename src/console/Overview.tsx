/** The overview of the service: requests, latency, decisions, Redis and the database. */
import type { ComponentChildren } from "preact"
import { Chart } from "./Chart.tsx"
import { formatCompact, formatDuration, formatNumber } from "./Format.ts"
import { Alert } from "./Parts.tsx"
import { type Gauges, outcomes, statusClasses, type Step, useServiceHistory } from "./ServiceHistory.ts"
import { useServiceState } from "./ServiceState.tsx"

const Tile = ({ children, hint, name, tone = "" }: {
  readonly name: string
  readonly hint?: string | undefined
  readonly tone?: "" | "ok" | "bad"
  readonly children: ComponentChildren
}) => (
  <div class="card tile">
    <dt>{name}</dt>
    <dd class={tone}>{children}</dd>
    {hint !== undefined && <dd class="hint">{hint}</dd>}
  </div>
)

/** Formats a latency: `3.1 ms`, `1.2 s`. */
export const formatLatency = (seconds: number | undefined): string => {
  if (seconds === undefined) return "–"
  return seconds < 1 ? `${formatSmall(seconds * 1_000)} ms` : `${formatSmall(seconds)} s`
}

const formatSmall = (value: number): string => value < 10 ? value.toFixed(1) : formatNumber(Math.round(value))

const totalOf = (step: Step | undefined): number =>
  step === undefined ? 0 : Object.values(step.statuses).reduce((sum, rate) => sum + rate, 0)

const redisOf = (gauges: Gauges | undefined, last: Step | undefined) => {
  if (gauges === undefined) return { tone: "", text: "–" } as const
  if (!gauges.hasRedis) return { tone: "", text: "not configured", hint: "limits are counted in the process" } as const
  return gauges.isFallback
    ? { tone: "bad", text: "does not respond", hint: "each process counts by itself" } as const
    : { tone: "ok", text: "responds", hint: `p99 ${formatLatency(last?.redisP99)}` } as const
}

const Tiles = ({ gauges, last }: { readonly gauges: Gauges | undefined; readonly last: Step | undefined }) => {
  const service = useServiceState()
  const redis = redisOf(gauges, last)
  const connections = gauges?.connections === undefined
    ? undefined
    : `${gauges.connections} of ${gauges.maxConnections ?? "?"} connections`
  return (
    <dl class="tiles">
      <Tile name="Requests" hint={`${gauges?.inFlight ?? 0} in flight, ${gauges?.queued ?? 0} queued`}>
        {formatSmall(totalOf(last))} <small>/s</small>
      </Tile>
      <Tile name="Latency p99" hint={`p50 ${formatLatency(last?.p50)}`}>{formatLatency(last?.p99)}</Tile>
      <Tile name="Database" tone={service?.ready === false ? "bad" : "ok"} hint={connections}>
        {service === undefined ? "–" : service.ready ? "responds" : "not ready"}
      </Tile>
      <Tile name="Redis" tone={redis.tone} hint={"hint" in redis ? redis.hint : undefined}>{redis.text}</Tile>
      <Tile
        name="Process"
        hint={gauges?.startedAt === undefined
          ? undefined
          : `up for ${formatDuration(Date.now() / 1_000 - gauges.startedAt)}`}
      >
        {Math.round((last?.cpu ?? 0) * 100)}% <small>CPU</small> {formatCompact((gauges?.memoryBytes ?? 0) / 2 ** 20)}
        {" "}
        <small>MiB</small>
      </Tile>
    </dl>
  )
}

const statusColors = { "2xx": "allowed", "3xx": "other", "4xx": "client", "429": "rejected", "5xx": "banned" }

export const Overview = () => {
  const { failure, gauges, steps } = useServiceHistory()
  const times = steps.map(({ at }) => at)
  return (
    <>
      <div class="heading">
        <h1>Overview</h1>
        <p class="muted">Measured while this view is open, for at most five minutes</p>
      </div>
      {failure !== undefined && <Alert>{failure}</Alert>}
      <Tiles gauges={failure === undefined ? gauges : undefined} last={steps.at(-1)} />
      <div class="columns charts">
        <Chart
          title="Requests by status"
          unit="a second"
          kind="lines"
          times={times}
          format={formatSmall}
          series={statusClasses.map((name) => ({
            name,
            color: statusColors[name],
            values: steps.map(({ statuses }) => statuses[name])
          }))}
        />
        <Chart
          title="Latency"
          unit="of requests"
          kind="lines"
          times={times}
          format={formatLatency}
          series={[
            { name: "p50", color: "allowed", values: steps.map(({ p50 }) => p50) },
            { name: "p99", color: "rejected", values: steps.map(({ p99 }) => p99) }
          ]}
        />
        <Chart
          title="Rate limit decisions"
          unit="a second"
          kind="lines"
          times={times}
          format={formatSmall}
          series={outcomes.map((name) => ({
            name,
            color: name,
            values: steps.map(({ decisions }) => decisions[name])
          }))}
        />
        {gauges?.hasRedis === true && (
          <Chart
            title="Redis"
            unit="latency of round trips"
            kind="lines"
            times={times}
            format={formatLatency}
            series={[{ name: "p99", color: "allowed", values: steps.map(({ redisP99 }) => redisP99) }]}
          />
        )}
      </div>
    </>
  )
}
