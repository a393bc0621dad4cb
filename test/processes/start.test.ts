/** Tests starts of processes: concurrent, before the database, and on the schema of a later version. */
import { PgClient } from "@effect/sql-pg"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Layer, Redacted } from "effect"
import * as Database from "../../src/database/Database.ts"
import { issueKey, temporaryDatabaseUrl } from "../support/Harness.ts"
import * as Load from "../support/Load.ts"
import * as Postgres from "../support/Postgres.ts"
import { start, until } from "../support/Process.ts"
import * as Proxy from "../support/Proxy.ts"

const client = (url: string) => PgClient.layer({ url: Redacted.make(url) })

describe.skipIf(process.env.TEST_DATABASE_URL === undefined)("Processes on PostgreSQL", () => {
  it.live(
    "start concurrently on an empty database, run the migration once, and print no key",
    () =>
      Effect.gen(function*() {
        const DATABASE_URL = yield* temporaryDatabaseUrl
        const services = yield* Effect.replicateEffect(start({ DATABASE_URL }), 3, { concurrency: "unbounded" })
        for (const { address, process, stdout, exit } of services) {
          assert.strictEqual((yield* Load.request(address, "none", "/v1/pets")).status, 401)
          process.kill("SIGTERM")
          assert.strictEqual(yield* Effect.promise(() => exit), 0)
          assert.strictEqual(stdout(), "")
        }
        const applied = yield* Effect.provide(
          Effect.flatMap(
            PgClient.PgClient,
            (sql) => sql<{ id: number }>`SELECT migration_id AS id FROM petstore_migrations ORDER BY 1`
          ),
          client(DATABASE_URL)
        )
        assert.deepStrictEqual(applied.map(({ id }) => id), [1])
      })
  )

  it.live("reject a database of a later version", () =>
    Effect.gen(function*() {
      const DATABASE_URL = yield* temporaryDatabaseUrl
      yield* Effect.flatMap(PgClient.PgClient, (sql) =>
        sql`INSERT INTO petstore_migrations (migration_id, name) VALUES (2, 'later')`).pipe(
          Effect.provide(Database.migrate.pipe(Layer.provideMerge(client(DATABASE_URL))))
        )
      const { code, stderr } = yield* Effect.flip(start({ DATABASE_URL }))
      assert.strictEqual(code, 1)
      assert.include(stderr, `The database has schema version 2`)
      assert.lengthOf(stderr.trim().split("\n"), 1)
    }))
})

describe.skipIf(Postgres.missing !== undefined)("A process whose database is not available yet", () => {
  it.live("waits for it, and then serves requests", () =>
    Effect.gen(function*() {
      const postgres = yield* Postgres.run()
      const proxy = yield* Proxy.run(postgres.port)
      proxy.setFault("refusing")
      const starting = yield* Effect.forkChild(
        start({ DATABASE_URL: postgres.url.replace(/\d+(?=\/)/, `${proxy.port}`) })
      )
      yield* until(() => proxy.refused() > 0)
      proxy.setFault(undefined)
      const service = yield* Fiber.join(starting)
      assert.include(service.stderr(), "Waiting for the database")
      assert.strictEqual((yield* Load.request(service.address, "none", "/v1/pets")).status, 401)
    }))

  it.live("waits for a standby until it is promoted, and logs one line", () =>
    Effect.gen(function*() {
      const primary = yield* Postgres.run()
      const standby = yield* Postgres.run({}, primary.port)
      const starting = yield* Effect.forkChild(start({ DATABASE_URL: standby.url }))
      yield* standby.admin((sql) =>
        Effect.repeat(sql`SELECT FROM pg_stat_activity WHERE application_name = 'petstore'`, {
          until: (sessions) => sessions.length > 0
        })
      )
      yield* Effect.sleep("100 millis")
      yield* standby.promote
      const service = yield* Fiber.join(starting)
      assert.deepStrictEqual(service.stderr().match(/Waiting for the database[^"]*recovery/g)?.length, 1)
    }))
})

describe.skipIf(process.env.TEST_DATABASE_URL === undefined)("A process with DATABASE_MAX_CONNECTIONS", () => {
  it.live("opens so many connections under load, and no more", () =>
    Effect.gen(function*() {
      const url = yield* temporaryDatabaseUrl
      const key = yield* issueKey(client(url))
      const service = yield* start({ DATABASE_URL: url, DATABASE_MAX_CONNECTIONS: "3" })
      const load = yield* Load.run({ address: () => service.address, key, callers: 32 })
      const count = Effect.gen(function*() {
        const sql = yield* PgClient.PgClient
        const [row] = yield* sql<{ readonly connections: number }>`
          SELECT count(*)::int AS connections FROM pg_stat_activity
          WHERE datname = current_database() AND pid <> pg_backend_pid()`
        return row?.connections ?? 0
      })
      const counts = yield* Effect.replicateEffect(count, 100).pipe(Effect.provide(client(url)))
      yield* load.stop
      assert.strictEqual(Math.max(...counts), 3)
    }))
})
