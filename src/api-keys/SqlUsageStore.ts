/** Stores the usage of keys over time on PostgreSQL. */
import { DateTime, Duration, Effect } from "effect"
import { SqlClient } from "effect/sql"
import type { UsageInterval } from "../api/Usage.ts"
import { Settings } from "../config/Settings.ts"
import * as Expiry from "../database/Expiry.ts"
import { resolutions, type UsageStore } from "./KeyUsage.ts"

interface Row extends Readonly<Record<"allowed" | "rejected" | "banned", bigint>> {
  readonly seconds: number
  readonly from: Date
}

const toInterval = ({ allowed, banned, from, rejected }: Row): UsageInterval => ({
  from: DateTime.fromDateUnsafe(from),
  allowed: Number(allowed),
  rejected: Number(rejected),
  banned: Number(banned)
})

/** Makes the store on PostgreSQL. It deletes the counts of old minutes and hours, until its scope closes. */
export const sqlStore = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  const { hours, minutes } = resolutions
  const hoursKeptFor = Duration.days(yield* Settings.usageRetentionDays.config)
  const store: UsageStore = {
    // All processes insert in one order, so that no two statements wait for each other.
    add: (counts) =>
      sql`
        INSERT INTO key_usage (key_id, seconds, starts_at, allowed, rejected, banned)
        SELECT "keyId", seconds, starts_at, sum(allowed), sum(rejected), sum(banned)
        FROM jsonb_to_recordset(${JSON.stringify(counts)}::text::jsonb)
          AS t ("keyId" text, minute bigint, allowed bigint, rejected bigint, banned bigint)
        CROSS JOIN (VALUES (${minutes.seconds}::int), (${hours.seconds}::int)) AS r (seconds)
        CROSS JOIN LATERAL (SELECT to_timestamp(minute / 1000 / seconds * seconds)) AS s (starts_at)
        GROUP BY "keyId", seconds, starts_at
        ORDER BY "keyId", seconds, starts_at
        ON CONFLICT (key_id, seconds, starts_at) DO UPDATE SET
          allowed = key_usage.allowed + excluded.allowed,
          rejected = key_usage.rejected + excluded.rejected,
          banned = key_usage.banned + excluded.banned
      `.pipe(Effect.asVoid, Effect.orDie),
    read: (keyId) =>
      sql<Row>`
        SELECT seconds, starts_at AS "from", allowed, rejected, banned FROM key_usage
        WHERE key_id = ${keyId} ORDER BY starts_at
      `.pipe(
        Effect.map((rows) => {
          const of = (length: number) => rows.filter(({ seconds }) => seconds === length).map(toInterval)
          return { minutes: of(minutes.seconds), hours: of(hours.seconds) }
        }),
        Effect.orDie
      )
  }
  const minutesKeptFor = Duration.seconds(minutes.keptSeconds)
  for (const [seconds, keptFor] of [[minutes.seconds, minutesKeptFor], [hours.seconds, hoursKeptFor]] as const) {
    yield* Expiry.deleteExpired({
      table: "key_usage",
      column: "starts_at",
      where: sql`seconds = ${seconds}`,
      keptFor,
      warning: "The usage of keys in the past cannot be deleted"
    })
  }
  return store
})
