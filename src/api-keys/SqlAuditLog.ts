import { DateTime, type Duration, Effect, Layer, Schema, Struct } from "effect"
import { SqlClient } from "effect/sql"
import { AuditEntry } from "../api/Audit.ts"
import { databaseErrors } from "../api/DatabaseErrors.ts"
import * as AdminShare from "../database/AdminShare.ts"
import * as Expiry from "../database/Expiry.ts"
import * as Outage from "../database/Outage.ts"
import * as Rows from "../database/Rows.ts"
import * as StatementBatcher from "../database/StatementBatcher.ts"
import * as AuditLog from "./AuditLog.ts"

const AuditRow = Schema.Struct({ ...Struct.omit(AuditEntry.fields, ["keyName"]), at: Schema.DateTimeUtcFromDate })
const BanRow = Schema.Struct({ keyId: AuditEntry.fields.keyId })

const pageStatement = (
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

const makeStore = Effect.fnUntraced(function*(retention: Duration.Duration) {
  const sql = yield* SqlClient.SqlClient
  const withinDeadline = yield* AdminShare.makeDeadline(databaseErrors)
  const withinShare = yield* AdminShare.AdminShare
  const insert = (entries: ReadonlyArray<object>, condition = sql`true`) =>
    sql`
      INSERT INTO audit_log (at, action, key_id, operator, address, before, after)
      SELECT at, action, "keyId", operator, address, before, after
      FROM jsonb_to_recordset(${JSON.stringify(entries)}::text::jsonb) AS t (
        at timestamptz, action text, "keyId" text, operator text, address text, before jsonb, after jsonb
      ) WHERE ${condition} RETURNING 1`
  // `AuditLog` writes its pending bans again after a failed flush, which may have committed. So skip a ban that is
  // stored.
  const isNoStoredBan = sql`t.action <> 'ban' OR NOT EXISTS (
    SELECT FROM audit_log l WHERE l.key_id = t."keyId" AND l.action = 'ban' AND l.at = t.at)`
  const isNew = sql`NOT EXISTS (
    SELECT FROM audit_log l WHERE l.key_id = t."keyId" AND l.action = t.action AND l.before = t.before)`
  const store: AuditLog.AuditStore = {
    afterCommit: sql.afterCommit,
    append: (entries) => {
      const inserted = insert(entries, isNoStoredBan).pipe(Effect.asVoid, Outage.failWith(databaseErrors))
      // The transaction of an admin operation already holds a permit of `AdminShare`. Waiting for a second one could
      // deadlock.
      return Effect.withFiber((fiber) =>
        StatementBatcher.isInTransaction(sql, fiber) ? inserted : withinShare(inserted)
      )
    },
    appendOnce: (entry) =>
      sql.withTransaction(Effect.gen(function*() {
        // Lock the key first. The second of two concurrent calls then waits, and sees the entry of the first.
        yield* sql`SELECT FROM api_keys WHERE id = ${entry.keyId} FOR NO KEY UPDATE`
        return (yield* insert([entry], isNew)).length > 0
      })).pipe(withinDeadline),
    bannedSince: (since) => {
      const bans = sql`
        SELECT DISTINCT key_id AS "keyId" FROM audit_log
        WHERE action = 'ban' AND at > ${DateTime.toDateUtc(since)}`
      const rows = withinDeadline(Rows.decode("audit_log", BanRow, bans))
      return Effect.map(rows, (found) => found.map(({ keyId }) => keyId))
    },
    list: (selection) => withinDeadline(Rows.decode("audit_log", AuditRow, pageStatement(sql, selection)))
  }
  yield* Expiry.deleteExpired({ table: "audit_log", key: ["id"], column: "at", keptFor: retention })
  return store
})

export const layer = (retention: Duration.Duration) =>
  Layer.effect(AuditLog.AuditLog, Effect.flatMap(makeStore(retention), AuditLog.make))
