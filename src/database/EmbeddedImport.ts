/** Copies an embedded database to an empty PostgreSQL database: `petstore import`. */
import { Clock, Config, Console, Context, Data, Effect, Layer, Option, Stream } from "effect"
import { SqlClient } from "effect/sql"
import { Settings } from "../config/Settings.ts"
import * as Database from "./Database.ts"
import { hasEmbeddedDatabase } from "./DataDirectory.ts"
import * as EmbeddedDatabase from "./EmbeddedDatabase.ts"

export class ImportRejected extends Data.TaggedError("ImportRejected")<{ readonly message: string }> {}

type Counts = Readonly<Record<string, number>>

const rowsPerStatement = 2_000

const describeCounts = (counts: Counts): string =>
  Object.entries(counts).filter(([, count]) => count > 0).map(([table, count]) => `${count} ${table}`).join(", ")

/** Counts the rows of the service's tables. A table comes after those that it references. */
const countRows = Effect.fnUntraced(function*(sql: SqlClient.SqlClient) {
  const tables = yield* sql<{ readonly name: string }>`
    SELECT relname AS name FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'
      AND relname <> ${Database.migrationsTable} ORDER BY oid`
  const count = ({ name }: { readonly name: string }) =>
    Effect.map(
      sql<{ readonly rows: number }>`SELECT count(*)::integer AS rows FROM ${sql(name)}`,
      ([row]) => [name, row?.rows ?? 0] as const
    )
  return Object.fromEntries(yield* Effect.forEach(tables, count))
})

/** Locks the tables, so that a process that starts meanwhile waits until the import ends. */
const prepare = Effect.fnUntraced(function*(to: SqlClient.SqlClient) {
  // The role may have the timeout that docs/database.md suggests for PgBouncer.
  yield* to`SET LOCAL statement_timeout = 0`
  yield* Effect.provideService(Database.runMigrations, SqlClient.SqlClient, to)
  const others = yield* to`
    SELECT FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
      AND application_name = current_setting('application_name')`
  if (others.length > 0) {
    return yield* new ImportRejected({
      message: "DATABASE_URL: another process of the service is connected to this database. Stop it first."
    })
  }
  // A service that had no keys yet counted only requests without a key.
  yield* to`DELETE FROM rate_limits WHERE caller LIKE 'address:%'`
  const found = describeCounts(yield* countRows(to))
  const message = `DATABASE_URL: this database is not empty: ${found}. Use an empty one, or drop and create it again.`
  return yield* found === "" ? Effect.void : new ImportRejected({ message })
})

/** Copies a table as JSON, in which all its types keep their values. Reads the next rows while it writes. */
const copyTable = Effect.fnUntraced(
  function*(from: SqlClient.SqlClient, to: SqlClient.SqlClient, table: string, total: number) {
    yield* from`DECLARE rows CURSOR FOR SELECT row_to_json(t)::text AS row FROM ${from(table)} AS t`
    const startedAt = yield* Clock.currentTimeMillis
    let [copied, printedAt] = [0, startedAt]
    const insert = Effect.fnUntraced(function*(rows: ReadonlyArray<{ readonly row: string }>) {
      yield* to`INSERT INTO ${to(table)} OVERRIDING SYSTEM VALUE SELECT *
        FROM json_populate_recordset(NULL::${to(table)}, ${`[${rows.map(({ row }) => row).join()}]`}::text::json)`
      copied += rows.length
      const now = yield* Clock.currentTimeMillis
      if (now - printedAt < 1_000 && copied < total) return
      printedAt = now
      const rate = Math.round(copied * 1_000 / Math.max(1, now - startedAt))
      yield* Console.error(`${table}: copied ${copied} of ${total}, ${rate} a second`)
    })
    yield* Stream.fromEffectRepeat(
      from<{ readonly row: string }>`FETCH ${from.literal(`${rowsPerStatement}`)} FROM rows`
    )
      .pipe(
        Stream.takeWhile((rows) => rows.length > 0),
        Stream.buffer({ capacity: 1 }),
        Stream.runForEach(insert)
      )
    yield* from`CLOSE rows`
  }
)

const copySequences = Effect.fnUntraced(function*(from: SqlClient.SqlClient, to: SqlClient.SqlClient) {
  const sequences = yield* from<{ readonly name: string; readonly last: bigint }>`
    SELECT sequencename AS name, last_value AS last FROM pg_sequences
    WHERE schemaname = current_schema() AND last_value IS NOT NULL`
  yield* Effect.forEach(sequences, ({ last, name }) => to`SELECT setval(${name}::regclass, ${last})`)
})

const copy = Effect.fnUntraced(function*(from: SqlClient.SqlClient, to: SqlClient.SqlClient) {
  yield* from`SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY`
  const version = yield* Database.schemaVersion(from)
  if (version !== Database.newestVersion) {
    return yield* new ImportRejected({
      message: `DATA_DIR: the embedded database has schema version ${version}, but this command copies only version ` +
        `${Database.newestVersion}. Start and stop this version of the service on it, without DATABASE_URL.`
    })
  }
  const counts = yield* countRows(from)
  yield* Effect.forEach(Object.entries(counts), ([table, total]) => copyTable(from, to, table, total))
  yield* copySequences(from, to)
  const [expected, copied] = [describeCounts(counts), describeCounts(yield* countRows(to))]
  if (copied === expected) return expected
  return yield* new ImportRejected({ message: `Nothing was imported: found ${copied} instead of ${expected}.` })
})

const open = <E, R>(layer: Layer.Layer<SqlClient.SqlClient, E, R>) =>
  Effect.map(Layer.build(layer), Context.get(SqlClient.SqlClient))

/** Copies everything in one transaction, which only reads the embedded database. Returns what it copied. */
export const run = Effect.gen(function*() {
  const directory = yield* Settings.dataDir.config
  const target = yield* Config.option(Settings.databaseUrl.config)
  if (Option.isNone(target)) {
    return yield* new ImportRejected({ message: "DATABASE_URL: set it to the URL of an empty PostgreSQL database." })
  }
  if (!hasEmbeddedDatabase(directory)) {
    return yield* new ImportRejected({ message: `DATA_DIR: the directory "${directory}" has no embedded database.` })
  }
  const to = yield* open(Database.withoutTimeout(target.value))
  return yield* to.withTransaction(Effect.gen(function*() {
    yield* prepare(to)
    const from = yield* open(EmbeddedDatabase.layer(directory))
    return yield* from.withTransaction(copy(from, to))
  }))
}).pipe(Effect.scoped)
