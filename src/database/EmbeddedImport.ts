import { Clock, Console, Context, Data, Effect, Layer, Schedule, Stream } from "effect"
import { SqlClient } from "effect/sql"
import * as Database from "./Database.ts"
import { hasEmbeddedDatabase } from "./DataDirectory.ts"
import * as EmbeddedDatabase from "./EmbeddedDatabase.ts"

class ImportRejected extends Data.TaggedError("ImportRejected")<{ readonly message: string }> {}

const rejectUnless = (isAllowed: boolean, message: string): Effect.Effect<void, ImportRejected> =>
  isAllowed ? Effect.void : new ImportRejected({ message })

/** Counts the rows of the service's tables in order of creation, so that each follows the tables that it references. */
const countRows = Effect.fnUntraced(function*(sql: SqlClient.SqlClient, { migrationsTable }: Database.Names) {
  const tables = yield* sql<{ readonly name: string }>`
    SELECT relname AS name FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'
      AND relname <> ${migrationsTable} ORDER BY oid`
  return yield* Effect.forEach(tables, ({ name }) =>
    Effect.map(
      sql<{ readonly rows: number }>`SELECT count(*)::integer AS rows FROM ${sql(name)}`,
      ([{ rows } = { rows: 0 }]) => ({ name, rows })
    ))
})

const describeCounts = (counts: Effect.Success<ReturnType<typeof countRows>>): string =>
  counts.filter(({ rows }) => rows > 0).map(({ name, rows }) => `${rows} ${name}`).join(", ")

/**
 * Rejects a database that has any other client, because each could be a running service. A client's `application_name`
 * is a setting, so it proves nothing. Without the role `pg_read_all_stats`, `backend_type` is null for all sessions of
 * other roles. So the query also excludes sessions without a `usename`: they are processes of the server, such as
 * autovacuum.
 */
const rejectOtherClients = Effect.fnUntraced(function*(to: SqlClient.SqlClient, names: Database.Names) {
  // Within a transaction, `pg_stat_activity` shows what its first read found, until this snapshot is cleared.
  yield* to`SELECT pg_stat_clear_snapshot()`
  const [{ clients } = { clients: null }] = yield* to<{ readonly clients: string | null }>`
    SELECT string_agg(DISTINCT coalesce(nullif(application_name, ''), 'unnamed'), ', ') AS clients
    FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND usename IS NOT NULL
      AND coalesce(backend_type, 'client backend') = 'client backend'`
  yield* rejectUnless(
    clients === null,
    `${names.server}: other clients are connected to the database: ${clients}. ` +
      "Stop the service, and end their sessions."
  )
})

/**
 * Migrates the server, and rejects it if it has other clients or rows. The Migrator locks its table until this
 * transaction ends, so a process that starts meanwhile waits before it migrates.
 */
const prepare = Effect.fnUntraced(function*(to: SqlClient.SqlClient, names: Database.Names) {
  // The role may have a statement timeout (docs/database.md suggests one behind PgBouncer), but imports may take long.
  yield* to`SET LOCAL statement_timeout = 0`
  yield* Effect.provideService(Database.runMigrations(names), SqlClient.SqlClient, to)
  // A session that a client has just closed can be visible for some milliseconds.
  yield* Effect.retry(rejectOtherClients(to, names), { schedule: Schedule.spaced("100 millis"), times: 10 })
  const found = describeCounts(yield* countRows(to, names))
  yield* rejectUnless(found === "", `${names.server}: the database is not empty: ${found}. Drop and create it again.`)
})

/**
 * Copies rows as JSON, which preserves the values of all columns of this schema. Reads the next rows while it writes.
 */
const copyTable = (from: SqlClient.SqlClient, to: SqlClient.SqlClient) =>
  Effect.fnUntraced(function*({ name, rows: total }: { readonly name: string; readonly rows: number }) {
    yield* from`DECLARE rows CURSOR FOR SELECT row_to_json(t)::text AS row FROM ${from(name)} AS t`
    const startedAt = yield* Clock.currentTimeMillis
    let [copied, printedAt] = [0, startedAt]
    const insert = Effect.fnUntraced(function*(rows: ReadonlyArray<{ readonly row: string }>) {
      yield* to`INSERT INTO ${to(name)} OVERRIDING SYSTEM VALUE SELECT *
        FROM json_populate_recordset(NULL::${to(name)}, ${`[${rows.map(({ row }) => row).join()}]`}::text::json)`
      copied += rows.length
      const now = yield* Clock.currentTimeMillis
      if (now - printedAt < 1_000 && copied < total) return
      printedAt = now
      const rate = Math.round(copied * 1_000 / Math.max(1, now - startedAt))
      yield* Console.error(`${name}: copied ${copied} of ${total}, ${rate} a second`)
    })
    yield* Stream.fromEffectRepeat(from<{ readonly row: string }>`FETCH 2000 FROM rows`).pipe(
      Stream.takeWhile((rows) => rows.length > 0),
      Stream.buffer({ capacity: 1 }),
      Stream.runForEach(insert)
    )
    yield* from`CLOSE rows`
  })

const copy = Effect.fnUntraced(function*(from: SqlClient.SqlClient, to: SqlClient.SqlClient, names: Database.Names) {
  yield* from`SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY`
  const version = yield* Database.schemaVersion(from, names)
  yield* rejectUnless(
    version === Database.newestVersion,
    `${names.directory}: the embedded database has schema version ${version}, but this command copies only version ` +
      `${Database.newestVersion}. Start and stop this version of the service on it, without ${names.server}.`
  )
  const counts = yield* countRows(from, names)
  yield* Effect.forEach(counts, copyTable(from, to))
  const sequences = yield* from<{ readonly name: string; readonly last: bigint }>`
    SELECT sequencename AS name, last_value AS last FROM pg_sequences
    WHERE schemaname = current_schema() AND last_value IS NOT NULL`
  yield* Effect.forEach(sequences, ({ last, name }) => to`SELECT setval(${name}::regclass, ${last})`)
  const [expected, copied] = [describeCounts(counts), describeCounts(yield* countRows(to, names))]
  yield* rejectUnless(copied === expected, `Nothing was imported: found ${copied} instead of ${expected}.`)
  return expected
})

const open = <E, R>(layer: Layer.Layer<SqlClient.SqlClient, E, R>) =>
  Effect.map(Layer.build(layer), Context.get(SqlClient.SqlClient))

export const run = Effect.fnUntraced(function*({ directory, names, server }: Database.Options) {
  const missing = new ImportRejected({ message: `${names.server}: set it to the URL of an empty PostgreSQL database.` })
  if (server === undefined) return yield* missing
  yield* rejectUnless(hasEmbeddedDatabase(directory), `${names.directory}: "${directory}" has no embedded database.`)
  const to = yield* open(Database.withoutTimeout(server))
  return yield* to.withTransaction(Effect.gen(function*() {
    yield* prepare(to, names)
    // If the directory is lost, the next statement fails, so the callback need not do anything.
    const from = yield* open(EmbeddedDatabase.layer(directory, names.directory, () => {}))
    return yield* from.withTransaction(copy(from, to, names))
  }))
}, Effect.scoped)
