/** A chart of the requests of a key as stacked bars. The title of a bar has its numbers. */
import { DateTime } from "effect"
import { addUsage, noUsage, type UsageCounts, type UsageInterval, usageKinds } from "../api/Usage.ts"
import { formatInstant, formatNumber } from "./Parts.tsx"

/**
 * Returns the marks of an axis of counts: whole numbers from 0 up to at least `max`, at equal steps of 1, 2 or 5 times
 * a power of ten.
 */
const axisMarks = (max: number): ReadonlyArray<number> => {
  const least = Math.max(1, max / 4)
  const power = 10 ** Math.floor(Math.log10(least))
  const step = ([1, 2, 5].find((factor) => factor * power >= least) ?? 10) * power
  return Array.from({ length: Math.max(1, Math.ceil(max / step)) + 1 }, (_, index) => index * step)
}

const compactNumbers = new Intl.NumberFormat("en", { notation: "compact" })

/** The plot, in pixels from the top, and in percent of the width from the left. */
const top = 12
const height = 116
const left = 9

const totalOf = ({ allowed, banned, rejected }: UsageCounts): number => allowed + rejected + banned

export const UsageChart = ({ intervals, stepMs, steps, title, unit }: {
  readonly title: string
  readonly unit: string
  readonly intervals: ReadonlyArray<UsageInterval>
  /** The chart has the last `steps` steps of `stepMs` milliseconds. */
  readonly steps: number
  readonly stepMs: number
}) => {
  const byStep = Map.groupBy(intervals, ({ from }) => Math.floor(DateTime.toEpochMillis(from) / stepMs))
  const firstStep = Math.floor(Date.now() / stepMs) - steps + 1
  const bars = Array.from({ length: steps }, (_, index) => {
    const step = firstStep + index
    const { allowed, banned, rejected } = (byStep.get(step) ?? []).reduce(addUsage, noUsage)
    return { beginMs: step * stepMs, allowed, banned, rejected }
  })
  const times = bars.map(({ beginMs }) => formatInstant(DateTime.makeUnsafe(beginMs)).slice("2030-12-31 ".length))
  const marks = axisMarks(Math.max(...bars.map(totalOf)))
  const max = marks.at(-1) ?? 1
  const yOf = (count: number): number => top + height - count / max * height
  return (
    <figure class="card">
      <figcaption>
        <strong>{title}</strong> <span class="muted">{unit}</span>
        <ul class="legend">
          {usageKinds.map((kind) => (
            <li key={kind} class={kind}>
              {kind} <strong>{formatNumber(bars.reduce((sum, counts) => sum + counts[kind], 0))}</strong>
            </li>
          ))}
        </ul>
      </figcaption>
      <svg width="100%" height={top + height + 20} aria-hidden="true">
        {marks.map((mark) => (
          <g key={mark}>
            <line x1={`${left}%`} x2="100%" y1={yOf(mark)} y2={yOf(mark)} />
            <text class="mark" x={`${left - 1}%`} y={yOf(mark) + 4}>{compactNumbers.format(mark)}</text>
          </g>
        ))}
        {[0, 0.25, 0.5, 0.75].map((share) => (
          <text key={share} x={`${left + share * (100 - left)}%`} y={top + height + 16}>{times[share * steps]}</text>
        ))}
        <svg
          x={`${left}%`}
          y={top}
          width={`${100 - left}%`}
          height={height}
          viewBox={`0 0 ${steps} ${max}`}
          preserveAspectRatio="none"
        >
          {bars.map((counts, index) => (
            <g key={counts.beginMs} class="bar">
              <title>{`${times[index]}: ${usageKinds.map((kind) => `${counts[kind]} ${kind}`).join(", ")}`}</title>
              <rect class="column" x={index} width={1} height={max} />
              {[
                ["banned", totalOf(counts)] as const,
                ["rejected", counts.allowed + counts.rejected] as const,
                ["allowed", counts.allowed] as const
              ].map(([kind, sum]) => (
                <rect key={kind} class={kind} x={index + 0.15} width={0.7} y={max - sum} height={sum} />
              ))}
            </g>
          ))}
        </svg>
      </svg>
    </figure>
  )
}
