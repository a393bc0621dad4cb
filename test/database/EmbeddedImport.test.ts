import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer, Logger } from "effect"
import type { SqlClient } from "effect/sql"
import { newestVersion } from "../../src/database/Database.ts"
import * as DirectoryLock from "../../src/database/DirectoryLock.ts"
import { runCommand } from "../support/CommandRun.ts"
import { databaseAt, dataDirectory, queryIn, temporaryDatabaseUrl } from "../support/Databases.ts"
import * as Postgres from "../support/Postgres.ts"
import { untilTrue } from "../support/Process.ts"
import { temporaryDirectory } from "../support/Temporary.ts"

const importWith = (DATA_DIR: string, DATABASE_URL = "") => runCommand({ DATA_DIR, DATABASE_URL }, ["import"])

/** Rows whose values a copy could change: large integers, escaped text, bytes, microseconds, JSON and nulls. */
const rows = [
  `INSERT INTO pets (name, category_id, status)
    SELECT E'\\u0001"\\\\ \\U0001F415 ' || i, 9223372036854775807 - i, NULLIF('sold', repeat('sold', i % 2))
    FROM generate_series(1, 4500) AS i`,
  `DELETE FROM pets WHERE id % 7 = 0 OR id > 4490`,
  `INSERT INTO api_keys (id, name, plan, per_minute, per_day, created_at, expires_at, revoked_at, enabled)
    VALUES ('key_a', 'a', 'free', 60, 1000, '2026-01-02 03:04:05.678Z', 'infinity', NULL, false)`,
  `INSERT INTO api_key_secrets VALUES ('\\x00ff5c22', 'key_a', now(), true, NULL), ('\\x01', 'key_a', NULL, false, now())`,
  `INSERT INTO idempotency_keys VALUES ('key_a', 'k"\\', '\\xdeadbeef', 9223372036854775807, now())`,
  `INSERT INTO rate_limits VALUES ('key:key_a', '{"n": 1.50, "big": 12345678901234567890}', now())`,
  `INSERT INTO key_limits VALUES ('key_a', -9007199254740991, 3, now(), now(), '{"day":{"used":1,"resetAt":2}}')`,
  `INSERT INTO audit_log (at, action, key_id, before) VALUES (now(), 'issue', 'key_a', '{"name": "\\u00e9"}')`,
  `INSERT INTO key_usage VALUES ('key_a', 60, now(), 9223372036854775807, 2, 3)`,
  `INSERT INTO key_usage_minutes
    VALUES ('_a', now(), '0a5d4c1e-0000-4000-8000-00000000ffff', 7, false, '{key_a,"k\\"ey"}', '{1,2}', '{0,0}', '{0,3}')`,
  `INSERT INTO key_usage_totals VALUES (3600, now(), 'key_a', 9223372036854775807, 2, 3)`
]

/** The content of each table as PostgreSQL prints it, and the next value of each sequence. */
const contentOf = Effect.fnUntraced(function*(sql: SqlClient.SqlClient) {
  yield* sql`SET TIME ZONE 'UTC'`
  const tables = yield* sql<{ readonly name: string }>`
    SELECT tablename AS name FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'petstore_migrations' ORDER BY 1`
  const contents = yield* Effect.forEach(tables, ({ name }) =>
    sql`
    SELECT ${name} AS name, count(*) AS rows, md5(string_agg(t::text, ' ' ORDER BY t::text COLLATE "C")) AS hash
    FROM ${sql(name)} AS t`)
  return [contents, yield* sql`SELECT sequencename, last_value FROM pg_sequences ORDER BY 1`]
})

describe.skipIf(process.env.TEST_DATABASE_URL === undefined)("petstore import", () => {
  it.live("copies every table and sequence, and leaves the rows of the directory as they were", () =>
    Effect.gen(function*() {
      const [directory, url] = [yield* dataDirectory, yield* temporaryDatabaseUrl]
      const [query, queryEmbedded] = [Postgres.queryOn(url), queryIn(directory)]
      const before = yield* queryEmbedded((sql) =>
        Effect.andThen(Effect.forEach(rows, (statement) => sql.unsafe(statement)), contentOf(sql))
      )
      const result = yield* importWith(directory, url)
      const counts =
        "3849 pets, 1 idempotency_keys, 1 api_keys, 2 api_key_secrets, 1 rate_limits, 1 audit_log, 1 key_usage, " +
        "1 key_usage_minutes, 1 key_usage_totals, 1 key_limits"
      assert.deepStrictEqual([result.stdout, result.code], [`Imported ${counts}.\n`, 0], result.stderr)
      assert.match(result.stderr, /^pets: copied 3849 of 3849, \d+ a second$/m)
      assert.deepStrictEqual(yield* query(contentOf), before)
      assert.deepStrictEqual(yield* queryEmbedded(contentOf), before)

      const again = yield* importWith(directory, url)
      const found = `DATABASE_URL: the database is not empty: ${counts}. Drop and create it again.`
      assert.deepStrictEqual(again, { code: 1, stdout: "", stderr: `${found}\n` })

      yield* query((sql) =>
        sql`TRUNCATE pets, idempotency_keys, api_keys, rate_limits, audit_log, key_usage, key_usage_minutes,
          key_usage_totals, key_limits CASCADE`
      )
      yield* query((sql) => sql`CREATE RULE lose AS ON INSERT TO audit_log DO INSTEAD NOTHING`)
      const lost = `Nothing was imported: found ${counts.replace("1 audit_log, ", "")} instead of ${counts}.`
      assert.include((yield* importWith(directory, url)).stderr, lost)
      assert.isEmpty(yield* query((sql) => sql`SELECT FROM pets`))

      const older = newestVersion - 1
      for (const [from, to, version] of [[newestVersion, 99, 99], [99, 0, older]] as const) {
        yield* queryEmbedded((sql) =>
          sql`UPDATE petstore_migrations SET migration_id = ${to} WHERE migration_id = ${from}`
        )
        const { stderr } = yield* importWith(directory, url)
        assert.include(stderr, `DATA_DIR: the embedded database has schema version ${version}, but this command copies`)
      }
    }))

  it.live("is suggested by a start on a database without pets and keys", () =>
    Effect.gen(function*() {
      const [DATA_DIR, url, lines] = [yield* dataDirectory, yield* temporaryDatabaseUrl, Array<string>()]
      const logger = Logger.make(({ logLevel, message }) => void lines.push(`${logLevel}: ${String(message)}`))
      const start = Effect.scoped(Layer.build(databaseAt(url, { DATA_DIR }))).pipe(
        Effect.provide(Logger.layer([logger]))
      )
      yield* start
      assert.match(lines.pop() ?? "", /^Warn: The database is empty, but DATA_DIR, ".*", has an .* petstore -- import$/)
      for (
        const row of [
          rows[2],
          "WITH deleted AS (DELETE FROM api_keys) INSERT INTO pets (name, category_id) VALUES ('a', 1)"
        ]
      ) {
        yield* Postgres.queryOn(url)((sql) => sql.unsafe(row ?? ""))
        yield* start
        assert.notInclude(lines.join(), "The database is empty")
      }
    }))

  it.live("fails with one line, and leaves the database empty, if it cannot start", () =>
    Effect.gen(function*() {
      const [empty, url] = [yield* temporaryDirectory, yield* temporaryDatabaseUrl]
      const used = yield* dataDirectory
      yield* DirectoryLock.acquire(used, "DATA_DIR")
      const failures: ReadonlyArray<readonly [directory: string, url: string, error: string, code?: number]> = [
        [used, "", "DATABASE_URL: set it to the URL of an empty PostgreSQL database."],
        [empty, url, `DATA_DIR: "${empty}" has no embedded database.`],
        [used, url, `Another process is using the data directory "${used}".`],
        [used, "postgres://none@127.0.0.1:1/none", "connect ECONNREFUSED 127.0.0.1:1"],
        [used, "mysql://a", "DATABASE_URL: expected postgres://user:password@host/database", 2]
      ]
      for (const [directory, target, error, exitCode = 1] of failures) {
        const { code, stderr, stdout } = yield* importWith(directory, target)
        assert.deepStrictEqual([code, stdout], [exitCode, ""])
        assert.include(stderr, error)
        assert.lengthOf(stderr.trim().split("\n"), 1)
      }
      assert.isEmpty(yield* Postgres.queryOn(url)((sql) => sql`SELECT FROM pg_tables WHERE schemaname = 'public'`))
      // A service on the empty database, of which one connection is enough.
      const queryAsService = Postgres.queryOn(`${url}?application_name=shop`)
      const service = yield* Effect.forkScoped(queryAsService((sql) => Effect.andThen(sql`SELECT 1`, Effect.never)))
      const connected = Postgres.queryOn(url)((sql) =>
        sql`SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'shop'`
      )
      yield* untilTrue(Effect.map(connected, ({ length }) => length > 0), "the service is connected")
      const { stderr } = yield* importWith(used, url)
      assert.include(stderr, "DATABASE_URL: other clients are connected to the database: shop.")
      assert.isUndefined(service.pollUnsafe())
    }))
})
