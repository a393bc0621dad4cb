/** The audit log and the usage of keys, in SQL. */
import { DateTime, Duration, Effect, Layer, Schema, Struct } from "effect"
import { SqlClient } from "effect/sql"
import { AuditEntry } from "../api/Audit.ts"
import { KeyTotals } from "../api/Usage.ts"
import { Settings } from "../config/Settings.ts"
import * as Expiry from "../database/Expiry.ts"
import * as Outage from "../database/Outage.ts"
import * as Rows from "../database/Rows.ts"
import * as AuditLog from "./AuditLog.ts"
import * as KeyUsage from "./KeyUsage.ts"

const AuditRow = Schema.Struct({ ...Struct.omit(AuditEntry.fields, ["keyName"]), at: Schema.DateTimeUtcFromDate })
const BanRow = Schema.Struct({ keyId: AuditEntry.fields.keyId })
const TotalsRow = Schema.Struct(Struct.omit(KeyTotals.fields, ["name", "plan"]))
const UsageRow = Schema.Struct({
  ...Struct.omit(TotalsRow.fields, ["keyId"]),
  seconds: Schema.Int,
  from: Schema.DateTimeUtcFromDate
})

const auditPageStatement = (
  sql: SqlClient.SqlClient,
  { action, after, key, limit, operator, since, until }: AuditLog.AuditSelection
) => {
  const conditions = [
    ...key === undefined ? [] : [sql`key_id = ${key}`],
    ...operator === undefined ? [] : [sql`operator = ${operator}`],
    ...action === undefined ? [] : [sql`action = ${action}`],
    ...since === undefined ? [] : [sql`at >= ${DateTime.toDateUtc(since)}`],
    ...until === undefined ? [] : [sql`at < ${DateTime.toDateUtc(until)}`],
    ...after === undefined
      ? []
      : [sql`(at, id) < (to_timestamp(${after.at}::float8 / 1000)::timestamptz(3), ${after.id}::bigint)`]
  ]
  return sql`
    SELECT id::float8, at, action, key_id AS "keyId", operator, address, before, after FROM audit_log
    WHERE ${sql.and(conditions)}
    ORDER BY at DESC, audit_log.id DESC LIMIT ${sql.literal(String(limit))}`
}

const auditStore = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  const withinDeadline = yield* Outage.makeDeadline()
  const store: AuditLog.AuditStore = {
    afterCommit: sql.afterCommit,
    append: (entries) =>
      sql`
        INSERT INTO audit_log (at, action, key_id, operator, address, before, after)
        SELECT at, action, "keyId", operator, address, before, after
        FROM jsonb_to_recordset(${JSON.stringify(entries)}::text::jsonb) AS t (
          at timestamptz, action text, "keyId" text, operator text, address text, before jsonb, after jsonb
        )`.pipe(Effect.asVoid, Outage.toServiceUnavailable),
    bannedSince: (since) => {
      const bans = sql`
        SELECT DISTINCT key_id AS "keyId" FROM audit_log
        WHERE action = 'ban' AND at > ${DateTime.toDateUtc(since)}`
      const rows = withinDeadline(Rows.decode("audit_log", BanRow, bans))
      return Effect.map(rows, (found) => found.map(({ keyId }) => keyId))
    },
    list: (selection) => withinDeadline(Rows.decode("audit_log", AuditRow, auditPageStatement(sql, selection)))
  }
  yield* Expiry.deleteExpired({
    table: "audit_log",
    column: "at",
    keptFor: Duration.days(yield* Settings.auditRetentionDays.config),
    warning: "Expired entries of the audit log cannot be deleted"
  })
  return store
})

export const usageStore = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  const withinDeadline = yield* Outage.makeDeadline()
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
      `.pipe(Effect.asVoid),
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
      column: "starts_at",
      where: sql`seconds = ${seconds}`,
      keptFor,
      warning: "Expired key usage cannot be deleted"
    })
  yield* deleteExpired(minutes.seconds, Duration.seconds(minutes.keptSeconds))
  yield* deleteExpired(hours.seconds, Duration.days(yield* Settings.usageRetentionDays.config))
  return store
})

export const layer = Layer.merge(
  Layer.effect(AuditLog.AuditLog, Effect.flatMap(auditStore, AuditLog.make)),
  Layer.effect(KeyUsage.KeyUsage, Effect.flatMap(usageStore, KeyUsage.make))
)
