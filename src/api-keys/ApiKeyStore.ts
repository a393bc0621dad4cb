/** The stores of API keys, on SQL and in memory. `ApiKeys.ts` has the rules. */
import { DateTime, Effect } from "effect"
import { SqlClient, type Statement } from "effect/sql"
import type { ApiKey, KeyPosition } from "../api/Keys.ts"
import * as Expiry from "../database/Expiry.ts"

/** The key that a secret belongs to, and the time until which the secret works. */
export interface Holder {
  readonly key: ApiKey
  readonly secretExpiresAt: DateTime.Utc | null
}

/** Selects at most `limit` keys, after the position `after` in the list of all keys. */
export interface KeySelection {
  readonly limit: number
  readonly after?: KeyPosition | undefined
}

/** Keys in list order. `next` is the position of the last one if there are more keys, else it is absent. */
export interface ListedKeys {
  readonly keys: ReadonlyArray<ApiKey>
  readonly next?: KeyPosition
}

export interface ApiKeyStore {
  insert(key: ApiKey, hash: string): Effect.Effect<void>
  /** Lists keys by the time of their creation, then by the bytes of their id. */
  list(selection: KeySelection): Effect.Effect<ListedKeys>
  find(id: string): Effect.Effect<ApiKey | undefined>
  /** Returns the holders of those `hashes` that belong to a key. */
  findByHashes(hashes: ReadonlyArray<string>): Effect.Effect<ReadonlyMap<string, Holder>>
  /**
   * Adds a secret to a key that is not revoked. With an `end`, the key's other secrets work until then at most; nothing
   * changes if more than `maxWorking` secrets would work. Without an `end` the other secrets are deleted.
   */
  addSecret(id: string, hash: string, options: {
    readonly now: DateTime.Utc
    readonly end: DateTime.Utc | undefined
    readonly maxWorking: number
  }): Effect.Effect<"added" | "revoked" | "too_many">
  /** Revokes a key. Returns whether there was such a key that was not revoked yet. */
  revoke(id: string, at: DateTime.Utc): Effect.Effect<boolean>
  /** Records the later of the known time and `uses`, in milliseconds by key id. */
  recordUses(uses: ReadonlyMap<string, number>): Effect.Effect<void>
}

const bytes = (hash: string) => Buffer.from(hash, "hex")

const columns = `k.id, k.name, k.plan, k.per_minute AS "perMinute", k.per_day AS "perDay", k.created_at AS "createdAt",
  k.expires_at AS "expiresAt", k.revoked_at AS "revokedAt", k.last_used_at AS "lastUsedAt"`

/**
 * The statement for a page of keys. Its order and condition match the index `api_keys_created`. The limit is part of
 * the text, so that PostgreSQL knows how few rows it must read.
 */
export const pageStatement = (
  sql: SqlClient.SqlClient,
  { after, limit }: KeySelection
): Statement.Statement<ListedRow> =>
  sql`
    SELECT ${sql.literal(columns)}, (extract(epoch FROM k.created_at) * 1000000)::bigint AS "createdAtMicros"
    FROM api_keys k ${
    after === undefined
      ? sql.literal("")
      : sql`WHERE (k.created_at, k.id COLLATE "C") >
        ('epoch'::timestamptz + ${`${after.createdAtMicros} microseconds`}::text::interval, ${after.id}::text)`
  }
    ORDER BY k.created_at, k.id COLLATE "C" LIMIT ${sql.literal(String(limit))}`

export const sqlStore = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  const keyColumns = sql.literal(columns)
  const store: ApiKeyStore = {
    insert: (key, hash) =>
      sql.withTransaction(Effect.gen(function*() {
        yield* sql`INSERT INTO api_keys (id, name, plan, per_minute, per_day, created_at, expires_at)
          VALUES (${key.id}, ${key.name}, ${key.plan}, ${key.limits.perMinute}, ${key.limits.perDay},
            ${DateTime.toDateUtc(key.createdAt)}, ${key.expiresAt && DateTime.toDateUtc(key.expiresAt)})`
        yield* sql`INSERT INTO api_key_secrets (hash, key_id) VALUES (${bytes(hash)}, ${key.id})`
      })).pipe(Effect.orDie),

    list: ({ after, limit }) =>
      // Reads one key more than requested, which shows whether there is another page.
      pageStatement(sql, { limit: limit + 1, after }).pipe(
        Effect.map((rows) => listed(rows, limit, fromRow, ({ createdAtMicros, id }) => ({ createdAtMicros, id }))),
        Effect.orDie
      ),

    find: (id) =>
      sql<Row>`SELECT ${keyColumns} FROM api_keys k WHERE k.id = ${id}`.pipe(
        Effect.map(([row]) => row && fromRow(row)),
        Effect.orDie
      ),

    findByHashes: (hashes) =>
      sql<Row & { readonly hash: string; readonly secretExpiresAt: Date | null }>`
        SELECT ${keyColumns}, encode(s.hash, 'hex') AS hash, s.expires_at AS "secretExpiresAt"
        FROM api_key_secrets s JOIN api_keys k ON k.id = s.key_id
        WHERE s.hash IN (SELECT decode(h, 'hex') FROM jsonb_array_elements_text(${
        JSON.stringify(hashes)
      }::text::jsonb) h)
      `.pipe(
        Effect.map((rows) =>
          new Map(rows.map((row) => [
            row.hash,
            { key: fromRow(row), secretExpiresAt: toDateTime(row.secretExpiresAt) }
          ]))
        ),
        Effect.orDie
      ),

    addSecret: (id, hash, { end, maxWorking, now }) =>
      sql.withTransaction(Effect.gen(function*() {
        // The lock makes concurrent rotations of a key count each other's secrets.
        const keys = yield* sql`SELECT FROM api_keys WHERE id = ${id} AND revoked_at IS NULL FOR NO KEY UPDATE`
        if (keys.length === 0) return "revoked"
        if (end === undefined) {
          yield* sql`DELETE FROM api_key_secrets WHERE key_id = ${id}`
        } else {
          const working = yield* sql`SELECT FROM api_key_secrets
            WHERE key_id = ${id} AND (expires_at IS NULL OR expires_at > ${DateTime.toDateUtc(now)})`
          if (working.length >= maxWorking) return "too_many"
          yield* sql`UPDATE api_key_secrets SET expires_at = LEAST(expires_at, ${DateTime.toDateUtc(end)})
            WHERE key_id = ${id}`
        }
        yield* sql`UPDATE api_keys SET changed = pg_current_xact_id() WHERE id = ${id}`
        yield* sql`INSERT INTO api_key_secrets (hash, key_id) VALUES (${bytes(hash)}, ${id})`
        return "added"
      })).pipe(Effect.orDie),

    revoke: (id, at) =>
      sql`UPDATE api_keys SET revoked_at = ${DateTime.toDateUtc(at)}, changed = pg_current_xact_id()
        WHERE id = ${id} AND revoked_at IS NULL RETURNING id`.pipe(
        Effect.map((keys) => keys.length > 0),
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
  // Deletes the former secrets of rotated keys after their grace period. The current secret has no end and stays.
  yield* Expiry.deleteExpired({
    table: "api_key_secrets",
    column: "expires_at",
    warning: "Expired secrets of keys cannot be deleted"
  })
  return store
})

interface Row extends Pick<ApiKey, "id" | "name" | "plan"> {
  readonly perMinute: number
  readonly perDay: number
  readonly createdAt: Date
  readonly expiresAt: Date | null
  readonly revokedAt: Date | null
  readonly lastUsedAt: Date | null
}

interface ListedRow extends Row {
  readonly createdAtMicros: bigint
}

/** Makes a page of the first `limit` keys. Any further key shows that there is another page. */
const listed = <A>(
  found: ReadonlyArray<A>,
  limit: number,
  toKey: (one: A) => ApiKey,
  toPosition: (one: A) => KeyPosition
): ListedKeys => {
  const page = found.slice(0, limit)
  const last = page.at(-1)
  const keys = page.map(toKey)
  return last === undefined || found.length <= limit ? { keys } : { keys, next: toPosition(last) }
}

const toDateTime = (date: Date | null): DateTime.Utc | null => date && DateTime.fromDateUnsafe(date)

const fromRow = (row: Row): ApiKey => ({
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

const compare = (a: KeyPosition, b: KeyPosition): number =>
  a.createdAtMicros === b.createdAtMicros
    ? a.id < b.id ? -1 : a.id > b.id ? 1 : 0
    : a.createdAtMicros < b.createdAtMicros
    ? -1
    : 1

export const memoryStore = Effect.sync((): ApiKeyStore => {
  const keys = new Map<string, ApiKey>()
  const secrets = new Map<string, { readonly keyId: string; readonly expiresAt: DateTime.Utc | null }>()

  const change = (id: string, update: (key: ApiKey) => ApiKey): boolean => {
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
        const found = [...keys.values()].toSorted((a, b) => compare(positionOf(a), positionOf(b)))
          .filter((key) => after === undefined || compare(positionOf(key), after) > 0)
        return listed(found, limit, (key) => key, positionOf)
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
        const others = [...secrets].filter(([, { keyId }]) => keyId === id)
        const isWorking = ([, { expiresAt }]: (typeof others)[number]): boolean =>
          expiresAt === null || DateTime.isGreaterThan(expiresAt, now)
        if (keys.get(id)?.revokedAt !== null) return "revoked"
        if (end !== undefined && others.filter(isWorking).length >= maxWorking) return "too_many"
        for (const [other, { expiresAt }] of others) {
          if (end === undefined) secrets.delete(other)
          else secrets.set(other, { keyId: id, expiresAt: expiresAt ? DateTime.min(expiresAt, end) : end })
        }
        secrets.set(hash, { keyId: id, expiresAt: null })
        return "added"
      }),
    revoke: (id, revokedAt) => Effect.sync(() => change(id, (key) => ({ ...key, revokedAt }))),
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
