/** Migrations run while other processes serve requests from the same tables. */
import { PgClient } from "@effect/sql-pg"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Layer, Logger, Redacted, References } from "effect"
import { Migrator, SqlClient } from "effect/sql"
import * as ConcurrentIndex from "../../src/database/ConcurrentIndex.ts"
import * as EmbeddedDatabase from "../../src/database/EmbeddedDatabase.ts"
import { type Migration, runMigrations } from "../../src/database/MigrationRunner.ts"
import { temporaryDatabaseUrl, temporaryDirectory } from "../support/Harness.ts"

const client = (url: string) => Layer.fresh(PgClient.layer({ url: Redacted.make(url), multiplex: true }))

const statement = (text: string) => Effect.flatMap(SqlClient.SqlClient, (sql) => sql.unsafe(text))

const createTable = { default: statement("CREATE TABLE t (n integer)") }
const fill = { default: statement("INSERT INTO t SELECT generate_series(1, 100000)") }
const addColumn = { default: statement("ALTER TABLE t ADD COLUMN m integer") }
const addIndex: Migration = {
  default: Effect.andThen(statement("INSERT INTO runs VALUES (1)"), ConcurrentIndex.create("t_n", "t (n)")),
  transactional: false
}
const createRuns = { default: statement("CREATE TABLE runs (n integer)") }

const withIndex = { "0001_t": createTable, "0002_fill": fill, "0003_runs": createRuns, "0004_index": addIndex }

const assertIndexed = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  assert.deepStrictEqual(
    yield* sql`SELECT indisvalid AS valid, indisready AS ready FROM pg_index WHERE indexrelid = to_regclass('t_n')`,
    [{ valid: true, ready: true }]
  )
  assert.deepStrictEqual(yield* sql`SELECT migration_id AS id, name FROM petstore_migrations ORDER BY 1`, [
    { id: 1, name: "t" },
    { id: 2, name: "fill" },
    { id: 3, name: "runs" },
    { id: 4, name: "index" }
  ])
})

/** Runs `text` again and again until it is interrupted. Adds the milliseconds that each run took to `durations`. */
const measure = (text: string, durations: Array<number>) =>
  Effect.forever(Effect.gen(function*() {
    const startedAt = performance.now()
    yield* statement(text)
    durations.push(performance.now() - startedAt)
    yield* Effect.sleep("20 millis")
  }))

describe.skipIf(process.env.TEST_DATABASE_URL === undefined)("Migrations on PostgreSQL", () => {
  it.live(
    "do not block other statements while they wait for a lock, and log once which session holds it",
    () =>
      Effect.gen(function*() {
        const url = yield* temporaryDatabaseUrl
        const lines: Array<string> = []
        const logger = Logger.layer([Logger.make(({ message }) => {
          lines.push(String(message))
        })])
        yield* Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          yield* runMigrations({ "0001_t": createTable })
          const [reader] = yield* Effect.all([
            Effect.forkChild(sql.withTransaction(Effect.andThen(
              sql<{ readonly pid: number }>`SELECT pg_backend_pid() AS pid FROM pg_class LEFT JOIN t ON false LIMIT 1`,
              ([row]) => Effect.as(Effect.sleep("8 seconds"), row?.pid)
            ))),
            Effect.sleep("200 millis")
          ])
          const durations: Array<number> = []
          const requests = yield* Effect.forkChild(measure("SELECT count(*) FROM t", durations))
          const migrating = yield* Effect.forkChild(
            runMigrations({ "0001_t": createTable, "0002_column": addColumn }).pipe(
              Effect.provide(Layer.merge(client(url), logger))
            )
          )
          yield* Effect.sleep("7 seconds")
          assert.isUndefined(migrating.pollUnsafe())
          const pid = yield* Fiber.join(reader)
          assert.strictEqual(yield* Fiber.join(migrating), 2)
          yield* Fiber.interrupt(requests)

          assert.isBelow(Math.max(...durations), 2_000)
          assert.isAbove(Math.max(...durations), 500, "the migration waited in front of them")
          assert.isAbove(durations.filter((duration) => duration < 500).length, 50)
          const waiting = lines.filter((line) => line.includes("waits for a lock"))
          assert.lengthOf(waiting, 1)
          assert.include(waiting[0], `The migration 0002_column waits for a lock held by: process ${pid},`)
          yield* sql`SELECT m FROM t`
        }).pipe(Effect.provide(client(url)))
      }),
    60_000
  )

  it.live("build an index in one process only, and do not block writes meanwhile", () =>
    Effect.gen(function*() {
      const url = yield* temporaryDatabaseUrl
      yield* Effect.gen(function*() {
        yield* runMigrations({ "0001_t": createTable, "0002_fill": fill, "0003_runs": createRuns })
        const durations: Array<number> = []
        const writes = yield* Effect.forkChild(measure("INSERT INTO t VALUES (0)", durations))
        const versions = yield* Effect.all(
          Array.from({ length: 4 }, () => Effect.provide(runMigrations(withIndex), client(url))),
          { concurrency: "unbounded" }
        )
        yield* Fiber.interrupt(writes)
        assert.deepStrictEqual(versions, [4, 4, 4, 4])
        yield* assertIndexed
        assert.lengthOf(yield* statement("SELECT FROM runs"), 1)
        assert.isAbove(durations.length, 2)
      }).pipe(Effect.provide(client(url)))
    }), 60_000)

  it.live(
    "rebuild an index that a failed attempt left invalid, even if the default isolation is repeatable read",
    () =>
      Effect.gen(function*() {
        const url = yield* temporaryDatabaseUrl
        yield* Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          yield* runMigrations({ "0001_t": createTable, "0002_fill": fill, "0003_runs": createRuns })
          yield* sql`INSERT INTO t VALUES (1)`
          yield* Effect.flip(sql`CREATE UNIQUE INDEX CONCURRENTLY t_n ON t (n)`)
          assert.deepStrictEqual(
            yield* sql`SELECT indisvalid AS valid FROM pg_index WHERE indexrelid = 't_n'::regclass`,
            [
              { valid: false }
            ]
          )
          const database = new URL(url).pathname.slice(1)
          yield* sql`ALTER DATABASE ${sql(database)} SET default_transaction_isolation = 'repeatable read'`
          assert.strictEqual(yield* Effect.provide(runMigrations(withIndex), client(url)), 4)
          yield* assertIndexed
        }).pipe(Effect.provide(client(url)))
      }),
    60_000
  )

  it.live(
    "without a transaction run again after a failure, and are recorded only after success",
    () =>
      Effect.gen(function*() {
        const url = yield* temporaryDatabaseUrl
        const failing = { ...addIndex, default: Effect.andThen(addIndex.default, Effect.fail("halfway")) }
        yield* Effect.gen(function*() {
          const error = yield* Effect.flip(runMigrations({ ...withIndex, "0004_index": failing }))
          assert.include(error.message, "0004_index")
          assert.deepStrictEqual(yield* statement("SELECT max(migration_id) AS id FROM petstore_migrations"), [{
            id: 3
          }])
          assert.strictEqual(yield* runMigrations(withIndex), 4)
          yield* assertIndexed
          assert.lengthOf(yield* statement("SELECT FROM runs"), 2)
        }).pipe(Effect.provide(client(url)))
      }),
    60_000
  )

  it.live(
    "wait until a process of an earlier version has migrated, and leave it no migration to run",
    () =>
      Effect.gen(function*() {
        const url = yield* temporaryDatabaseUrl
        const earlier = Migrator.make({})({
          table: "petstore_migrations",
          loader: Migrator.fromRecord({
            "0001_t": Effect.asVoid(createTable.default),
            "0002_fill": Effect.asVoid(Effect.andThen(Effect.sleep("2 seconds"), fill.default))
          })
        })
        const running = yield* Effect.forkChild(Effect.provide(earlier, client(url)))
        yield* Effect.sleep("1 second")
        yield* Effect.gen(function*() {
          assert.strictEqual(yield* runMigrations(withIndex), 4)
          assert.lengthOf(yield* Fiber.join(running), 2)
          assert.lengthOf(yield* earlier, 0)
          yield* assertIndexed
          assert.deepStrictEqual(yield* statement("SELECT count(*)::integer AS count FROM t"), [{ count: 100_000 }])
        }).pipe(Effect.provide(client(url)))
      }).pipe(Effect.provideService(References.MinimumLogLevel, "None")),
    60_000
  )

  it.live(
    "take no lock if all of them are recorded, so that a process can start during a backup",
    () =>
      Effect.gen(function*() {
        const url = yield* temporaryDatabaseUrl
        yield* Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          yield* runMigrations({ "0001_t": createTable })
          yield* sql.withTransaction(Effect.gen(function*() {
            yield* sql`LOCK TABLE petstore_migrations IN ACCESS SHARE MODE`
            const version = yield* Effect.provide(runMigrations({ "0001_t": createTable }), client(url))
            assert.strictEqual(version, 1)
          }))
        }).pipe(Effect.provide(client(url)))
      }),
    20_000
  )
})

describe("Migrations on the embedded database", () => {
  it.live("build an index concurrently", () =>
    Effect.gen(function*() {
      const directory = yield* temporaryDirectory
      yield* Effect.gen(function*() {
        assert.strictEqual(yield* runMigrations(withIndex), 4)
        yield* assertIndexed
        const sql = yield* SqlClient.SqlClient
        yield* sql`DELETE FROM petstore_migrations WHERE migration_id = 4`
        yield* sql`UPDATE pg_index SET indisvalid = false WHERE indexrelid = 't_n'::regclass`
        assert.strictEqual(yield* runMigrations(withIndex), 4)
        yield* assertIndexed
      }).pipe(Effect.provide(EmbeddedDatabase.layer(directory)))
    }), 60_000)
})
