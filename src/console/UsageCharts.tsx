/** The requests of a key in the last hour and the last day. */
import { usageByStep, type UsageHistory, type UsageInterval, usageKinds } from "../api/Usage.ts"
import { Chart } from "./Chart.tsx"

const hourMs = 3_600_000

/** Returns the times, in Unix seconds, and the series of a chart. */
const dataOf = (intervals: ReadonlyArray<UsageInterval>, steps: number, stepMs: number) => {
  const counts = usageByStep(intervals, { nowMs: Date.now(), stepMs, steps })
  return {
    times: counts.map(({ beginMs }) => beginMs / 1_000),
    series: usageKinds.map((name) => ({ name, color: name, values: counts.map((each) => each[name]) }))
  }
}

export const UsageCharts = ({ history }: { readonly history: UsageHistory }) => (
  <div class="columns charts">
    <Chart title="Last hour" unit="requests a minute" kind="bars" {...dataOf(history.minutes, 60, 60_000)} />
    <Chart title="Last day" unit="requests an hour" kind="bars" {...dataOf(history.hours, 24, hourMs)} />
  </div>
)
