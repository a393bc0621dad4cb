/** Declares the usage of an API key over time, and groups it for charts. `KeysGroup.ts` has its endpoint. */
import { DateTime, Schema } from "effect"
import { Instant } from "./Keys.ts"

/** The requests of one key in one minute or hour. `from` is its begin. */
const UsageInterval = Schema.Struct({
  from: Instant,
  allowed: Schema.Int.annotate({ description: "Requests within the limits." }),
  rejected: Schema.Int.annotate({ description: "Requests over a limit: 429 rate_limit_exceeded." }),
  banned: Schema.Int.annotate({ description: "Requests during a ban: 429 api_key_banned." })
}).annotate({ identifier: "UsageInterval" })
export interface UsageInterval extends Schema.Schema.Type<typeof UsageInterval> {}

/**
 * The requests of one key in each of the last 60 minutes and the last 720 hours, which are 30 days. The current minute
 * and hour are the last ones. Hours are those of UTC. Oldest first. An interval without requests is absent.
 */
export const UsageHistory = Schema.Struct({
  minutes: Schema.Array(UsageInterval),
  hours: Schema.Array(UsageInterval)
}).annotate({ identifier: "UsageHistory", description: "The requests of the key, by minute and by hour." })
export interface UsageHistory extends Schema.Schema.Type<typeof UsageHistory> {}

/** The kinds of requests that usage counts: allowed, rejected by a limit, or rejected by a ban. */
export const usageKinds = ["allowed", "rejected", "banned"] as const
export type UsageKind = typeof usageKinds[number]
export type UsageCounts = Readonly<Record<UsageKind, number>>

export const noUsage: UsageCounts = { allowed: 0, rejected: 0, banned: 0 }

export const addUsage = (a: UsageCounts, b: UsageCounts): UsageCounts => ({
  allowed: a.allowed + b.allowed,
  rejected: a.rejected + b.rejected,
  banned: a.banned + b.banned
})

/**
 * Returns the counts of the last `steps` steps of `stepMs` milliseconds, oldest first, each with its begin in epoch
 * milliseconds. The step of `nowMs` is the last one. An absent interval has no requests.
 */
export const usageByStep = (
  intervals: ReadonlyArray<UsageInterval>,
  { nowMs, stepMs, steps }: { readonly nowMs: number; readonly stepMs: number; readonly steps: number }
): ReadonlyArray<UsageCounts & { readonly beginMs: number }> => {
  const byStep = new Map<number, UsageCounts>()
  for (const interval of intervals) {
    const step = Math.floor(DateTime.toEpochMillis(interval.from) / stepMs)
    byStep.set(step, addUsage(byStep.get(step) ?? noUsage, interval))
  }
  const current = Math.floor(nowMs / stepMs)
  return Array.from({ length: steps }, (_, index) => {
    const step = current - (steps - 1 - index)
    const { allowed, banned, rejected } = byStep.get(step) ?? noUsage
    return { beginMs: step * stepMs, allowed, rejected, banned }
  })
}
