import { DateTime, Duration, Effect, Layer, Schema, Struct } from "effect"
import { SqlClient } from "effect/sql"
import { KeyTotals } from "../api/Usage.ts"
import { Settings } from "../config/Settings.ts"
import * as AdminShare from "../database/AdminShare.ts"
import * as Expiry from "../database/Expiry.ts"
import * as Rows from "../database/Rows.ts"
import * as KeyUsage from "./KeyUsage.ts"

const TotalsRow = Schema.Struct(Struct.omit(KeyTotals.fields, ["name", "plan"]))
const UsageRow = Schema.Struct({
  ...Struct.omit(TotalsRow.fields, ["keyId"]),
  seconds: Schema.Int,
  from: Schema.DateTimeUtcFromDate
})

const usageStore = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  const withinDeadline = yield* AdminShare.makeDeadline
  const withinShare = yield* AdminShare.makeWithin
  const { hours, minutes } = KeyUsage.resolutions
  const store: KeyUsage.UsageStore = {
    // `ORDER BY` makes all processes lock rows in the same order, which prevents deadlocks.
    add: (counts) =>
      sql`
        INSERT INTO key_usage (key_id, seconds, starts_at, allowed, rejected, banned)
        SELECT "keyId", seconds, starts_at, sum(allowed), sum(rejected), sum(banned)
        FROM jsonb_to_recordset(${JSON.stringify([...counts])}::text::jsonb)
          AS t ("keyId" text, minute bigint, allowed bigint, rejected bigint, banned bigint)
        CROSS JOIN (VALUES (${minutes.seconds}::int), (${hours.seconds}::int)) AS r (seconds)
        CROSS JOIN LATERAL (SELECT to_timestamp(minute / 1000 / seconds * seconds)) AS s (starts_at)
        GROUP BY "keyId", seconds, starts_at
        ORDER BY "keyId", seconds, starts_at
        ON CONFLICT (key_id, seconds, starts_at) DO UPDATE SET
          allowed = key_usage.allowed + excluded.allowed,
          rejected = key_usage.rejected + excluded.rejected,
          banned = key_usage.banned + excluded.banned
      `.pipe(Effect.asVoid, withinShare),
    read: (keyId) => {
      const intervals = sql`
        SELECT seconds, starts_at AS "from", allowed::float8, rejected::float8, banned::float8 FROM key_usage
        WHERE key_id = ${keyId} ORDER BY starts_at`
      return Effect.map(withinDeadline(Rows.decode("key_usage", UsageRow, intervals)), (rows) => {
        const of = (length: number) => rows.filter(({ seconds }) => seconds === length)
        return { minutes: of(minutes.seconds), hours: of(hours.seconds) }
      })
    },
    top: ({ by, limit, seconds, since }, pending) =>
      withinDeadline(Rows.decode(
        "key_usage",
        TotalsRow,
        sql`
        SELECT key_id AS "keyId", sum(allowed)::float8 AS allowed, sum(rejected)::float8 AS rejected,
          sum(banned)::float8 AS banned
        FROM (
          SELECT key_id, allowed, rejected, banned FROM key_usage
          WHERE seconds = ${seconds} AND starts_at > ${DateTime.toDateUtc(since)}
          UNION ALL
          SELECT "keyId", allowed, rejected, banned FROM jsonb_to_recordset(${JSON.stringify(pending)}::text::jsonb)
            AS t ("keyId" text, allowed bigint, rejected bigint, banned bigint)
        ) AS counts
        GROUP BY key_id HAVING sum(${sql(by)}) > 0 ORDER BY sum(${sql(by)}) DESC, key_id COLLATE "C" LIMIT ${limit}`
      ))
  }
  const deleteExpired = (seconds: number, keptFor: Duration.Duration) =>
    Expiry.deleteExpired({
      table: "key_usage",
      key: ["key_id", "seconds", "starts_at"],
      column: "starts_at",
      where: sql`seconds = ${seconds}`,
      keptFor
    })
  yield* deleteExpired(minutes.seconds, Duration.seconds(minutes.keptSeconds))
  yield* deleteExpired(hours.seconds, Duration.days(yield* Settings.usageRetentionDays.config))
  return store
})

export const layer = Layer.effect(KeyUsage.KeyUsage, Effect.flatMap(usageStore, KeyUsage.make))
