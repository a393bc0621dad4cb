import { DateTime, Duration, Effect } from "effect"
import { SqlClient, type Statement } from "effect/sql"
import type { AuditEntry } from "../api/Audit.ts"
import type { UsageCounts } from "../api/Usage.ts"
import { Settings } from "../config/Settings.ts"
import * as Expiry from "../database/Expiry.ts"
import * as Outage from "../database/Outage.ts"
import type { AuditSelection, AuditStore } from "./AuditLog.ts"
import { resolutions, type UsageStore } from "./KeyUsage.ts"

interface AuditRow extends Omit<AuditEntry, "id" | "at" | "keyName"> {
  readonly id: bigint
  readonly at: Date
}

export const auditPageStatement = (
  sql: SqlClient.SqlClient,
  { action, after, key, limit, operator, since, until }: AuditSelection
): Statement.Statement<AuditRow> => {
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
  return sql<AuditRow>`
    SELECT id, at, action, key_id AS "keyId", operator, address, before, after FROM audit_log
    WHERE ${sql.and(conditions)}
    ORDER BY at DESC, id DESC LIMIT ${sql.literal(String(limit))}`
}

export const auditStore = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  const withinDeadline = yield* Outage.makeDeadline()
  const store: AuditStore = {
    append: (entries) =>
      sql`
        INSERT INTO audit_log (at, action, key_id, operator, address, before, after)
        SELECT at, action, "keyId", operator, address, before, after
        FROM jsonb_to_recordset(${JSON.stringify(entries)}::text::jsonb) AS t (
          at timestamptz, action text, "keyId" text, operator text, address text, before jsonb, after jsonb
        )`.pipe(Effect.asVoid, Outage.toServiceUnavailable),
    bannedSince: (since) =>
      sql<{ readonly keyId: string }>`
        SELECT DISTINCT key_id AS "keyId" FROM audit_log
        WHERE action = 'ban' AND at > ${DateTime.toDateUtc(since)}`
        .pipe(Effect.map((rows) => rows.map(({ keyId }) => keyId)), withinDeadline),
    list: (selection) =>
      auditPageStatement(sql, selection).pipe(
        Effect.map((rows) =>
          rows.map(({ at, id, ...row }) => ({ ...row, id: Number(id), at: DateTime.fromDateUnsafe(at) }))
        ),
        withinDeadline
      )
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
  const { hours, minutes } = resolutions
  const store: UsageStore = {
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
    read: (keyId) =>
      sql<UsageCounts & { readonly seconds: number; readonly from: Date }>`
        SELECT seconds, starts_at AS "from", allowed::float8, rejected::float8, banned::float8 FROM key_usage
        WHERE key_id = ${keyId} ORDER BY starts_at
      `.pipe(
        Effect.map((rows) => {
          const of = (length: number) =>
            rows.filter(({ seconds }) => seconds === length)
              .map(({ seconds: _seconds, from, ...counts }) => ({ from: DateTime.fromDateUnsafe(from), ...counts }))
          return { minutes: of(minutes.seconds), hours: of(hours.seconds) }
        }),
        withinDeadline
      ),
    top: ({ by, limit, seconds, since }, pending) =>
      sql<UsageCounts & { readonly keyId: string }>`
        SELECT key_id AS "keyId", sum(allowed)::float8 AS allowed, sum(rejected)::float8 AS rejected,
          sum(banned)::float8 AS banned
        FROM (
          SELECT key_id, allowed, rejected, banned FROM key_usage
          WHERE seconds = ${seconds} AND starts_at > ${DateTime.toDateUtc(since)}
          UNION ALL
          SELECT "keyId", allowed, rejected, banned FROM jsonb_to_recordset(${JSON.stringify(pending)}::text::jsonb)
            AS t ("keyId" text, allowed bigint, rejected bigint, banned bigint)
        ) AS counts
        GROUP BY key_id HAVING sum(${sql(by)}) > 0 ORDER BY sum(${sql(by)}) DESC, key_id COLLATE "C" LIMIT ${limit}
      `.pipe(withinDeadline)
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
