/** Draws the usage of a key over time. */
import type { DateTime } from "effect"
import { addUsage, noUsage, usageByStep, type UsageCounts, type UsageHistory, usageKinds } from "../api/Usage.ts"
import { type Bars, sparkline } from "./Sparkline.ts"
import { formatCount, type Style } from "./Style.ts"

const minuteMs = 60_000
const hourMs = 60 * minuteMs
const dayMs = 24 * hourMs

/** A period before now, in equal steps. The current step is the last one. Days are those of UTC. */
const periods = [
  { title: "last 60 minutes", stepMs: minuteMs, steps: 60, of: ({ minutes }: UsageHistory) => minutes },
  { title: "last 24 hours", stepMs: hourMs, steps: 24, of: ({ hours }: UsageHistory) => hours },
  { title: "last 30 days", stepMs: dayMs, steps: 30, of: ({ hours }: UsageHistory) => hours }
] as const
type Period = typeof periods[number]

/** Returns the counts of each step of a period, oldest first. */
const countsOf = ({ of, ...period }: Period, usage: UsageHistory, now: DateTime.Utc): ReadonlyArray<UsageCounts> =>
  usageByStep(of(usage), { ...period, nowMs: now.epochMilliseconds })

const total = (counts: ReadonlyArray<UsageCounts>): UsageCounts => counts.reduce(addUsage, noUsage)

const colorOf = { allowed: "green", rejected: "yellow", banned: "red" } as const

/** Describes the totals. A count of 0 has no color. */
const describeTotals = (counts: UsageCounts, style: Style): string =>
  usageKinds.map((kind) => {
    const text = `${formatCount(counts[kind])} ${kind}`
    return counts[kind] === 0 ? text : style[colorOf[kind]](text)
  }).join(", ")

/** Returns the lines of `keys show`: all requests of the last hour and day. */
export const describeUsage = (
  usage: UsageHistory,
  now: DateTime.Utc,
  bars: Bars,
  style: Style
): ReadonlyArray<string> =>
  [periods[0], periods[1]].map((period) => {
    const counts = countsOf(period, usage, now)
    const line = sparkline(counts.map(({ allowed, banned, rejected }) => allowed + rejected + banned), bars)
    return `${period === periods[0] ? "last hour" : "last day "}  ${line}  ${describeTotals(total(counts), style)}`
  })

/** Returns the lines of `keys usage`: each kind of request in each period. */
export const drawUsage = (usage: UsageHistory, now: DateTime.Utc, bars: Bars, style: Style): ReadonlyArray<string> =>
  periods.flatMap((period) => {
    const counts = countsOf(period, usage, now)
    const totals = total(counts)
    return [
      "",
      style.bold(period.title),
      ...usageKinds.map((kind) => {
        const line = sparkline(counts.map((each) => each[kind]), bars)
        const color = totals[kind] === 0 ? style.dim : style[colorOf[kind]]
        return `${kind.padEnd(8)}  ${color(line)}  ${formatCount(totals[kind])}`
      })
    ]
  })
