/** Declares the usage of an API key over time. `KeysGroup.ts` has its endpoint. */
import { Schema } from "effect"
import { Instant } from "./Keys.ts"

/** The requests of one key in one minute or hour. `from` is its begin. */
const UsageInterval = Schema.Struct({
  from: Instant,
  allowed: Schema.Int.annotate({ description: "Requests within the limits." }),
  rejected: Schema.Int.annotate({ description: "Requests over a limit: 429 rate_limit_exceeded." }),
  banned: Schema.Int.annotate({ description: "Requests during a ban: 429 api_key_banned." })
}).annotate({ identifier: "UsageInterval" })
export interface UsageInterval extends Schema.Schema.Type<typeof UsageInterval> {}

/** The requests of one key in each of the last 60 minutes and 720 hours, oldest first. Empty intervals are absent. */
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
