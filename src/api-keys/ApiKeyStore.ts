/** Stores API keys, on PostgreSQL or in memory. The rules for keys are in `ApiKeys.ts`. */
import { DateTime, Effect } from "effect"
import { SqlClient, type Statement } from "effect/sql"
import type { ApiKey, KeyPosition } from "../api/Keys.ts"
import * as Expiry from "../database/Expiry.ts"

/** The holder of a secret: its key, and the instant at which the secret stops working (`null` for a current secret). */
export interface Holder {
  readonly key: ApiKey
  readonly secretExpiresAt: DateTime.Utc | null
}

/** Selects one page of the list of all keys: at most `limit` keys, after the position `after`. */
export interface KeySelection {
  readonly limit: number
  readonly after?: KeyPosition | undefined
}

/** A page of keys in list order. `next` is the position of its last key, and is absent on the last page. */
export interface ListedKeys {
  readonly keys: ReadonlyArray<ApiKey>
  readonly next?: KeyPosition
}

/** Stores keys and the hashes of their secrets (SHA-256, in hexadecimal). A database error is a defect. */
export interface ApiKeyStore {
  /** Inserts a key with its first secret. */
  insert(key: ApiKey, hash: string): Effect.Effect<void>
  /** Returns a page of all keys. The list is in order of creation time, then of the bytes of the id. */
  list(selection: KeySelection): Effect.Effect<ListedKeys>
  /** Returns the key with this id, or `undefined` if there is none. */
  find(id: string): Effect.Effect<ApiKey | undefined>
  /** Returns the holders by hash. A hash that belongs to no key is absent. */
  findByHashes(hashes: ReadonlyArray<string>): Effect.Effect<ReadonlyMap<string, Holder>>
  /**
   * Adds a secret to a key, and returns `"added"`. With an `end`, the other secrets of the key stop working then, or
   * earlier if they already have an earlier end. Without an `end` the other secrets are deleted.
   *
   * Nothing changes if the key is revoked (`"revoked"`), or if `end` is given and more than `maxWorking` secrets would
   * work (`"too_many"`).
   */
  addSecret(id: string, hash: string, options: {
    readonly now: DateTime.Utc
    readonly end: DateTime.Utc | undefined
    readonly maxWorking: number
  }): Effect.Effect<"added" | "revoked" | "too_many">
  /** Revokes a key. Returns whether it did: `false` if there is no such key, or if it is revoked already. */
  revoke(id: string, at: DateTime.Utc): Effect.Effect<boolean>
  /** Records the last uses of keys, by id in epoch milliseconds. A use before the recorded one changes nothing. */
  recordUses(uses: ReadonlyMap<string, number>): Effect.Effect<void>
}

const toBytes = (hash: string) => Buffer.from(hash, "hex")

const columns = `k.id, k.name, k.plan, k.per_minute AS "perMinute", k.per_day AS "perDay", k.created_at AS "createdAt",
  k.expires_at AS "expiresAt", k.revoked_at AS "revokedAt", k.last_used_at AS "lastUsedAt"`

/**
 * Returns the statement that reads a page of keys. Its order and its condition match the index `api_keys_created`. The
 * limit is part of the text, not a parameter, so that the planner of PostgreSQL knows how few rows it must read.
 */
export const pageStatement = (
  sql: SqlClient.SqlClient,
  { after, limit }: KeySelection
): Statement.Statement<ListedKeyRow> =>
  sql`
    SELECT ${sql.literal(columns)}, (extract(epoch FROM k.created_at) * 1000000)::bigint AS "createdAtMicros"
    FROM api_keys k ${
    after === undefined
      ? sql.literal("")
      : sql`WHERE (k.created_at, k.id COLLATE "C") >
        ('epoch'::timestamptz + ${`${after.createdAtMicros} microseconds`}::text::interval, ${after.id}::text)`
  }
    ORDER BY k.created_at, k.id COLLATE "C" LIMIT ${sql.literal(String(limit))}`

/** Makes the store on PostgreSQL, and deletes expired secrets in the background until its scope closes. */
export const sqlStore = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  const keyColumns = sql.literal(columns)
  const store: ApiKeyStore = {
    insert: (key, hash) =>
      sql.withTransaction(Effect.gen(function*() {
        yield* sql`INSERT INTO api_keys (id, name, plan, per_minute, per_day, created_at, expires_at)
          VALUES (${key.id}, ${key.name}, ${key.plan}, ${key.limits.perMinute}, ${key.limits.perDay},
            ${DateTime.toDateUtc(key.createdAt)}, ${key.expiresAt && DateTime.toDateUtc(key.expiresAt)})`
        yield* sql`INSERT INTO api_key_secrets (hash, key_id) VALUES (${toBytes(hash)}, ${key.id})`
      })).pipe(Effect.orDie),

    list: ({ after, limit }) =>
      // The statement reads one key more than the limit, which shows whether there is another page.
      pageStatement(sql, { limit: limit + 1, after }).pipe(
        Effect.map((rows) => toPage(rows, limit, fromKeyRow, ({ createdAtMicros, id }) => ({ createdAtMicros, id }))),
        Effect.orDie
      ),

    find: (id) =>
      sql<KeyRow>`SELECT ${keyColumns} FROM api_keys k WHERE k.id = ${id}`.pipe(
        Effect.map(([row]) => row && fromKeyRow(row)),
        Effect.orDie
      ),

    findByHashes: (hashes) =>
      sql<KeyRow & { readonly hash: string; readonly secretExpiresAt: Date | null }>`
        SELECT ${keyColumns}, encode(s.hash, 'hex') AS hash, s.expires_at AS "secretExpiresAt"
        FROM api_key_secrets s JOIN api_keys k ON k.id = s.key_id
        WHERE s.hash IN (SELECT decode(h, 'hex') FROM jsonb_array_elements_text(${
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

    addSecret: (id, hash, { end, maxWorking, now }) =>
      sql.withTransaction(Effect.gen(function*() {
        // The lock serializes concurrent rotations of a key, so that each counts the secrets of the others.
        const lockedKeys = yield* sql`SELECT FROM api_keys WHERE id = ${id} AND revoked_at IS NULL FOR NO KEY UPDATE`
        if (lockedKeys.length === 0) return "revoked"
        if (end === undefined) {
          yield* sql`DELETE FROM api_key_secrets WHERE key_id = ${id}`
        } else {
          const workingSecrets = yield* sql`SELECT FROM api_key_secrets
            WHERE key_id = ${id} AND (expires_at IS NULL OR expires_at > ${DateTime.toDateUtc(now)})`
          if (workingSecrets.length >= maxWorking) return "too_many"
          yield* sql`UPDATE api_key_secrets SET expires_at = LEAST(expires_at, ${DateTime.toDateUtc(end)})
            WHERE key_id = ${id}`
        }
        yield* sql`UPDATE api_keys SET changed = pg_current_xact_id() WHERE id = ${id}`
        yield* sql`INSERT INTO api_key_secrets (hash, key_id) VALUES (${toBytes(hash)}, ${id})`
        return "added"
      })).pipe(Effect.orDie),

    revoke: (id, at) =>
      sql`UPDATE api_keys SET revoked_at = ${DateTime.toDateUtc(at)}, changed = pg_current_xact_id()
        WHERE id = ${id} AND revoked_at IS NULL RETURNING id`.pipe(
        Effect.map((revokedKeys) => revokedKeys.length > 0),
        Effect.orDie
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
  // Former secrets of rotated keys are deleted after their grace period. The current secret has no end, so it stays.
  yield* Expiry.deleteExpired({
    table: "api_key_secrets",
    column: "expires_at",
    warning: "Expired secrets of keys cannot be deleted"
  })
  return store
})

interface KeyRow extends Pick<ApiKey, "id" | "name" | "plan"> {
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

/** Makes a page of the first `limit` items. A further item shows that there is another page. */
const toPage = <A>(
  items: ReadonlyArray<A>,
  limit: number,
  toKey: (item: A) => ApiKey,
  toPosition: (item: A) => KeyPosition
): ListedKeys => {
  const page = items.slice(0, limit)
  const last = page.at(-1)
  const keys = page.map(toKey)
  return last === undefined || items.length <= limit ? { keys } : { keys, next: toPosition(last) }
}

const toDateTime = (date: Date | null): DateTime.Utc | null => date && DateTime.fromDateUnsafe(date)

const fromKeyRow = (row: KeyRow): ApiKey => ({
  id: row.id,
  name: row.name,
  plan: row.plan,
  limits: { perMinute: row.perMinute, perDay: row.perDay },
  createdAt: DateTime.fromDateUnsafe(row.createdAt),
  expiresAt: toDateTime(row.expiresAt),
  revokedAt: toDateTime(row.revokedAt),
  lastUsedAt: toDateTime(row.lastUsedAt)
})

const positionOf = ({ createdAt, id }: ApiKey): KeyPosition => ({
  createdAtMicros: BigInt(createdAt.epochMilliseconds) * 1_000n,
  id
})

const comparePositions = (a: KeyPosition, b: KeyPosition): number =>
  a.createdAtMicros === b.createdAtMicros
    ? a.id < b.id ? -1 : a.id > b.id ? 1 : 0
    : a.createdAtMicros < b.createdAtMicros
    ? -1
    : 1

/** Makes a store in the memory of this process, for tests. */
export const memoryStore = Effect.sync((): ApiKeyStore => {
  const keys = new Map<string, ApiKey>()
  const secrets = new Map<string, { readonly keyId: string; readonly expiresAt: DateTime.Utc | null }>()

  const updateUnrevoked = (id: string, update: (key: ApiKey) => ApiKey): boolean => {
    const key = keys.get(id)
    if (key === undefined || key.revokedAt !== null) return false
    keys.set(id, update(key))
    return true
  }

  return {
    insert: (key, hash) =>
      Effect.sync(() => {
        keys.set(key.id, key)
        secrets.set(hash, { keyId: key.id, expiresAt: null })
      }),
    list: ({ after, limit }) =>
      Effect.sync(() => {
        const selected = [...keys.values()].toSorted((a, b) => comparePositions(positionOf(a), positionOf(b)))
          .filter((key) => after === undefined || comparePositions(positionOf(key), after) > 0)
        return toPage(selected, limit, (key) => key, positionOf)
      }),
    find: (id) => Effect.sync(() => keys.get(id)),
    findByHashes: (hashes) =>
      Effect.sync(() =>
        new Map(hashes.flatMap((hash) => {
          const secret = secrets.get(hash)
          const key = secret && keys.get(secret.keyId)
          return key === undefined ? [] : [[hash, { key, secretExpiresAt: secret?.expiresAt ?? null }] as const]
        }))
      ),
    addSecret: (id, hash, { end, maxWorking, now }) =>
      Effect.sync(() => {
        const otherSecrets = [...secrets].filter(([, { keyId }]) => keyId === id)
        const isWorking = ([, { expiresAt }]: (typeof otherSecrets)[number]): boolean =>
          expiresAt === null || DateTime.isGreaterThan(expiresAt, now)
        if (keys.get(id)?.revokedAt !== null) return "revoked"
        if (end !== undefined && otherSecrets.filter(isWorking).length >= maxWorking) return "too_many"
        for (const [otherHash, { expiresAt }] of otherSecrets) {
          if (end === undefined) secrets.delete(otherHash)
          else secrets.set(otherHash, { keyId: id, expiresAt: expiresAt ? DateTime.min(expiresAt, end) : end })
        }
        secrets.set(hash, { keyId: id, expiresAt: null })
        return "added"
      }),
    revoke: (id, revokedAt) => Effect.sync(() => updateUnrevoked(id, (key) => ({ ...key, revokedAt }))),
    recordUses: (uses) =>
      Effect.sync(() => {
        for (const [id, at] of uses) {
          const key = keys.get(id)
          if (key !== undefined && (key.lastUsedAt?.epochMilliseconds ?? 0) < at) {
            keys.set(id, { ...key, lastUsedAt: DateTime.makeUnsafe(at) })
          }
        }
      })
  }
})
