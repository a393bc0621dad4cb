/** Stores API keys on PostgreSQL. The rules for keys are in `ApiKeys.ts`. */
import { DateTime, Duration, Effect, Layer, Result } from "effect"
import { SqlClient, type Statement } from "effect/sql"
import { hash as digest } from "node:crypto"
import type { ApiKey, KeyPosition } from "../api/Keys.ts"
import * as Expiry from "../database/Expiry.ts"
import * as ApiKeys from "./ApiKeys.ts"
import { type Alongside, type ApiKeyStore, type Change, type StoreSelection, toPage } from "./ApiKeyStore.ts"
import * as KeyCache from "./KeyCache.ts"
import * as SqlAuditStore from "./SqlAuditStore.ts"
import * as SqlUsageStore from "./SqlUsageStore.ts"

/**
 * Returns the SHA-256 of a secret, in hexadecimal: the database stores nothing else of it. A slow hash would cost time
 * and add no protection, because 190 random bits cannot be guessed.
 */
const hashSecret = (secret: string): string => digest("sha256", secret)

/** The time for which an operator can find the key of a secret that has ended. */
const endedSecretsKeptFor = Duration.days(400)

const toBytes = (hash: string) => Buffer.from(hash, "hex")

const columns = `k.id, k.version, k.name, k.hint, k.plan, k.per_minute AS "perMinute", k.per_day AS "perDay",
  k.created_at AS "createdAt", k.expires_at AS "expiresAt", k.revoked_at AS "revokedAt",
  k.last_used_at AS "lastUsedAt"`

const microsColumn = `(extract(epoch FROM k.created_at) * 1000000)::bigint AS "createdAtMicros"`

const orderBy = ({ order }: StoreSelection): string =>
  order === "newest" ? `ORDER BY k.created_at DESC, k.id COLLATE "C" DESC` : `ORDER BY k.created_at, k.id COLLATE "C"`

/**
 * The maximum of keys that one page with a filter reads. A rare match in a large table would otherwise take longer than
 * the timeout of a statement. The embedded database reads them on the event loop, in about 30 ms. Other requests wait
 * meanwhile.
 */
const maxKeysRead = 10_000

/** A selection of the keys up to a position. */
interface BoundedSelection extends StoreSelection {
  readonly upTo?: KeyPosition | undefined
}

const whereAll = (sql: SqlClient.SqlClient, conditions: ReadonlyArray<Statement.Fragment>): Statement.Fragment =>
  conditions.length === 0 ? sql.literal("") : sql`WHERE ${sql.and(conditions)}`

/** Returns the clause that selects keys by their ids and their position, from an index. */
const whereInRange = (
  sql: SqlClient.SqlClient,
  { after, ids, order, upTo }: BoundedSelection
): Statement.Fragment => {
  const [beyond, until] = order === "newest"
    ? [sql.literal("<"), sql.literal(">=")]
    : [sql.literal(">"), sql.literal("<=")]
  const position = sql.literal(`(k.created_at, k.id COLLATE "C")`)
  const toRow = ({ createdAtMicros, id: last }: KeyPosition): Statement.Fragment =>
    sql`('epoch'::timestamptz + ${`${createdAtMicros} microseconds`}::text::interval, ${last}::text)`
  const conditions: Array<Statement.Fragment> = []
  if (ids !== undefined) {
    conditions.push(sql`k.id IN (SELECT jsonb_array_elements_text(${JSON.stringify(ids)}::text::jsonb))`)
  }
  if (after !== undefined) conditions.push(sql`${position} ${beyond} ${toRow(after)}`)
  if (upTo !== undefined) conditions.push(sql`${position} ${until} ${toRow(upTo)}`)
  return whereAll(sql, conditions)
}

/** Returns the conditions of a filter, which has no index. */
const conditionsOf = (
  sql: SqlClient.SqlClient,
  { plan, search, state }: StoreSelection,
  now: DateTime.Utc
): ReadonlyArray<Statement.Fragment> => {
  const at = DateTime.toDateUtc(now)
  const conditions: Array<Statement.Fragment> = []
  if (plan !== undefined) conditions.push(sql`k.plan = ${plan}`)
  if (state === "revoked") conditions.push(sql`k.revoked_at IS NOT NULL`)
  if (state === "expired") conditions.push(sql`k.revoked_at IS NULL AND k.expires_at <= ${at}`)
  if (state === "active") {
    conditions.push(sql`k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > ${at})`)
  }
  if (search !== undefined) {
    conditions.push(sql`(k.hint = ${search} OR strpos(k.id, ${search}) > 0
      OR strpos(lower(k.name), lower(${search}::text)) > 0)`)
  }
  return conditions
}

/**
 * Returns the statement that reads a page. Without a filter, its order and its condition match the index
 * `api_keys_created`. The limits are part of the text, not parameters, so that the planner of PostgreSQL knows how few
 * rows it must read. The planner moves no condition of a filter into the subquery, because it has a limit.
 */
export const pageStatement = (
  sql: SqlClient.SqlClient,
  selection: BoundedSelection,
  now: DateTime.Utc
): Statement.Statement<ListedKeyRow> => {
  const order = orderBy(selection)
  const range = whereInRange(sql, selection)
  const conditions = conditionsOf(sql, selection, now)
  const keys = conditions.length === 0
    ? sql`api_keys k ${range}`
    : sql`(SELECT * FROM api_keys k ${range} ${sql.literal(`${order} LIMIT ${maxKeysRead}`)}) k
      ${whereAll(sql, conditions)}`
  return sql`SELECT ${sql.literal(`${columns}, ${microsColumn}`)} FROM ${keys} ${
    sql.literal(`${order} LIMIT ${selection.limit}`)
  }`
}

/** Returns the statement that reads the position of the last key that a page with a filter reads, from an index. */
export const boundStatement = (
  sql: SqlClient.SqlClient,
  selection: StoreSelection
): Statement.Statement<KeyPosition> =>
  sql`SELECT k.id, ${sql.literal(microsColumn)} FROM api_keys k ${whereInRange(sql, selection)}
    ${sql.literal(`${orderBy(selection)} LIMIT 1 OFFSET ${maxKeysRead - 1}`)}`

/** Makes the store on PostgreSQL, and deletes secrets some time after their end, until its scope closes. */
export const sqlStore = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  const keyColumns = sql.literal(columns)
  const store: ApiKeyStore = {
    insert: (key, hash, alongside, idempotencyKey) =>
      sql.withTransaction(Effect.gen(function*() {
        const inserted = yield* sql`
          INSERT INTO api_keys (id, name, hint, plan, per_minute, per_day, created_at, expires_at, idempotency_key)
          VALUES (${key.id}, ${key.name}, ${key.hint}, ${key.plan}, ${key.limits.perMinute}, ${key.limits.perDay},
            ${DateTime.toDateUtc(key.createdAt)}, ${key.expiresAt && DateTime.toDateUtc(key.expiresAt)},
            ${idempotencyKey ?? null})
          ON CONFLICT (idempotency_key) DO NOTHING RETURNING 1`
        if (inserted.length === 0) {
          const [existing] = yield* sql<{ readonly id: string }>`
            SELECT id FROM api_keys WHERE idempotency_key = ${idempotencyKey ?? null}`
          return existing?.id
        }
        yield* sql`INSERT INTO api_key_secrets (hash, key_id) VALUES (${toBytes(hash)}, ${key.id})`
        yield* alongside
        return undefined
      })).pipe(Effect.orDie),

    list: ({ limit, ...filter }, now) =>
      Effect.gen(function*() {
        const isFiltered = [filter.plan, filter.state, filter.search].some((value) => value !== undefined)
        const [upTo] = isFiltered && filter.ids === undefined ? yield* boundStatement(sql, { ...filter, limit }) : []
        // The statement reads one key more than the limit, which shows whether there is another page.
        const rows = yield* pageStatement(sql, { ...filter, upTo, limit: limit + 1 }, now)
        const page = toPage(rows, limit, fromKeyRow, ({ createdAtMicros, id }) => ({ createdAtMicros, id }))
        return page.next === undefined && upTo !== undefined ? { ...page, next: upTo } : page
      }).pipe(Effect.orDie),

    find: (id) =>
      sql<KeyRow>`SELECT ${keyColumns} FROM api_keys k WHERE k.id = ${id}`.pipe(
        Effect.map(([row]) => row && fromKeyRow(row)),
        Effect.orDie
      ),

    formerSecrets: (id, now) =>
      sql<{ readonly endsAt: Date }>`
        SELECT expires_at AS "endsAt" FROM api_key_secrets
        WHERE key_id = ${id} AND NOT is_ended AND expires_at > ${DateTime.toDateUtc(now)} ORDER BY expires_at`.pipe(
        Effect.map((rows) => rows.map(({ endsAt }) => DateTime.fromDateUnsafe(endsAt))),
        Effect.orDie
      ),

    findSecret: (sha256) =>
      sql<{ readonly keyId: string; readonly endsAt: Date | null; readonly isEnded: boolean }>`
        SELECT key_id AS "keyId", expires_at AS "endsAt", is_ended AS "isEnded"
        FROM api_key_secrets WHERE hash = ${toBytes(sha256)}`.pipe(
        Effect.map(([row]) => row && { ...row, endsAt: toDateTime(row.endsAt) }),
        Effect.orDie
      ),

    findByHashes: (hashes) =>
      sql<KeyRow & { readonly hash: string; readonly secretExpiresAt: Date | null }>`
        SELECT ${keyColumns}, encode(s.hash, 'hex') AS hash, s.expires_at AS "secretExpiresAt"
        FROM api_key_secrets s JOIN api_keys k ON k.id = s.key_id
        WHERE NOT s.is_ended AND s.hash IN (SELECT decode(h, 'hex') FROM jsonb_array_elements_text(${
        JSON.stringify(hashes)
      }::text::jsonb) h)
      `.pipe(
        Effect.map((rows) =>
          new Map(rows.map((row) => [
            row.hash,
            { key: fromKeyRow(row), secretExpiresAt: toDateTime(row.secretExpiresAt) }
          ]))
        ),
        Effect.orDie
      ),

    change: <E>(
      id: string,
      now: DateTime.Utc,
      change: (key: ApiKey, workingSecrets: number) => Result.Result<Change, E>,
      alongside: Alongside
    ) =>
      sql.withTransaction(Effect.gen(function*() {
        // The lock serializes concurrent changes of a key, so that each starts from the result of the one before.
        const [row] = yield* sql<KeyRow & { readonly workingSecrets: number }>`
          SELECT ${keyColumns}, (
            SELECT count(*)::int FROM api_key_secrets
            WHERE key_id = k.id AND NOT is_ended AND (expires_at IS NULL OR expires_at > ${DateTime.toDateUtc(now)})
          ) AS "workingSecrets"
          FROM api_keys k WHERE id = ${id} FOR NO KEY UPDATE`
        if (row === undefined) return undefined
        const before = fromKeyRow(row)
        const result = change(before, row.workingSecrets)
        if (Result.isFailure(result)) return Result.fail(result.failure)
        const { formerEnd, key, secretHash } = result.success
        const changes = changedColumns(before, key)
        if (formerEnd === undefined && Object.keys(changes).length === 0) return Result.succeed(before)
        if (formerEnd !== undefined) {
          yield* sql`
            UPDATE api_key_secrets SET
              expires_at = LEAST(expires_at, ${DateTime.toDateUtc(formerEnd ?? now)}),
              is_ended = is_ended OR ${formerEnd === null}
            WHERE key_id = ${id} AND (expires_at IS NOT NULL OR ${secretHash !== undefined})`
        }
        if (secretHash !== undefined) {
          yield* sql`INSERT INTO api_key_secrets (hash, key_id) VALUES (${toBytes(secretHash)}, ${id})`
        }
        yield* sql`UPDATE api_keys SET ${sql.update({ ...changes, version: before.version + 1 })} WHERE id = ${id}`
        const after = { ...key, version: before.version + 1 }
        yield* alongside(before, after)
        return Result.succeed(after)
      })).pipe(
        Effect.orDie,
        Effect.flatMap((result) => result === undefined ? Effect.undefined : Effect.fromResult(result))
      ),

    recordUses: (uses) =>
      sql`
        UPDATE api_keys k SET last_used_at = u.at
        FROM jsonb_to_recordset(${
        JSON.stringify([...uses].map(([id, at]) => ({ id, at: new Date(at) })))
      }::text::jsonb) AS u (id text, at timestamptz)
        WHERE k.id = u.id AND (k.last_used_at IS NULL OR k.last_used_at < u.at)
      `.pipe(Effect.asVoid, Effect.orDie)
  }
  yield* Expiry.deleteExpired({
    table: "api_key_secrets",
    column: "expires_at",
    keptFor: endedSecretsKeptFor,
    warning: "Former secrets of keys cannot be deleted"
  })
  return store
})

/** Stores keys on PostgreSQL, and caches them in this process. */
export const layer = Layer.effect(
  ApiKeys.ApiKeys,
  Effect.gen(function*() {
    const store = yield* sqlStore
    return yield* ApiKeys.make({
      store,
      lookup: yield* KeyCache.make(store),
      audit: yield* SqlAuditStore.sqlStore,
      usage: yield* SqlUsageStore.sqlStore,
      hash: hashSecret
    })
  })
)

interface KeyRow extends Pick<ApiKey, "id" | "version" | "name" | "hint" | "plan"> {
  readonly perMinute: number
  readonly perDay: number
  readonly createdAt: Date
  readonly expiresAt: Date | null
  readonly revokedAt: Date | null
  readonly lastUsedAt: Date | null
}

interface ListedKeyRow extends KeyRow {
  /** The time of creation in epoch microseconds, the precision of PostgreSQL. */
  readonly createdAtMicros: bigint
}

/** Returns the columns that differ between two states of a key. The others keep their microseconds. */
const changedColumns = (before: ApiKey, after: ApiKey): Record<string, unknown> => {
  const [old, changed] = [toColumns(before), toColumns(after)]
  return Object.fromEntries(
    Object.entries(changed).filter(([name, value]) => String(value) !== String(old[name]))
  )
}

/** Returns the columns that a change can set. */
const toColumns = ({ expiresAt, hint, limits, name, plan, revokedAt }: ApiKey): Record<string, unknown> => ({
  name,
  hint,
  plan,
  per_minute: limits.perMinute,
  per_day: limits.perDay,
  expires_at: expiresAt && DateTime.toDateUtc(expiresAt),
  revoked_at: revokedAt && DateTime.toDateUtc(revokedAt)
})

const toDateTime = (date: Date | null): DateTime.Utc | null => date && DateTime.fromDateUnsafe(date)

const fromKeyRow = (row: KeyRow): ApiKey => ({
  id: row.id,
  version: row.version,
  name: row.name,
  hint: row.hint,
  plan: row.plan,
  limits: { perMinute: row.perMinute, perDay: row.perDay },
  createdAt: DateTime.fromDateUnsafe(row.createdAt),
  expiresAt: toDateTime(row.expiresAt),
  revokedAt: toDateTime(row.revokedAt),
  lastUsedAt: toDateTime(row.lastUsedAt)
})
