import { assert, describe, it, layer } from "@effect/vitest"
import { Clock, Context, Duration, Effect, Fiber, Layer, Logger, Result } from "effect"
import { SqlClient } from "effect/sql"
import { connect, createServer, type Socket } from "node:net"
import { join } from "node:path"
import { setTimeout } from "node:timers/promises"
import { parseDatabaseUrl } from "../../src/config/ConnectionUrls.ts"
import * as Database from "../../src/database/Database.ts"
import { runCommand } from "../support/CommandRun.ts"
import { clientOn, databaseAt, hasServer, temporaryDatabaseUrl } from "../support/Databases.ts"
import * as Postgres from "../support/Postgres.ts"
import { until } from "../support/Process.ts"
import { temporaryDirectory } from "../support/Temporary.ts"

const unlogged = Effect.provide(Logger.layer([]))

const start = (url: string, settings?: Readonly<Record<string, string>>) =>
  Effect.scoped(Layer.build(Layer.fresh(databaseAt(url, settings))))

/** Runs statements as the service does, on its pool. */
const useAt = <A, E>(url: string, use: (sql: SqlClient.SqlClient) => Effect.Effect<A, E>) =>
  unlogged(
    Effect.scoped(Effect.flatMap(Layer.build(Layer.fresh(databaseAt(url))), (context) =>
      use(Context.get(context, SqlClient.SqlClient))))
  )

/** Listens on a port of its own, or at a path, for as long as the scope lasts. Returns the port. */
const listen = (onConnection: (socket: Socket) => void, path?: string) =>
  Effect.acquireRelease(
    Effect.callback<ReturnType<typeof createServer>>((resume) => {
      const server = createServer(onConnection)
      server.listen(
        path === undefined ? { port: 0, host: "127.0.0.1" } : { path },
        () => resume(Effect.succeed(server))
      )
    }),
    (server) => Effect.sync(() => server.close())
  ).pipe(Effect.map((server) => {
    const address = server.address()
    return address === null || typeof address === "string" ? 0 : address.port
  }))

/** An error response of PostgreSQL's protocol. */
const errorResponse = (code: string, message: string): Buffer => {
  const fields = Buffer.from(`SFATAL\0C${code}\0M${message}\0\0`)
  const head = Buffer.alloc(5)
  head.write("E")
  head.writeUInt32BE(fields.length + 4, 1)
  return Buffer.concat([head, fields])
}

it.live("A start behind a pooler without pgbouncer=true fails, and says what to add", () =>
  Effect.gen(function*() {
    const reply = errorResponse("08P01", "unsupported startup parameter: statement_timeout")
    const port = yield* listen((socket) => void socket.on("data", () => socket.end(reply)))
    const failure = yield* Effect.flip(start(`postgres://petstore@127.0.0.1:${port}/petstore`))
    const text = "DATABASE_URL: the server does not accept the parameter statement_timeout. " +
      "Add pgbouncer=true if a pooler is in front of it."
    assert.strictEqual(failure.message, text)
  }))

it.live("A start on a server without TLS fails, and says how to connect without it", () =>
  Effect.gen(function*() {
    const port = yield* listen((socket) => void socket.on("data", () => socket.write("N")))
    const failure = yield* Effect.flip(start(`postgres://petstore@127.0.0.1:${port}/petstore?sslmode=require`))
    assert.match(failure.message, /^DATABASE_URL: the database cannot be used\. .* add sslmode=disable to connect/)
  }))

describe.skipIf(!hasServer)("A database on PostgreSQL", { concurrent: true }, () => {
  it.live("is not changed by a start with MIGRATE=off on no schema or an older one, which fails", () =>
    Effect.gen(function*() {
      const url = yield* temporaryDatabaseUrl
      const relations = Postgres.queryOn(url)((sql) =>
        sql`SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace ORDER BY 1`
      )
      const fail = Effect.fnUntraced(function*(version: number) {
        const before = yield* relations
        const { message } = yield* Effect.flip(start(url, { MIGRATE: "off" }))
        const text = `The database has schema version ${version}, but this service needs version ` +
          `${Database.newestVersion}, and MIGRATE is off. Run, with the role that owns the tables in DATABASE_URL: ` +
          "npm run petstore -- migrate"
        assert.strictEqual(message, text)
        assert.deepStrictEqual(yield* relations, before)
      })
      yield* fail(0)
      yield* start(url)
      yield* start(url, { MIGRATE: "off" })
      yield* Postgres.queryOn(url)((sql) =>
        sql`DELETE FROM petstore_migrations WHERE migration_id = ${Database.newestVersion}`
      )
      yield* fail(Database.newestVersion - 1)
    }).pipe(unlogged))

  it.live.each<readonly [name: string, begin: string, end: string, line: RegExp]>([
    [
      "in recovery",
      `CREATE FUNCTION public.pg_is_in_recovery() RETURNS boolean LANGUAGE sql AS 'SELECT true'`,
      "DROP FUNCTION public.pg_is_in_recovery()",
      /^Waiting for the database: The server is in recovery and accepts no writes\. Promote it, or set DATABASE_URL to/
    ],
    [
      "read-only",
      "ALTER DATABASE own SET default_transaction_read_only = on",
      "ALTER DATABASE own RESET default_transaction_read_only",
      /^Waiting for the database: .*read-only/
    ]
  ])("that is %s is waited for with one log line, and then migrated", ([, begin, end, line]) =>
    Effect.gen(function*() {
      const url = yield* temporaryDatabaseUrl
      const name = new URL(url).pathname.slice(1)
      const admin = Context.get(yield* Layer.build(Layer.fresh(clientOn(url))), SqlClient.SqlClient)
      // The function of the schema `public` comes before that of PostgreSQL.
      yield* admin.unsafe(`ALTER DATABASE ${name} SET search_path = public, pg_catalog`)
      yield* admin.unsafe(begin.replace("own", name))
      const lines: Array<string> = []
      const clock = yield* Clock.Clock
      // The second between two attempts passes at once.
      const sleep = (duration: Duration.Duration) =>
        Duration.toSeconds(duration) > 1 ? clock.sleep(duration) : Effect.promise(() => setTimeout(5))
      const starting = yield* Effect.forkChild(
        start(url).pipe(
          Effect.provideService(Clock.Clock, Object.assign(Object.create(clock), { sleep })),
          Effect.provide(Logger.layer([Logger.make(({ message }) => void lines.push(String(message)))]))
        )
      )
      yield* until(() => lines.length > 0)
      yield* admin.unsafe(end.replace("own", name))
      yield* Fiber.join(starting)
      assert.match(lines[0] ?? "", line)
      assert.lengthOf(lines.filter((text) => text.startsWith("Waiting")), 1)
      assert.lengthOf(yield* admin`SELECT FROM petstore_migrations`, Database.newestVersion)
    }))
})

/** The URL of a database, and the output of the command that migrated it. */
const Migrated = Context.Service<{ readonly url: string; readonly output: unknown }>("test/Migrated")

const makeMigrated = Effect.gen(function*() {
  const url = yield* temporaryDatabaseUrl
  return { url, output: yield* runCommand({ DATABASE_URL: url }, ["migrate"]) }
})

describe.skipIf(!hasServer)("A migrated database on PostgreSQL", () => {
  layer(Layer.effect(Migrated, makeMigrated), { excludeTestServices: true })((it) => {
    it.effect("is the result of petstore migrate, which says the version, also if there is nothing to do", () =>
      Effect.gen(function*() {
        const { output, url } = yield* Migrated
        const stdout = `The database has schema version ${Database.newestVersion}.\n`
        const lines = Array.from({ length: Database.newestVersion }, () => "Migrating the database: \\d{4}_\\w+\n")
        assert.deepInclude(output, { code: 0, stdout })
        assert.match(String(Reflect.get(Object(output), "stderr")), new RegExp(`^${lines.join("")}$`))
        const again = yield* runCommand({ DATABASE_URL: url }, ["migrate"])
        assert.deepStrictEqual(again, { code: 0, stdout, stderr: "" })
        const stderr = "DATABASE_URL: set it. The embedded database is migrated when the service starts\n"
        assert.deepStrictEqual(yield* runCommand({}, ["migrate"]), { code: 1, stdout: "", stderr })
      }))

    it.effect("gets no setting from a session but a name and a statement timeout, which a pooler does not get", () =>
      Effect.gen(function*() {
        const { url } = yield* Migrated
        // Another one would be synchronous_commit. The driver sets the client encoding.
        const settings = (sql: SqlClient.SqlClient) =>
          sql`SELECT name, setting FROM pg_settings WHERE source IN ('client', 'session') AND name <> 'client_encoding'
            ORDER BY name`
        const application = { name: "application_name", setting: "petstore" }
        const timeout = { name: "statement_timeout", setting: "2500" }
        assert.deepStrictEqual(yield* useAt(url, settings), [application, timeout])
        assert.deepStrictEqual(yield* useAt(`${url}?pgbouncer=true`, settings), [application])
      }))

    it.effect("is that of the parameters of the URL, as are the user, the name and the options of a session", () =>
      Effect.gen(function*() {
        const { hostname, password, pathname, port, username } = new URL((yield* Migrated).url)
        const [dbname, user] = [pathname.slice(1), username]
        const parameters = new URLSearchParams({ host: hostname, port, dbname, user, password, connect_timeout: "7" })
        const url = `postgres://nobody:none@none.invalid:1/none?${parameters.toString()}`
        const own = "&application_name=pets&options=-c%20work_mem%3D9MB"
        const session = useAt(
          `${url}${own}&sslmode=disable`,
          (sql) =>
            sql`SELECT current_database() AS dbname, current_user AS "user",
            current_setting('application_name') AS name, current_setting('work_mem') AS memory`
        )
        assert.deepStrictEqual(yield* session, [{ dbname, user, name: "pets", memory: "9MB" }])
      }))

    it.effect("prepares statements, unless a pooler is in front of it", () =>
      Effect.gen(function*() {
        const { url } = yield* Migrated
        const prepared = (sql: SqlClient.SqlClient) =>
          Effect.andThen(
            sql`SELECT ${1}::int`,
            sql`SELECT FROM pg_prepared_statements WHERE statement = 'SELECT $1::int'`
          )
        assert.lengthOf(yield* useAt(url, prepared), 1)
        assert.isEmpty(yield* useAt(`${url}?pgbouncer=true`, prepared))
      }))

    it.effect("is migrated and imported by sessions without a statement timeout", () =>
      Effect.gen(function*() {
        const target = Result.getOrThrow(parseDatabaseUrl((yield* Migrated).url))
        const sql = Context.get(yield* Layer.build(Database.withoutTimeout(target)), SqlClient.SqlClient)
        assert.deepStrictEqual(yield* sql`SHOW statement_timeout`, [{ statement_timeout: "0" }])
      }))

    it.effect("is reached through a Unix socket, without TLS", () =>
      Effect.gen(function*() {
        const { hostname, password, pathname, port, username } = new URL((yield* Migrated).url)
        const directory = yield* temporaryDirectory
        const forward = (socket: Socket) => {
          const server = connect(Number(port), hostname)
          for (const each of [socket, server]) each.on("error", () => each.destroy())
          socket.pipe(server)
          server.pipe(socket)
        }
        yield* listen(forward, join(directory, ".s.PGSQL.7"))
        const endpoint = `${encodeURIComponent(directory)}:7${pathname}?sslmode=require`
        const bySocket = useAt(`postgres://${username}:${password}@${endpoint}`, (sql) => sql`SELECT 1 AS one`)
        assert.deepStrictEqual(yield* bySocket, [{ one: 1 }])
      }))

    it.effect("has no triggers, no foreign keys to pets, and ids from a sequence with CACHE 1", () =>
      Effect.gen(function*() {
        const { url } = yield* Migrated
        const [schema] = yield* Postgres.queryOn(url)((sql) =>
          sql`
          SELECT (SELECT count(*)::int FROM pg_trigger WHERE NOT tgisinternal) AS triggers,
            (SELECT count(*)::int FROM pg_constraint WHERE contype = 'f' AND confrelid = 'pets'::regclass) AS keys,
            (SELECT cache_size::int FROM pg_sequences WHERE sequencename = 'pets_id_seq') AS cached`
        )
        assert.deepStrictEqual(schema, { triggers: 0, keys: 0, cached: 1 })
      }))
  })
})
