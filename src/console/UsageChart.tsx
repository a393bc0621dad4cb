/** A chart of the requests of a key as stacked bars. The title of a bar has its numbers. */
import { DateTime } from "effect"
import { usageByStep, type UsageCounts, type UsageInterval, usageKinds } from "../api/Usage.ts"
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

/** The drawing, in pixels from the top, and in percent of its width from the left. */
const top = 12
const bottom = 128
const left = 9

const xOf = (share: number): string => `${left + share * (100 - left)}%`

const describe = (counts: UsageCounts): string =>
  usageKinds.map((kind) => `${formatNumber(counts[kind])} ${kind}`).join(", ")

const totalOf = (counts: UsageCounts): number => usageKinds.reduce((sum, kind) => sum + counts[kind], 0)

export const UsageChart = ({ intervals, stepMs, steps, title, unit }: {
  readonly title: string
  readonly unit: string
  readonly intervals: ReadonlyArray<UsageInterval>
  /** The chart has the last `steps` steps of `stepMs` milliseconds. */
  readonly steps: number
  readonly stepMs: number
}) => {
  const bars = usageByStep(intervals, { nowMs: Date.now(), stepMs, steps }).map((counts) => ({
    counts,
    time: formatInstant(DateTime.makeUnsafe(counts.beginMs)).slice("2030-12-31 ".length)
  }))
  const marks = axisMarks(Math.max(...bars.map(({ counts }) => totalOf(counts))))
  const heightOf = (count: number): number => count / (marks.at(-1) ?? 1) * (bottom - top)
  return (
    <figure class="card chart">
      <figcaption>
        <strong>{title}</strong> <span class="muted">{unit}</span>
        <ul class="legend">
          {usageKinds.map((kind) => (
            <li key={kind} class={kind}>
              {kind} <strong>{formatNumber(bars.reduce((sum, { counts }) => sum + counts[kind], 0))}</strong>
            </li>
          ))}
        </ul>
      </figcaption>
      <svg width="100%" height={bottom + 20} aria-hidden="true">
        {marks.map((mark) => (
          <g key={mark}>
            <line x1={xOf(0)} x2="100%" y1={bottom - heightOf(mark)} y2={bottom - heightOf(mark)} />
            <text class="mark" x={`${left - 1}%`} y={bottom - heightOf(mark) + 4}>{compactNumbers.format(mark)}</text>
          </g>
        ))}
        {bars.map(({ counts, time }, index) => {
          let y = bottom
          return (
            <g key={counts.beginMs} class="bar">
              <title>{`${time}: ${describe(counts)}`}</title>
              <rect
                class="column"
                x={xOf(index / steps)}
                y={top}
                width={`${(100 - left) / steps}%`}
                height={bottom - top}
              />
              {usageKinds.map((kind) => {
                const height = heightOf(counts[kind])
                y -= height
                return (
                  <rect
                    key={kind}
                    class={kind}
                    x={xOf((index + 0.15) / steps)}
                    y={y}
                    width={`${0.7 * (100 - left) / steps}%`}
                    height={height}
                  />
                )
              })}
              {index % (steps / 4) === 0 && <text x={xOf(index / steps)} y={bottom + 16}>{time}</text>}
            </g>
          )
        })}
      </svg>
    </figure>
  )
}
