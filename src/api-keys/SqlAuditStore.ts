/** Stores the audit log on PostgreSQL. */
import { DateTime, Duration, Effect } from "effect"
import { SqlClient, type Statement } from "effect/sql"
import type { AuditEntry } from "../api/Audit.ts"
import { Settings } from "../config/Settings.ts"
import * as Expiry from "../database/Expiry.ts"
import type { AuditSelection, AuditStore } from "./AuditLog.ts"

interface Row extends Omit<AuditEntry, "id" | "at"> {
  readonly id: bigint
  readonly at: Date
}

/**
 * Returns the statement that reads a page, newest entry first. Its order and its conditions match the indexes
 * `audit_log_at` and `audit_log_key`. The limit is part of the text, so that the planner knows how few rows it must
 * read.
 */
export const pageStatement = (
  sql: SqlClient.SqlClient,
  { after, keyId, limit }: AuditSelection
): Statement.Statement<Row> => {
  const conditions = [
    ...keyId === undefined ? [] : [sql`key_id = ${keyId}`],
    ...after === undefined
      ? []
      : [sql`(at, id) < (to_timestamp(${after.at}::float8 / 1000)::timestamptz(3), ${after.id}::bigint)`]
  ]
  return sql<Row>`
    SELECT id, at, action, key_id AS "keyId", operator, address, before, after FROM audit_log
    ${conditions.length === 0 ? sql.literal("") : sql`WHERE ${sql.and(conditions)}`}
    ORDER BY at DESC, id DESC LIMIT ${sql.literal(String(limit))}`
}

/** Makes the store on PostgreSQL. It deletes old entries until its scope closes. */
export const sqlStore = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  const keptFor = Duration.days(yield* Settings.auditRetentionDays.config)
  const store: AuditStore = {
    append: (entries) => {
      const rows = entries.map(({ keyId, ...entry }) => ({
        ...entry,
        at: DateTime.formatIso(entry.at),
        key_id: keyId
      }))
      return sql`
        INSERT INTO audit_log (at, action, key_id, operator, address, before, after)
        SELECT at, action, key_id, operator, address, before, after FROM jsonb_to_recordset(${
        JSON.stringify(rows)
      }::text::jsonb) AS t (
          at timestamptz, action text, key_id text, operator text, address text, before jsonb, after jsonb
        )`.pipe(Effect.asVoid, Effect.orDie)
    },
    bannedSince: (since) =>
      sql<{ readonly keyId: string }>`
        SELECT DISTINCT key_id AS "keyId" FROM audit_log
        WHERE action = 'ban' AND at > ${DateTime.toDateUtc(since)}`.pipe(
        Effect.map((rows) => rows.map(({ keyId }) => keyId)),
        Effect.orDie
      ),
    list: (selection) =>
      pageStatement(sql, selection).pipe(
        Effect.map((rows) =>
          rows.map(({ at, id, ...row }) => ({ ...row, id: Number(id), at: DateTime.fromDateUnsafe(at) }))
        ),
        Effect.orDie
      )
  }
  yield* Expiry.deleteExpired({
    table: "audit_log",
    column: "at",
    keptFor,
    warning: "Expired entries of the audit log cannot be deleted"
  })
  return store
})
