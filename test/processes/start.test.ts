/** Tests starts of processes: concurrent, before the database, and on the schema of an earlier or a later version. */
import { PgClient } from "@effect/sql-pg"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Layer, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { execFileSync } from "node:child_process"
import { symlinkSync } from "node:fs"
import { connect, createServer } from "node:net"
import { join } from "node:path"
import * as Database from "../../src/database/Database.ts"
import * as MigrationRunner from "../../src/database/MigrationRunner.ts"
import { issueKey, temporaryDatabaseUrl, temporaryDirectory } from "../support/Harness.ts"
import * as Load from "../support/Load.ts"
import * as Postgres from "../support/Postgres.ts"
import { start } from "../support/Process.ts"

const root = new URL("../..", import.meta.url).pathname

/** The versions of the schema, the earliest first. */
const versions = Object.entries(Database.migrations)

/** The numbers of the versions. */
const numbers = versions.map(([name]) => Number.parseInt(name, 10))

/** A schema version after the newest. */
const later = Math.max(...numbers) + 1

const client = (url: string) => PgClient.layer({ url: Redacted.make(url) })

/** The source before the newest migration was created, if the repository's history is available. */
const previousSource = (() => {
  const [newest = ""] = versions.at(-1) ?? []
  const git = (...args: ReadonlyArray<string>) =>
    execFileSync("git", ["-C", root, ...args], { stdio: ["ignore", "pipe", "ignore"], maxBuffer: 1e9 })
  try {
    // Follows renames to the commit that created the file.
    const commits = git(
      "log",
      "--follow",
      "--diff-filter=A",
      "--format=%H",
      "--",
      `src/database/migrations/${newest}.ts`
    )
    const created = commits.toString().trim().split("\n").at(-1)
    return git("archive", `${created}^`, "src", "package.json")
  } catch {
    return undefined
  }
})()

describe.skipIf(process.env.TEST_DATABASE_URL === undefined)("Processes on PostgreSQL", () => {
  it.live(
    "start concurrently on an empty database, and run each migration once",
    () =>
      Effect.gen(function*() {
        const DATABASE_URL = yield* temporaryDatabaseUrl
        yield* Effect.all(Array.from({ length: 4 }, () => start({ DATABASE_URL })), { concurrency: "unbounded" })
        const applied = yield* Effect.provide(
          Effect.flatMap(
            PgClient.PgClient,
            (sql) => sql<{ id: number }>`SELECT migration_id AS id FROM petstore_migrations ORDER BY 1`
          ),
          client(DATABASE_URL)
        )
        assert.deepStrictEqual(applied.map(({ id }) => id), numbers)
      }),
    30_000
  )

  it.live("wait for a server that is starting up", () =>
    Effect.gen(function*() {
      const url = new URL(yield* temporaryDatabaseUrl)
      const fields = ["SFATAL", "VFATAL", "C57P03", "Mthe database system is starting up", ""].join("\0")
      const rejection = Buffer.concat([Buffer.from("E----"), Buffer.from(`${fields}\0`)])
      rejection.writeUInt32BE(rejection.length - 1, 1)
      const [host, port] = [url.hostname, Number(url.port || 5432)]
      let connections = 0
      const front = createServer((client) => {
        client.on("error", () => client.destroy())
        if (++connections <= 2) {
          // Reply N (no TLS) to SSLRequest, a message of 8 bytes, and reject the startup message that follows.
          client.on("data", (message: Buffer) => {
            if (message.readUInt32BE(0) === 8) client.write("N")
            else client.end(rejection)
          })
          return
        }
        const upstream = connect(port, host)
        upstream.on("error", () => client.destroy())
        client.pipe(upstream)
        upstream.pipe(client)
      })
      yield* Effect.acquireRelease(
        Effect.promise(() => new Promise<void>((resolve) => front.listen(0, "127.0.0.1", resolve))),
        () => Effect.sync(() => front.close())
      )
      const address = front.address()
      url.hostname = "127.0.0.1"
      url.port = String(typeof address === "object" && address !== null ? address.port : 0)
      const { stderr } = yield* start({ DATABASE_URL: url.href })
      assert.include(stderr(), "Waiting for the database: ")
      assert.include(stderr(), "starting up")
    }), 30_000)

  it.live("reject a database of a later version", () =>
    Effect.gen(function*() {
      const DATABASE_URL = yield* temporaryDatabaseUrl
      yield* Effect.flatMap(PgClient.PgClient, (sql) =>
        sql`INSERT INTO petstore_migrations (migration_id, name) VALUES (${later}, 'later')`).pipe(
          Effect.provide(Database.migrate.pipe(Layer.provideMerge(client(DATABASE_URL))))
        )
      const { code, stderr } = yield* Effect.flip(start({ DATABASE_URL }))
      assert.strictEqual(code, 1)
      assert.include(stderr, `The database has schema version ${later}`)
      assert.lengthOf(stderr.trim().split("\n"), 1)
    }), 30_000)

  for (const [index, [version]] of versions.entries()) {
    it.live(
      `migrate a database of version ${version} and keep its pets`,
      () =>
        Effect.gen(function*() {
          const DATABASE_URL = yield* temporaryDatabaseUrl
          yield* Effect.gen(function*() {
            const sql = yield* SqlClient.SqlClient
            yield* MigrationRunner.runMigrations(Object.fromEntries(versions.slice(0, index + 1)))
            yield* sql`INSERT INTO pets (name, category_id, status) VALUES ('old', ${9223372036854775807n}::bigint, 'sold')`
          }).pipe(Effect.provide(client(DATABASE_URL)))
          const service = yield* start({ DATABASE_URL })
          const key = yield* issueKey(client(DATABASE_URL))
          const { body } = yield* Load.request(service.address, key, "/v1/pets")
          assert.strictEqual(body, `[{"id":1,"name":"old","categoryId":9223372036854775807,"status":"sold"}]`)
          assert.strictEqual((yield* Load.request(service.address, key)).status, 201)
        }),
      30_000
    )
  }

  if (previousSource !== undefined) {
    it.live(
      "of the previous version serve beside a process of this version, with the same keys and pets",
      () =>
        Effect.gen(function*() {
          const DATABASE_URL = yield* temporaryDatabaseUrl
          const directory = yield* temporaryDirectory
          execFileSync("tar", ["-x", "-C", directory], { input: previousSource })
          symlinkSync(join(root, "node_modules"), join(directory, "node_modules"))
          const before = yield* start({ DATABASE_URL }, join(directory, "src/main.ts"))
          const after = yield* start({ DATABASE_URL })
          const key = yield* issueKey(client(DATABASE_URL))
          const created = yield* Effect.forEach(
            Array.from({ length: 20 }),
            (_, index) => Load.request([before, after][index % 2]?.address ?? "", key),
            { concurrency: 4 }
          )
          assert.isTrue(created.every(({ status }) => status === 201))
          for (const { address } of [before, after]) {
            for (const { body } of created) {
              const { id }: { readonly id: number } = JSON.parse(body)
              assert.strictEqual((yield* Load.request(address, key, `/v1/pets/${id}`)).body, body)
            }
            assert.lengthOf(JSON.parse((yield* Load.request(address, key, "/v1/pets")).body), 20)
          }
        }),
      60_000
    )
  }
})

describe.skipIf(Postgres.missing !== undefined)("A process whose database is not available yet", () => {
  it.live("waits for it, and then serves requests", () =>
    Effect.gen(function*() {
      const postgres = yield* Postgres.run()
      yield* postgres.stop
      const starting = yield* Effect.forkChild(start({ DATABASE_URL: postgres.url }))
      yield* Effect.sleep("3 seconds")
      yield* postgres.start
      const startedAt = performance.now()
      const service = yield* Fiber.join(starting)
      assert.isBelow(performance.now() - startedAt, 5_000)
      assert.include(service.stderr(), "Waiting for the database")
      assert.strictEqual((yield* Load.request(service.address, "none", "/v1/pets")).status, 401)
    }), 60_000)

  for (const schema of ["an empty database", "the current schema"]) {
    it.live(`waits for a standby with ${schema} until it is promoted, and logs one line`, () =>
      Effect.gen(function*() {
        const primary = yield* Postgres.run()
        if (schema === "the current schema") {
          yield* Effect.provide(
            Effect.void,
            Database.migrate.pipe(
              Layer.provide(client(primary.url))
            )
          )
        }
        const standby = yield* Postgres.run({}, primary.port)
        const starting = yield* Effect.forkChild(start({ DATABASE_URL: standby.url }))
        // The process needs some seconds for its first attempt on a busy machine, and waits for 30 seconds.
        yield* Effect.sleep("10 seconds")
        assert.isUndefined(starting.pollUnsafe())
        yield* standby.admin((sql) => sql`SELECT pg_promote()`)
        const service = yield* Fiber.join(starting)
        assert.deepStrictEqual(service.stderr().match(/Waiting for the database[^"]*recovery/g)?.length, 1)
        const key = yield* issueKey(client(standby.url))
        assert.strictEqual((yield* Load.request(service.address, key)).status, 201)
      }), 60_000)
  }

  it.live("waits for a server that is read-only until it accepts writes", () =>
    Effect.gen(function*() {
      const postgres = yield* Postgres.run({ default_transaction_read_only: "on" })
      const starting = yield* Effect.forkChild(start({ DATABASE_URL: postgres.url }))
      yield* Effect.sleep("10 seconds")
      assert.isUndefined(starting.pollUnsafe())
      yield* postgres.admin((sql) =>
        sql`ALTER DATABASE postgres SET default_transaction_read_only = off`.pipe(
          sql.withTransaction,
          Effect.provideService(SqlClient.BeginTransaction, "BEGIN READ WRITE")
        )
      )
      const service = yield* Fiber.join(starting)
      assert.lengthOf(service.stderr().match(/Waiting for the database/g) ?? [], 1)
    }), 60_000)

  it.live("exits with 1 if it is not available within half a minute", () =>
    Effect.gen(function*() {
      const startedAt = performance.now()
      const { code, stderr } = yield* Effect.flip(start({ DATABASE_URL: "postgres://nobody:secret@127.0.0.1:1/none" }))
      assert.strictEqual(code, 1)
      assert.deepStrictEqual(stderr.match(/Waiting for the database|ECONNREFUSED/g), [
        "Waiting for the database",
        "ECONNREFUSED",
        "ECONNREFUSED"
      ])
      assert.notInclude(stderr, "secret")
      assert.isAbove(performance.now() - startedAt, 25_000)
      assert.isBelow(performance.now() - startedAt, 60_000)
    }), 90_000)
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
      const counts = yield* Effect.replicateEffect(Effect.andThen(Effect.sleep("100 millis"), count), 20).pipe(
        Effect.provide(client(url))
      )
      yield* load.stop
      assert.strictEqual(Math.max(...counts), 3)
    }), 60_000)
})
