/** Shows a key's requests as stacked bars, one for each of the last `steps` intervals of `stepMs` milliseconds. */
import { DateTime } from "effect"
import { addUsage, noUsage, type UsageInterval, usageKinds } from "../api/Usage.ts"
import { formatInstant, formatNumber } from "./Parts.tsx"

export const UsageChart = ({ intervals, stepMs, steps, title, unit }: {
  readonly title: string
  readonly unit: string
  readonly intervals: ReadonlyArray<UsageInterval>
  readonly steps: number
  readonly stepMs: number
}) => {
  const byStep = Map.groupBy(intervals, ({ from }) => Math.floor(DateTime.toEpochMillis(from) / stepMs))
  const firstStep = Math.floor(Date.now() / stepMs) - steps + 1
  const bars = Array.from({ length: steps }, (_, index) => {
    const counts = (byStep.get(firstStep + index) ?? []).reduce(addUsage, noUsage)
    const time = formatInstant(DateTime.makeUnsafe((firstStep + index) * stepMs)).slice("2030-12-31 ".length)
    return { counts, time, total: counts.allowed + counts.rejected + counts.banned }
  })
  const max = Math.max(...bars.map(({ total }) => total))
  const scale = 100 / (max || 1)
  return (
    <figure class="card">
      <figcaption>
        <strong>{title}</strong> <span class="muted">at most {formatNumber(max)} {unit}</span>
        <ul class="legend">
          {usageKinds.map((kind) => (
            <li key={kind} class={kind}>
              {kind} <strong>{formatNumber(bars.reduce((sum, { counts }) => sum + counts[kind], 0))}</strong>
            </li>
          ))}
        </ul>
      </figcaption>
      <div class="bars" aria-hidden="true">
        {bars.map(({ counts, time }) => (
          <div
            key={time}
            title={`${time}: ${usageKinds.map((kind) => `${counts[kind]} ${kind}`).join(", ")}`}
          >
            {usageKinds.map((kind) => <i key={kind} class={kind} style={{ height: `${scale * counts[kind]}%` }} />)}
          </div>
        ))}
      </div>
      <div class="row muted" aria-hidden="true">
        {[0, 0.25, 0.5, 0.75].map((share) => <span key={share}>{bars[share * steps]?.time}</span>)}
        <span>now (UTC)</span>
      </div>
    </figure>
  )
}
