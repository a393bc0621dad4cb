/** Tests starts of processes: concurrent, before the database, and on the schema of a later version. */
import { PgClient } from "@effect/sql-pg"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { clientOn, temporaryDatabaseUrl } from "../support/Harness.ts"
import * as Load from "../support/Load.ts"
import * as Postgres from "../support/Postgres.ts"
import { issue, send, start, stop, until } from "../support/Process.ts"
import * as Proxy from "../support/Proxy.ts"

const query = <A, E>(url: string, use: (sql: PgClient.PgClient) => Effect.Effect<A, E>) =>
  Effect.provide(Effect.flatMap(PgClient.PgClient, use), clientOn(url))

describe.skipIf(process.env.TEST_DATABASE_URL === undefined)("Processes on PostgreSQL", () => {
  it.live("start concurrently on an empty database, migrate it once, and reject it after a later migration", () =>
    Effect.gen(function*() {
      const DATABASE_URL = yield* temporaryDatabaseUrl
      const services = yield* Effect.replicateEffect(start({ DATABASE_URL }), 3, { concurrency: "unbounded" })
      for (const service of services) {
        assert.strictEqual((yield* send(`${service.address}/v1/pets`, "none")).status, 401)
        assert.strictEqual(yield* stop(service, "SIGTERM"), 0)
        assert.strictEqual(service.stdout(), "", "no key is printed")
      }
      const applied = yield* query(
        DATABASE_URL,
        (sql) => sql<{ id: number }>`SELECT migration_id AS id FROM petstore_migrations ORDER BY 1`
      )
      assert.deepStrictEqual(applied.map(({ id }) => id), [1])

      yield* query(DATABASE_URL, (sql) => sql`INSERT INTO petstore_migrations (migration_id, name) VALUES (2, 'later')`)
      const { code, stderr } = yield* Effect.flip(start({ DATABASE_URL }))
      assert.strictEqual(code, 1)
      assert.include(stderr, `The database has schema version 2`)
      assert.lengthOf(stderr.trim().split("\n"), 1)
    }))

  it.live("open DATABASE_MAX_CONNECTIONS connections under load, and no more", () =>
    Effect.gen(function*() {
      const DATABASE_URL = yield* temporaryDatabaseUrl
      const service = yield* start({ DATABASE_URL, DATABASE_MAX_CONNECTIONS: "3" })
      const { key } = yield* issue(service)
      const load = yield* Load.run({ address: () => service.address, key, callers: 32 })
      const counts = yield* query(DATABASE_URL, (sql) =>
        Effect.replicateEffect(
          sql<{ readonly connections: number }>`
            SELECT count(*)::int AS connections FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid()`,
          100
        ))
      yield* load.stop
      assert.strictEqual(Math.max(...counts.flat().map(({ connections }) => connections)), 3)
    }))
})

describe.skipIf(Postgres.missing !== undefined)("A process whose database is not available yet", () => {
  it.live("waits until it is reachable and promoted, logs one line, and then serves requests", () =>
    Effect.gen(function*() {
      const primary = yield* Postgres.run()
      const standby = yield* Postgres.run({}, primary.port)
      const proxy = yield* Proxy.run(standby.port)
      proxy.setFault("refusing")
      const url = standby.url.replace(`${standby.port}`, `${proxy.port}`)
      const starting = yield* Effect.forkChild(start({ DATABASE_URL: url }))
      yield* until(() => proxy.refused() > 0)
      proxy.setFault(undefined)
      yield* standby.admin((sql) =>
        Effect.repeat(
          sql`SELECT FROM pg_stat_activity WHERE application_name = 'petstore' AND query LIKE '%pg_is_in_recovery%'`,
          { until: (sessions) => sessions.length > 0 }
        )
      )
      yield* standby.promote
      const { address, stderr } = yield* Fiber.join(starting)
      assert.lengthOf(stderr().match(/Waiting for the database[^"]*/g) ?? [], 1)
      assert.strictEqual((yield* send(`${address}/v1/pets`, "none")).status, 401)
    }))
})
