import { Schema } from "effect"
import { Instant, KeyId } from "./KeySchemas.ts"
import { limit } from "./Paging.ts"
import { Plan } from "./Plans.ts"
import { oneOf } from "./TextSchemas.ts"

const counts = {
  /** Requests within the limits. */
  allowed: Schema.Int.annotate({ description: "Requests within the limits." }),
  /** Requests rejected with 429 `rate_limit_exceeded`. */
  rejected: Schema.Int.annotate({ description: "Requests over a limit: 429 rate_limit_exceeded." }),
  /** Requests rejected with 429 `api_key_banned`: during a ban, and the one that began it. */
  banned: Schema.Int.annotate({ description: "Requests during a ban, and the one that began it: 429 api_key_banned." })
}

/** The request counts of a minute or an hour. */
export const UsageInterval = Schema.Struct({
  /** The start of the interval. */
  from: Instant,
  ...counts
}).annotate({ identifier: "UsageInterval" })
export interface UsageInterval extends Schema.Schema.Type<typeof UsageInterval> {}

/** The request counts of an API key, oldest first. Intervals without requests are absent. */
export const UsageHistory = Schema.Struct({
  /** By minute, for the last 60 minutes, the current one included. */
  minutes: Schema.Array(UsageInterval),
  /** By hour, for at most the last 720 hours. With `USAGE_RETENTION_DAYS`, the operator can keep fewer. */
  hours: Schema.Array(UsageInterval)
}).annotate({ identifier: "UsageHistory", description: "The requests of the key, by minute and by hour." })
export interface UsageHistory extends Schema.Schema.Type<typeof UsageHistory> {}

export const usageKinds = ["allowed", "rejected", "banned"] as const
export type UsageKind = typeof usageKinds[number]
export type UsageCounts = Readonly<Record<UsageKind, number>>

export const topUsageLimit = 10

/** The query of `topUsage`. */
export const TopUsageQuery = Schema.Struct({
  /** The current hour, or the current day of UTC. The default is `hour`. */
  window: oneOf("hour", "day").annotate({
    description: "The current hour, or the current day of UTC. By default the hour."
  }).pipe(Schema.optionalKey),
  /** The kind of requests that keys are ordered by. The default is `allowed`. */
  by: oneOf(...usageKinds).annotate({
    description: "The kind of requests that keys are ordered by. By default `allowed`."
  }).pipe(Schema.optionalKey),
  /** The maximum number of keys. The default is 10. */
  limit: Schema.optionalKey(limit("Maximum number of keys returned.", topUsageLimit))
})
export interface TopUsageQuery extends Schema.Schema.Type<typeof TopUsageQuery> {}

/** The request counts of one API key. `name` and `plan` are `null` if the key has been deleted. */
export const KeyTotals = Schema.Struct({
  /** The id of the key. */
  keyId: KeyId,
  /** The current name of the key. */
  name: Schema.NullOr(Schema.String),
  /** The current plan of the key. */
  plan: Schema.NullOr(Plan),
  ...counts
}).annotate({ identifier: "KeyTotals" })
export interface KeyTotals extends Schema.Schema.Type<typeof KeyTotals> {}

export const noUsage: UsageCounts = { allowed: 0, rejected: 0, banned: 0 }

export const addUsage = (a: UsageCounts, b: UsageCounts): UsageCounts => ({
  allowed: a.allowed + b.allowed,
  rejected: a.rejected + b.rejected,
  banned: a.banned + b.banned
})
