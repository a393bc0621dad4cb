import { PgClient } from "@effect/sql-pg"
import { assert, it } from "@effect/vitest"
import { Clock, ConfigProvider, Context, Effect, Layer, Redacted } from "effect"
import { PrometheusMetrics } from "effect/observability"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { savedStatesOptions } from "../../src/config/RoomOptions.ts"
import * as Expiry from "../../src/database/Expiry.ts"
import * as SavedStates from "../../src/rate-limit/SavedStates.ts"
import { StateLookups } from "../../src/rate-limit/StateLookups.ts"
import { clientOn, databases, describeOnEach, noDatabase, random, sqlApiKeys, sqlStores } from "../support/Databases.ts"
import { untilTrue } from "../support/Process.ts"

it.effect("A deletion of expired rows that fails is counted by its task", () =>
  Effect.gen(function*() {
    yield* Expiry.deleteExpired({ table: "none", key: ["id"], column: "at" })
    const series = `petstore_background_failures_total{task="delete_none"} 1\n`
    yield* untilTrue(Effect.map(PrometheusMetrics.format(), (text) => text.includes(series)), series)
  }).pipe(Effect.provide(noDatabase)))

const day = 86_400

/** Tables, how long a row is kept in seconds, and the values of a `row` with a time `at`. */
const rows: ReadonlyArray<readonly [table: string, keptFor: number, values: string]> = [
  ["idempotency_keys", 0, "(owner, key, expires_at, request, pet_id) SELECT 'a', row, at, '', 1"],
  ["rate_limits", 0, "(caller, state, ends_at) SELECT row, '{}', at"],
  ["key_limits", 0, "(key_id, process, seq, saved_at, state, ends_at) SELECT row, 1, 1, now(), '{}', at"],
  ["audit_log", 30 * day, "(key_id, at, action) SELECT row, at, 'issue'"],
  ["key_usage", 3_600, "(key_id, starts_at, seconds, allowed, rejected, banned) SELECT row, at, 60, 1, 0, 0"],
  ["key_usage", 20 * day, "(key_id, starts_at, seconds, allowed, rejected, banned) SELECT row, at, 3600, 1, 0, 0"],
  [
    "key_usage_totals",
    20 * day,
    "(key_id, starts_at, seconds, allowed, rejected, banned) SELECT row, at, 3600, 1, 0, 0"
  ],
  [
    "key_usage_totals",
    2 * day,
    "(key_id, starts_at, seconds, allowed, rejected, banned) SELECT row, at, 86400, 1, 0, 0"
  ],
  ["key_usage_minutes", 2 * 3_600, "SELECT row, at, gen_random_uuid(), 0, true, '{a}', '{1}', '{0}', '{0}'"],
  ["api_key_secrets", 400 * day, "(hash, expires_at, key_id) SELECT row::bytea, at, 'key_a'"]
]

const env = { AUDIT_RETENTION_DAYS: "30", USAGE_RETENTION_DAYS: "20" }
const services = Layer.mergeAll(sqlStores, sqlApiKeys, SavedStates.layer(savedStatesOptions)).pipe(
  Layer.provide([random, StateLookups.layer, ConfigProvider.layer(ConfigProvider.fromUnknown(env))])
)
const stores = databases.map((database) => ({ ...database, layer: Layer.provideMerge(services, database.layer) }))

/** A clock that is two hours ahead. */
const clockAhead: Clock.Clock = Object.assign(Object.create(Clock.Clock.defaultValue()), {
  currentTimeMillis: Effect.sync(() => Date.now() + 2 * 3_600_000)
})

describeOnEach(stores, "Expired rows", (it, database) => {
  it.effect.each(rows)("of %s are deleted %d seconds after their time, and no others", (row) =>
    Effect.gen(function*() {
      const [table, keptFor, values] = row
      const sql = yield* SqlClient.SqlClient
      yield* sql`INSERT INTO api_keys (id, name, plan, per_minute, per_day, created_at)
        VALUES ('key_a', 'a', 'free', 1, 1, now()) ON CONFLICT DO NOTHING`
      const expired = (yield* Clock.currentTimeMillis) / 1_000 + 600 - keptFor
      yield* sql.unsafe(`INSERT INTO ${table} ${values} FROM (VALUES ('expired', to_timestamp(${expired})),
        ('kept', to_timestamp(${expired + 1}))) AS t (row, at)`)
      const remaining = Effect.map(sql`SELECT FROM ${sql(table)}`, ({ length }) => length)
      assert.strictEqual(yield* remaining, 2)
      yield* TestClock.adjust("10 minutes")
      // The statement takes real time, while the test clock stands still.
      yield* untilTrue(Effect.map(remaining, (count) => count < 2), "a row is deleted")
      assert.strictEqual(yield* remaining, 1)
      yield* sql`DELETE FROM ${sql(table)}`
    }))

  if (database === "PGlite") return

  it.effect("are deleted by the server's clock, and stay, without a wait, if a transaction has locked them", () =>
    Effect.gen(function*() {
      const sql = yield* PgClient.PgClient
      const remaining = Effect.map(sql`SELECT FROM expiring`, ({ length }) => length)
      yield* sql`CREATE TABLE expiring (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, expires_at timestamptz NOT NULL)`
      yield* sql`INSERT INTO expiring (expires_at) SELECT now() + make_interval(hours => n) FROM generate_series(-9, 9) AS n`
      const deleteExpired = Expiry.deleteExpired({ table: "expiring", key: ["id"], column: "expires_at" }).pipe(
        Effect.provideService(Clock.Clock, clockAhead),
        Effect.andThen(untilTrue(Effect.map(remaining, (count) => count < 19), "rows are deleted")),
        Effect.scoped,
        Effect.provide(Layer.fresh(clientOn(Redacted.value(sql.config.url ?? assert.fail()))))
      )
      yield* sql.withTransaction(Effect.andThen(sql`SELECT FROM expiring LIMIT 1 FOR UPDATE`, deleteExpired))
      assert.strictEqual(yield* remaining, 10)
    }))

  it.effect("are the only ones that are deleted from a partitioned table", () =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      const remaining = Effect.map(sql`SELECT FROM parted`, ({ length }) => length)
      yield* sql`CREATE TABLE parted (id bigint PRIMARY KEY, expires_at timestamptz NOT NULL) PARTITION BY HASH (id)`
      for (const part of [0, 1, 2]) {
        yield* sql.unsafe(
          `CREATE TABLE parted_${part} PARTITION OF parted FOR VALUES WITH (MODULUS 3, REMAINDER ${part})`
        )
      }
      yield* sql`INSERT INTO parted SELECT n, now() + make_interval(hours => CASE WHEN n % 3 = 0 THEN -9 ELSE 9 END)
        FROM generate_series(1, 9000) AS n`
      yield* Expiry.deleteExpired({ table: "parted", key: ["id"], column: "expires_at" }).pipe(
        Effect.provideService(Clock.Clock, clockAhead),
        Effect.andThen(untilTrue(Effect.map(remaining, (count) => count < 9_000), "rows are deleted")),
        Effect.scoped
      )
      assert.strictEqual(yield* remaining, 6_000)
    }))

  it.effect("are deleted at a cost that does not grow with the deleted rows that an open snapshot keeps", () =>
    Effect.gen(function*() {
      const sql = yield* PgClient.PgClient
      const other = clientOn(Redacted.value(sql.config.url ?? assert.fail()))
      yield* sql`CREATE TABLE kept (id bigint PRIMARY KEY, expires_at timestamptz NOT NULL)`
      yield* sql`CREATE INDEX ON kept (expires_at)`
      yield* sql`INSERT INTO kept SELECT n, now() - make_interval(secs => 200000 - n) FROM generate_series(1, 100000) AS n
        ORDER BY hashint8(n)`
      yield* sql`ANALYZE kept`
      /** The pages that were read of the table and its indexes, once PostgreSQL has counted all deletions. */
      const pages = Effect.map(
        sql<{ readonly pages: number }>`
          SELECT (heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read)::float8 AS pages
          FROM pg_statio_user_tables JOIN pg_stat_user_tables USING (relid)
          WHERE relid = 'kept'::regclass AND n_tup_del = 100000`,
        ([row]) => row?.pages
      )
      yield* Effect.scoped(Effect.gen(function*() {
        const snapshot = yield* Layer.build(Layer.fresh(other))
        const reader = Context.get(snapshot, PgClient.PgClient)
        const connection = yield* reader.reserve
        yield* connection.executeUnprepared("BEGIN ISOLATION LEVEL REPEATABLE READ", [], undefined)
        yield* connection.executeUnprepared("SELECT count(*) FROM kept", [], undefined)
        yield* Expiry.deleteExpired({ table: "kept", key: ["id"], column: "expires_at" }).pipe(
          Effect.provideService(Clock.Clock, Clock.Clock.defaultValue()),
          // A look at the table itself would count as reads of it.
          Effect.andThen(untilTrue(Effect.map(pages, (read) => read !== undefined), "all deletions are counted", 45)),
          Effect.scoped
        )
        // 13 pages a row. If each of the 20 batches also read the rows that were deleted before it, 24 pages.
        assert.isBelow((yield* pages) ?? Infinity, 1_700_000)
      }))
    }))
})
