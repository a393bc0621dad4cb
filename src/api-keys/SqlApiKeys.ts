import { Clock, DateTime, Duration, Effect, Layer, Result, Schema } from "effect"
import { SqlClient } from "effect/sql"
import type { Fragment } from "effect/sql/Statement"
import { hash as digest } from "node:crypto"
import { databaseErrors } from "../api/DatabaseErrors.ts"
import { ApiKey, type KeyPosition } from "../api/KeySchemas.ts"
import type { Limits } from "../api/Plans.ts"
import * as AdminShare from "../database/AdminShare.ts"
import * as Expiry from "../database/Expiry.ts"
import * as Outage from "../database/Outage.ts"
import * as Rows from "../database/Rows.ts"
import * as StatementBatcher from "../database/StatementBatcher.ts"
import { StateLookups } from "../rate-limit/StateLookups.ts"
import { ApiKeys } from "./ApiKeys.ts"
import { ApiKeyStore, makeHolder, type StoreSelection } from "./ApiKeyStore.ts"
import { KeyVerifier } from "./KeyVerifier.ts"
import * as SqlAuditLog from "./SqlAuditLog.ts"
import * as SqlKeyUsage from "./SqlKeyUsage.ts"

const toBytes = (hash: string) => Buffer.from(hash, "hex")
const toDate = (at: DateTime.Utc | null): Date | null => at && DateTime.toDateUtc(at)

const time = Schema.DateTimeUtcFromDate
const timeOrNull = Schema.NullOr(time)
const times = { createdAt: time, expiresAt: timeOrNull, revokedAt: timeOrNull, lastUsedAt: timeOrNull }
const KeyRow = Schema.Struct({ ...ApiKey.fields, ...times })
const FormerSecretRow = Schema.Struct({ hint: ApiKey.fields.hint, endsAt: time, lastUsedAt: timeOrNull })
const IdRow = Schema.Struct({ id: ApiKey.fields.id })
const OriginRow = Schema.Struct({ keyId: ApiKey.fields.id, endsAt: timeOrNull })

const columns = `k.id, k.version, k.name, k.hint, k.plan, k.enabled,
  json_build_object('perMinute', k.per_minute, 'perDay', k.per_day) AS limits, k.created_at AS "createdAt",
  k.expires_at AS "expiresAt", k.revoked_at AS "revokedAt", k.last_used_at AS "lastUsedAt"`

/**
 * The maximum number of keys that a page with a filter scans. It is lower in the order of names: the table's rows are
 * not in that order, so each key is a random read.
 */
const maxScanned = { byTime: 10_000, byName: 1_000 }

/** The SQL for the order of a list: by name if there is a `search`, else by creation time. */
const orderOf = (sql: SqlClient.SqlClient, { order, search }: StoreSelection) => {
  const isByName = search !== undefined
  const direction = order === "newest" && !isByName ? "DESC" : "ASC"
  const position = isByName ? `lower(k.name) COLLATE "C", k.id COLLATE "C"` : `k.created_at, k.id COLLATE "C"`
  return {
    isByName,
    position: sql.literal(position),
    orderBy: sql.literal(`ORDER BY ${position.replace(",", ` ${direction},`)} ${direction}`),
    after: sql.literal(direction === "ASC" ? ">" : "<"),
    until: sql.literal(direction === "ASC" ? "<=" : ">="),
    values: ({ createdAt, id, name = "" }: KeyPosition) =>
      isByName
        ? sql`(lower(${name}::text) COLLATE "C", ${id}::text COLLATE "C")`
        : sql`(${new Date(createdAt)}::timestamptz, ${id}::text COLLATE "C")`
  }
}

const afterPosition = (sql: SqlClient.SqlClient, selection: StoreSelection) => {
  const order = orderOf(sql, selection)
  return selection.after === undefined ? [] : [sql`(${order.position}) ${order.after} ${order.values(selection.after)}`]
}

/**
 * Whether a key's name begins with `prefix`, in lower or upper case. The condition is a range: with a parameter as the
 * pattern of `LIKE`, the generic plan of a prepared statement cannot use an index. `chr(1114111)` is the highest
 * character of Unicode.
 */
const hasPrefix = (sql: SqlClient.SqlClient, prefix: string) =>
  sql`lower(k.name) COLLATE "C" >= lower(${prefix}::text)
    AND lower(k.name) COLLATE "C" < lower(${prefix}::text) || chr(1114111)`

/** `LIMIT` is a literal instead of a parameter, so that the query planner knows how many rows the page needs. */
const pageStatement = (sql: SqlClient.SqlClient, selection: StoreSelection, now: DateTime.Utc) => {
  const { expiresBefore, ids, limit, plan, search, state, until } = selection
  const order = orderOf(sql, selection)
  const keyState = sql`
    CASE WHEN k.revoked_at IS NOT NULL THEN 'revoked' WHEN k.expires_at <= ${toDate(now)} THEN 'expired'
      WHEN k.enabled THEN 'active' ELSE 'disabled' END`
  const filter = [
    ...ids === undefined ? [] : [sql`k.id IN (SELECT jsonb_array_elements_text(${JSON.stringify(ids)}::text::jsonb))`],
    ...afterPosition(sql, selection),
    ...until === undefined ? [] : [sql`(${order.position}) ${order.until} ${order.values(until)}`],
    ...expiresBefore === undefined
      ? []
      : [sql`k.expires_at > ${toDate(now)} AND k.expires_at <= ${toDate(expiresBefore)}`],
    ...plan === undefined ? [] : [sql`k.plan = ${plan}`],
    ...state === undefined ? [] : [sql`${keyState} = ${state}`]
  ]
  const ordered = sql`${order.orderBy} ${sql.literal(`LIMIT ${limit}`)}`
  const keysWhere = (conditions: ReadonlyArray<Fragment>) =>
    sql`SELECT k.* FROM api_keys k WHERE ${sql.and([...conditions, ...filter])} ${ordered}`
  // The parts of the UNION use different indexes: the first that of names, the second those of ids and hints.
  const found = search === undefined
    ? keysWhere([])
    : sql`(${keysWhere([hasPrefix(sql, search)])})
      UNION (${keysWhere([sql`(k.id = ${search} OR k.hint = ${search})`])})`
  return sql`SELECT ${sql.literal(columns)} FROM (${found}) AS k ${ordered}`
}

const scanEndStatement = (sql: SqlClient.SqlClient, selection: StoreSelection) => {
  const { isByName, orderBy } = orderOf(sql, selection)
  const scanned = isByName ? maxScanned.byName : maxScanned.byTime
  const conditions = [
    ...selection.search === undefined ? [] : [hasPrefix(sql, selection.search)],
    ...afterPosition(sql, selection)
  ]
  return sql<{ readonly id: string; readonly createdAt: Date; readonly name: string }>`
    SELECT k.id, k.created_at AS "createdAt", k.name FROM api_keys k
    WHERE ${sql.and(conditions)} ${orderBy} ${sql.literal(`OFFSET ${scanned - 1} LIMIT 1`)}`
}

const makeStore = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  const withinDeadline = yield* AdminShare.makeDeadline(databaseErrors)
  const clock = yield* Clock.Clock
  const lookups = yield* StateLookups
  // Keep the hash of a former secret for 400 days after its end, so that an operator can find the key of a leaked
  // secret.
  yield* Expiry.deleteExpired({
    table: "api_key_secrets",
    key: ["hash"],
    column: "expires_at",
    keptFor: Duration.days(400)
  })
  return ApiKeyStore.of({
    // A fast hash suffices, because a secret has 190 random bits, too many to guess.
    hash: (secret) => digest("sha256", secret),

    insert: (key, hash, auditEntry, idempotencyKey) =>
      sql.withTransaction(Effect.gen(function*() {
        const inserted = yield* sql`
          INSERT INTO api_keys (id, name, hint, plan, per_minute, per_day, created_at, expires_at, idempotency_key)
          VALUES (${key.id}, ${key.name}, ${key.hint}, ${key.plan}, ${key.limits.perMinute}, ${key.limits.perDay},
            ${toDate(key.createdAt)}, ${toDate(key.expiresAt)}, ${idempotencyKey ?? null})
          ON CONFLICT (idempotency_key) DO NOTHING RETURNING 1`
        if (inserted.length === 0) {
          const existing = sql`SELECT id FROM api_keys WHERE idempotency_key = ${idempotencyKey ?? null}`
          return (yield* Rows.decode("api_keys", IdRow, existing))[0]?.id
        }
        yield* sql`INSERT INTO api_key_secrets (hash, key_id) VALUES (${toBytes(hash)}, ${key.id})`
        yield* auditEntry
        return undefined
      })).pipe(withinDeadline),

    list: (selection, now) => withinDeadline(Rows.decode("api_keys", KeyRow, pageStatement(sql, selection, now))),

    scanEnd: (selection) =>
      Effect.map(withinDeadline(scanEndStatement(sql, selection)), ([last]) =>
        last && {
          createdAt: last.createdAt.getTime(),
          id: last.id,
          ...selection.search !== undefined && { name: last.name }
        }),

    formerSecrets: (id, now) =>
      withinDeadline(Rows.decode(
        "api_key_secrets",
        FormerSecretRow,
        sql`
          SELECT hint, expires_at AS "endsAt", last_used_at AS "lastUsedAt" FROM api_key_secrets
          WHERE key_id = ${id} AND NOT is_ended AND expires_at > ${toDate(now)} ORDER BY expires_at`
      )).pipe(Effect.map((rows) => rows.map(({ hint, ...row }) => hint === null ? row : { hint, ...row }))),

    findSecret: (sha256, now) => {
      // A secret that was ended (`is_ended`) has an `expires_at` in the future if the clock of the process that ended
      // it was ahead. `LEAST` then returns the current time.
      const origin = sql`
        SELECT key_id AS "keyId",
          CASE WHEN is_ended THEN LEAST(expires_at, ${toDate(now)}) ELSE expires_at END AS "endsAt"
        FROM api_key_secrets WHERE hash = ${toBytes(sha256)}`
      return Effect.map(withinDeadline(Rows.decode("api_key_secrets", OriginRow, origin)), ([first]) => first)
    },

    isInTransaction: (fiber) => StatementBatcher.isInTransaction(sql, fiber),

    findByHashes: Effect.fnUntraced(function*(hashes, withStates = false) {
      const startedAt = clock.monotonicTimeNanosUnsafe()
      const states = withStates ? lookups.current : undefined
      const state = states?.stateOf(sql`k.id`) ?? sql`NULL`
      const rows = yield* sql<
        & Pick<ApiKey, "enabled" | "id" | "plan">
        & Limits
        & Readonly<Record<"endsAt" | "expiresAt" | "revokedAt", Date | null>>
        & Readonly<Record<"hash", string> & Record<"state", string | null>>
      >`
        SELECT encode(s.hash, 'hex') AS hash, k.id, k.plan, k.per_minute AS "perMinute", k.per_day AS "perDay",
          k.enabled, k.expires_at AS "expiresAt", k.revoked_at AS "revokedAt",
          CASE WHEN s.is_ended THEN to_timestamp(0) ELSE s.expires_at END AS "endsAt", ${state} AS state
        FROM api_key_secrets s JOIN api_keys k ON k.id = s.key_id
        WHERE s.hash IN (
          SELECT decode(h, 'hex') FROM jsonb_array_elements_text(${JSON.stringify(hashes)}::text::jsonb) h
        )`
      // Gives the limiter the keys' states (`StateLookups.ts`), so that the charge which follows needs no statement.
      states?.add(rows, startedAt)
      return new Map(rows.map(({ endsAt, hash, perDay, perMinute, ...key }) => [
        hash,
        makeHolder({ ...key, limits: { perMinute, perDay } }, endsAt)
      ]))
    }, Outage.failWith(databaseErrors)),

    change: (id, now, change) =>
      sql.withTransaction(Effect.gen(function*() {
        const locked = sql`SELECT ${sql.literal(columns)} FROM api_keys k WHERE id = ${id} FOR NO KEY UPDATE`
        const [before] = yield* Rows.decode("api_keys", KeyRow, locked)
        if (before === undefined) return Result.succeed(undefined)
        // Count secrets in a second statement. The locking statement takes its snapshot before it waits for the lock,
        // so that snapshot can miss a rotation that was committed during the wait.
        const working = yield* sql`
          SELECT FROM api_key_secrets
          WHERE key_id = ${id} AND NOT is_ended AND (expires_at IS NULL OR expires_at > ${toDate(now)})`
        const result = change(before, working.length)
        if (Result.isFailure(result) || result.success === undefined) return Result.map(result, () => before)
        const { auditEntry, formerSecretsEndAt, key, secretHash } = result.success
        if (formerSecretsEndAt !== undefined) {
          yield* sql`
            UPDATE api_key_secrets SET
              expires_at = LEAST(expires_at, ${toDate(formerSecretsEndAt ?? now)}),
              is_ended = is_ended OR ${formerSecretsEndAt === null},
              hint = CASE WHEN expires_at IS NULL THEN ${before.hint} ELSE hint END
            WHERE key_id = ${id} AND (expires_at IS NOT NULL OR ${secretHash !== undefined})`
        }
        if (secretHash !== undefined) {
          yield* sql`INSERT INTO api_key_secrets (hash, key_id) VALUES (${toBytes(secretHash)}, ${id})`
        }
        yield* sql`
          UPDATE api_keys SET version = ${key.version}, name = ${key.name}, hint = ${key.hint}, plan = ${key.plan},
            per_minute = ${key.limits.perMinute}, per_day = ${key.limits.perDay},
            enabled = ${key.enabled}, expires_at = ${toDate(key.expiresAt)}, revoked_at = ${toDate(key.revokedAt)}
          WHERE id = ${id}`
        yield* auditEntry
        return Result.succeed(key)
      })).pipe(withinDeadline, Effect.flatMap(Effect.fromResult)),

    // Sort the rows, and update one table per statement. Concurrent processes then usually lock rows in the same order,
    // which prevents most deadlocks.
    recordUses: Effect.fnUntraced(function*(uses) {
      const sorted = Array.from(uses, ([hash, { at, keyId }]) => ({ keyId, hash, at: new Date(at) }))
        .toSorted((a, b) => a.keyId + a.hash < b.keyId + b.hash ? -1 : 1)
      const rows = JSON.stringify(sorted)
      const used = sql`
        SELECT u.hash, k.id, GREATEST(u.at, k.created_at) AS at
        FROM jsonb_to_recordset(${rows}::text::jsonb) AS u (hash text, "keyId" text, at timestamptz(3))
        JOIN api_keys k ON k.id = u."keyId"`
      yield* sql`
        UPDATE api_keys k SET last_used_at = u.at
        FROM (SELECT id, max(at) AS at FROM (${used}) u GROUP BY id ORDER BY id COLLATE "C") u
        WHERE k.id = u.id AND (k.last_used_at IS NULL OR k.last_used_at < u.at)`
      yield* sql`
        UPDATE api_key_secrets s SET last_used_at = u.at FROM (${used}) u
        WHERE s.hash = decode(u.hash, 'hex') AND (s.last_used_at IS NULL OR s.last_used_at < u.at)`
    })
  })
})

interface Options {
  /** How long entries of the audit log are kept. */
  readonly auditRetention: Duration.Duration
  /** How long the hourly counts of requests are kept. */
  readonly usageRetention: Duration.Duration
}

export const layer = ({ auditRetention, usageRetention }: Options) =>
  ApiKeys.layer.pipe(
    Layer.provideMerge(
      Layer.mergeAll(KeyVerifier.layer, SqlAuditLog.layer(auditRetention), SqlKeyUsage.layer(usageRetention))
    ),
    Layer.provide(Layer.effect(ApiKeyStore, makeStore))
  )
