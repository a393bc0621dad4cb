import { PgClient } from "@effect/sql-pg"
import { assert, it } from "@effect/vitest"
import { Clock, ConfigProvider, Effect, Layer, Redacted } from "effect"
import { PrometheusMetrics } from "effect/observability"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import * as SqlApiKeys from "../../src/api-keys/SqlApiKeys.ts"
import * as Expiry from "../../src/database/Expiry.ts"
import * as SqlPetRepository from "../../src/pets/SqlPetRepository.ts"
import * as PersistentRateLimiter from "../../src/rate-limit/PersistentRateLimiter.ts"
import { clientOn, databases, describeOnEach, noDatabase, random } from "../support/Databases.ts"
import { untilTrue } from "../support/Process.ts"

it.effect("A deletion of expired rows that fails is counted by its task", () =>
  Effect.gen(function*() {
    yield* Expiry.deleteExpired({ table: "none", column: "at" })
    const series = `petstore_background_failures_total{task="delete_none"} 1\n`
    yield* untilTrue(Effect.map(PrometheusMetrics.format(), (text) => text.includes(series)), series)
  }).pipe(Effect.provide(noDatabase)))

const day = 86_400

/** Tables, how long a row is kept in seconds, and the values of a `row` with a time `at`. */
const rows: ReadonlyArray<readonly [table: string, keptFor: number, values: string]> = [
  ["idempotency_keys", 0, "(owner, key, expires_at, request, pet_id) SELECT 'a', row, at, '', 1"],
  ["rate_limits", 0, "(caller, state, ends_at) SELECT row, '{}', at"],
  ["audit_log", 30 * day, "(key_id, at, action) SELECT row, at, 'issue'"],
  ["key_usage", 3_600, "(key_id, starts_at, seconds, allowed, rejected, banned) SELECT row, at, 60, 1, 0, 0"],
  ["key_usage", 20 * day, "(key_id, starts_at, seconds, allowed, rejected, banned) SELECT row, at, 3600, 1, 0, 0"],
  ["api_key_secrets", 400 * day, "(hash, expires_at, key_id) SELECT row::bytea, at, 'key_a'"]
]

const env = { AUDIT_RETENTION_DAYS: "30", USAGE_RETENTION_DAYS: "20" }
const services = Layer.mergeAll(SqlPetRepository.layer, SqlApiKeys.layer, PersistentRateLimiter.layer).pipe(
  Layer.provide([random, ConfigProvider.layer(ConfigProvider.fromUnknown(env))])
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
      yield* sql`CREATE TABLE expiring (expires_at timestamptz NOT NULL)`
      yield* sql`INSERT INTO expiring SELECT now() + make_interval(hours => n) FROM generate_series(-9, 9) AS n`
      const deleteExpired = Expiry.deleteExpired({ table: "expiring", column: "expires_at" }).pipe(
        Effect.provideService(Clock.Clock, clockAhead),
        Effect.andThen(untilTrue(Effect.map(remaining, (count) => count < 19), "rows are deleted")),
        Effect.scoped,
        Effect.provide(Layer.fresh(clientOn(Redacted.value(sql.config.url ?? assert.fail()))))
      )
      yield* sql.withTransaction(Effect.andThen(sql`SELECT FROM expiring LIMIT 1 FOR UPDATE`, deleteExpired))
      assert.strictEqual(yield* remaining, 10)
    }))
})
