/** What keys need of a place that keeps them: on SQL and in memory. The rules are ApiKeys.ts's. */
import { DateTime, Effect } from "effect"
import { SqlClient } from "effect/sql"
import type { ApiKey } from "../api/Keys.ts"

/** Who holds a secret, and until when it works. */
export interface Holder {
  readonly key: ApiKey
  readonly secretExpiresAt: DateTime.Utc | null
}

export interface KeyStore {
  insert(key: ApiKey, hash: string): Effect.Effect<void>
  readonly list: Effect.Effect<ReadonlyArray<ApiKey>>
  find(id: string): Effect.Effect<ApiKey | undefined>
  /** Those of `hashes` that somebody holds. */
  findByHashes(hashes: ReadonlyArray<string>): Effect.Effect<ReadonlyMap<string, Holder>>
  /** Adds a secret to a key that is not revoked; its others end at `end`, or now. Whether there was such a key. */
  addSecret(id: string, hash: string, end: DateTime.Utc | undefined): Effect.Effect<boolean>
  /** Whether there was such a key, not yet revoked. */
  revoke(id: string, at: DateTime.Utc): Effect.Effect<boolean>
  /** Keeps the later of what is known and `uses`: an instant in milliseconds for each key id. */
  recordUses(uses: ReadonlyMap<string, number>): Effect.Effect<void>
}

const bytes = (hash: string) => Buffer.from(hash, "hex")

export const sqlStore = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  const columns = sql.literal(
    `k.id, k.name, k.plan, k.per_minute AS "perMinute", k.per_day AS "perDay", k.created_at AS "createdAt",
     k.expires_at AS "expiresAt", k.revoked_at AS "revokedAt", k.last_used_at AS "lastUsedAt"`
  )
  const store: KeyStore = {
    insert: (key, hash) =>
      sql.withTransaction(Effect.gen(function*() {
        yield* sql`INSERT INTO api_keys (id, name, plan, per_minute, per_day, created_at, expires_at)
          VALUES (${key.id}, ${key.name}, ${key.plan}, ${key.limits.perMinute}, ${key.limits.perDay},
            ${DateTime.toDateUtc(key.createdAt)}, ${key.expiresAt && DateTime.toDateUtc(key.expiresAt)})`
        yield* sql`INSERT INTO api_key_secrets (hash, key_id) VALUES (${bytes(hash)}, ${key.id})`
      })).pipe(Effect.orDie),

    list: sql<Row>`SELECT ${columns} FROM api_keys k ORDER BY k.created_at, k.id`.pipe(
      Effect.map((rows) => rows.map(fromRow)),
      Effect.orDie
    ),

    find: (id) =>
      sql<Row>`SELECT ${columns} FROM api_keys k WHERE k.id = ${id}`.pipe(
        Effect.map(([row]) => row && fromRow(row)),
        Effect.orDie
      ),

    findByHashes: (hashes) =>
      sql<Row & { readonly hash: string; readonly secretExpiresAt: Date | null }>`
        SELECT ${columns}, encode(s.hash, 'hex') AS hash, s.expires_at AS "secretExpiresAt"
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

    addSecret: (id, hash, end) =>
      sql.withTransaction(Effect.gen(function*() {
        const keys = yield* sql`UPDATE api_keys SET changed = pg_current_xact_id()
          WHERE id = ${id} AND revoked_at IS NULL RETURNING id`
        if (keys.length === 0) return false
        yield* end === undefined
          ? sql`DELETE FROM api_key_secrets WHERE key_id = ${id}`
          : sql`UPDATE api_key_secrets SET expires_at = LEAST(expires_at, ${DateTime.toDateUtc(end)})
            WHERE key_id = ${id}`
        yield* sql`INSERT INTO api_key_secrets (hash, key_id) VALUES (${bytes(hash)}, ${id})`
        return true
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

export const memoryStore = Effect.sync((): KeyStore => {
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
    list: Effect.sync(() => [...keys.values()]),
    find: (id) => Effect.sync(() => keys.get(id)),
    findByHashes: (hashes) =>
      Effect.sync(() =>
        new Map(hashes.flatMap((hash) => {
          const secret = secrets.get(hash)
          const key = secret && keys.get(secret.keyId)
          return key === undefined ? [] : [[hash, { key, secretExpiresAt: secret?.expiresAt ?? null }] as const]
        }))
      ),
    addSecret: (id, hash, end) =>
      Effect.sync(() => {
        if (!change(id, (key) => key)) return false
        for (const [other, { expiresAt, keyId }] of secrets) {
          if (keyId !== id) continue
          if (end === undefined) secrets.delete(other)
          else secrets.set(other, { keyId, expiresAt: expiresAt ? DateTime.min(expiresAt, end) : end })
        }
        secrets.set(hash, { keyId: id, expiresAt: null })
        return true
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
