import { PgClient } from "@effect/sql-pg"
import { assert, describe, it } from "@effect/vitest"
import { Clock, Effect, Layer, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import * as EmbeddedDatabase from "../../src/database/EmbeddedDatabase.ts"
import * as Expiry from "../../src/database/Expiry.ts"
import { dataDirectory, temporaryDatabaseUrl } from "../support/Harness.ts"
import * as SteppedClock from "../support/SteppedClock.ts"

const client = (url: string) => Layer.fresh(PgClient.layer({ url: Redacted.make(url), multiplex: true }))

const deleteExpired = Expiry.deleteExpired({
  table: "expiring",
  column: "expires_at",
  warning: "Expired rows cannot be deleted"
})

const count = Effect.flatMap(
  SqlClient.SqlClient,
  (sql) => sql<{ readonly count: number }>`SELECT count(*)::integer AS count FROM expiring`
).pipe(
  Effect.map(([row]) => row?.count)
)

const fill = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  yield* sql`CREATE TABLE expiring (expires_at timestamptz NOT NULL)`
  yield* sql`INSERT INTO expiring SELECT now() - interval '1 hour' FROM generate_series(1, 100)`
  yield* sql`INSERT INTO expiring SELECT now() + interval '1 hour' FROM generate_series(1, 10)`
})

/** Waits until 10 rows are left, and returns their number. */
const untilDeleted = Effect.repeat(count, { until: (count) => count === 10, times: 5_000 })

describe.skipIf(process.env.TEST_DATABASE_URL === undefined)("Expired rows on PostgreSQL", () => {
  it.live("are deleted by one process at a time, and other processes do not wait for it", () =>
    Effect.gen(function*() {
      const url = yield* temporaryDatabaseUrl
      yield* Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        yield* fill
        yield* sql`CREATE TABLE deletions (pid integer)`
        // Deleting all rows takes one second.
        yield* sql`
          CREATE FUNCTION record_deletion() RETURNS trigger LANGUAGE plpgsql AS $$
          BEGIN
            PERFORM pg_sleep(0.01);
            INSERT INTO deletions VALUES (pg_backend_pid());
            RETURN OLD;
          END $$`
        yield* sql`
          CREATE TRIGGER record_deletion BEFORE DELETE ON expiring FOR EACH ROW EXECUTE FUNCTION record_deletion()`
        const runOnce = Effect.andThen(deleteExpired, untilDeleted).pipe(Effect.scoped, Effect.provide(client(url)))
        let waits = 0
        const watch = Effect.forever(Effect.gen(function*() {
          const waiting = yield* sql`
            SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`
          waits += waiting.length
          yield* Effect.sleep("20 millis")
        }))
        yield* Effect.raceFirst(Effect.replicateEffect(runOnce, 3, { concurrency: 3 }), watch)
        assert.strictEqual(waits, 0)
        assert.lengthOf(yield* sql`SELECT pid FROM deletions GROUP BY pid`, 1)
        assert.lengthOf(yield* sql`SELECT FROM deletions`, 100)
      }).pipe(Effect.provide(client(url)))
    }), 60_000)
})

describe.skipIf(process.env.TEST_DATABASE_URL === undefined)(
  "An expired row that another transaction has locked",
  () => {
    it.live("stays, and the others are deleted without waiting for it", () =>
      Effect.gen(function*() {
        const url = yield* temporaryDatabaseUrl
        yield* Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          yield* fill
          yield* sql.withTransaction(Effect.gen(function*() {
            yield* sql`SELECT FROM expiring LIMIT 1 FOR UPDATE`
            yield* deleteExpired.pipe(
              Effect.andThen(Effect.repeat(count, { until: (many) => many === 11 })),
              Effect.timeout("3 seconds"),
              Effect.provide(client(url))
            )
          }))
          assert.strictEqual(yield* count, 11)
        }).pipe(Effect.scoped, Effect.provide(client(url)))
      }))
  }
)

describe("Expired rows on the embedded database", () => {
  it.live("are deleted, and the other rows stay", () =>
    Effect.gen(function*() {
      const directory = yield* dataDirectory
      yield* Effect.gen(function*() {
        yield* fill
        yield* deleteExpired
        assert.strictEqual(yield* untilDeleted, 10)
      }).pipe(Effect.scoped, Effect.provide(EmbeddedDatabase.layer(directory)))
    }), 60_000)
})

describe.skipIf(process.env.TEST_DATABASE_URL === undefined)("A process whose clock is two hours ahead", () => {
  it.live("deletes only rows that are expired by the server's clock", () =>
    Effect.gen(function*() {
      const url = yield* temporaryDatabaseUrl
      yield* Effect.gen(function*() {
        yield* fill
        const { clock, step } = SteppedClock.make(yield* Clock.Clock)
        step(2 * 3_600_000)
        yield* Effect.provideService(deleteExpired, Clock.Clock, clock)
        assert.strictEqual(yield* untilDeleted, 10)
        yield* Effect.sleep("200 millis")
        assert.strictEqual(yield* count, 10)
      }).pipe(Effect.scoped, Effect.provide(client(url)))
    }))
})
