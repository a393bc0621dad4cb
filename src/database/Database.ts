import { type Cause, Context, Data, Duration, Effect, Layer, Metric, Record, type Redacted, Schedule } from "effect"
import { Migrator, SqlClient, SqlError } from "effect/sql"
import { connect, type Socket } from "node:net"
import type { ConnectionOptions } from "node:tls"
import { describeChain } from "../observability/ErrorChain.ts"
import { AdminShare } from "./AdminShare.ts"
import { createDirectory, hasEmbeddedDatabase, type OnDirectoryLost } from "./DataDirectory.ts"
import baseline from "./migrations/0001_baseline.ts"
import keysEnabled from "./migrations/0002_keys_enabled.ts"
import growth from "./migrations/0003_growth.ts"
import usage from "./migrations/0004_usage.ts"
import keyLimits from "./migrations/0005_key_limits.ts"
import formerHints from "./migrations/0006_former_hints.ts"
import * as Outage from "./Outage.ts"
import * as PoolClient from "./PoolClient.ts"
import * as PoolSockets from "./PoolSockets.ts"

/** A server of PostgreSQL, or a pooler in front of one. */
export interface Server {
  readonly url: Redacted.Redacted
  /** The host and the port of `url`. A host that starts with `/` is the directory of a Unix socket. */
  readonly host: string
  readonly port: number
  readonly database: string | undefined
  readonly ssl: false | ConnectionOptions
  readonly applicationName: string
  /** Whether `url` is that of a pooler, which can run each transaction in another session. */
  readonly isPooled: boolean
}

/** Names that messages and the migrations use. */
export interface Names {
  /** The name of the setting that has the server's URL. */
  readonly server: string
  /** The name of the setting that has the directory of the embedded database. */
  readonly directory: string
  /** The name of the setting for `migrates`. */
  readonly migrates: string
  /** The command that migrates the server. */
  readonly migrateCommand: string
  /** The command that imports the embedded database into the server. */
  readonly importCommand: string
  /** The table that lists the migrations. */
  readonly migrationsTable: string
}

export interface Options {
  /** If undefined, the database is embedded. */
  readonly server: Server | undefined
  /** The directory of the embedded database. */
  readonly directory: string
  readonly maxConnections: number
  /** Whether the start migrates the server. If false, it only checks the version of the schema. */
  readonly migrates: boolean
  /**
   * The tables that tell whether the server has data. If all of them are empty, but `directory` has an embedded
   * database, a start with `server` logs a warning.
   */
  readonly firstTables: ReadonlyArray<string>
  readonly names: Names
  /** The gauges of the pool's open connections (with those that cancel a statement), and of `maxConnections`. */
  readonly metrics: Readonly<Record<"connections" | "maxConnections", Metric.Gauge<number>>>
}

const migrations = {
  "0001_baseline": baseline,
  "0002_keys_enabled": keysEnabled,
  "0003_growth": growth,
  "0004_usage": usage,
  "0005_key_limits": keyLimits,
  "0006_former_hints": formerHints
}
const loader = Migrator.fromRecord(Record.map(migrations, (statements, name) =>
  Effect.gen(function*() {
    yield* Effect.logInfo(`Migrating the database: ${name}`)
    const sql = yield* SqlClient.SqlClient
    yield* Effect.forEach(statements, (text) => sql.unsafe(text))
  })))
export const newestVersion = Object.keys(migrations).length

export class DatabaseIsNewer extends Data.TaggedError("DatabaseIsNewer")<{ readonly version: number }> {
  override readonly message =
    `The database has schema version ${this.version}, but this service supports only versions up to ` +
    `${newestVersion}. Start the version of the service that migrated it, or a later one.`
}

class DatabaseInRecovery extends Data.TaggedError("DatabaseInRecovery")<{ readonly names: Names }> {
  override readonly message = "The server is in recovery and accepts no writes. " +
    `Promote it, or set ${this.names.server} to the address of the primary.`
}

class DatabaseUnusable extends Data.TaggedError("DatabaseUnusable")<{
  readonly names: Names
  readonly cause: unknown
}> {
  override readonly message = `${this.names.server}: the database cannot be used` +
    (/does not support TLS/.test(describeChain(this.cause))
      ? ". Let the server use TLS, or add sslmode=disable to connect without it"
      : "")
}

class PoolerInFront extends Data.TaggedError("PoolerInFront")<{ readonly names: Names }> {
  override readonly message = `${this.names.server}: the server does not accept the parameter statement_timeout. ` +
    "Add pgbouncer=true if a pooler is in front of it."
}

export class SchemaIsOlder extends Data.TaggedError("SchemaIsOlder")<{
  readonly version: number
  readonly names: Names
}> {
  override readonly message =
    `The database has schema version ${this.version}, but this service needs version ${newestVersion}, and ` +
    `${this.names.migrates} is off. Run, with the role that owns the tables in ${this.names.server}: ` +
    this.names.migrateCommand
}

export const schemaVersion = (sql: SqlClient.SqlClient, { migrationsTable }: Names) =>
  Effect.map(
    sql<{ readonly version: number }>`SELECT max(migration_id) AS version FROM ${sql(migrationsTable)}`,
    ([latest]) => latest?.version ?? 0
  )

/** Checks the version of the schema, and changes nothing. */
const checkSchema = Effect.fnUntraced(function*(names: Names) {
  const sql = yield* SqlClient.SqlClient
  const exists = sql<{ readonly exists: boolean }>`SELECT to_regclass(${names.migrationsTable}) IS NOT NULL AS exists`
  const [table] = yield* exists
  const version = table?.exists === true ? yield* schemaVersion(sql, names) : 0
  if (version > newestVersion) return yield* new DatabaseIsNewer({ version })
  return yield* version < newestVersion ? new SchemaIsOlder({ version, names }) : Effect.void
})

export const runMigrations = Effect.fnUntraced(function*(names: Names) {
  const sql = yield* SqlClient.SqlClient
  const [server] = yield* sql<{ readonly isInRecovery: boolean }>`SELECT pg_is_in_recovery() AS "isInRecovery"`
  if (server?.isInRecovery === true) return yield* new DatabaseInRecovery({ names })
  yield* Migrator.make({})({ loader, table: names.migrationsTable })
  const version = yield* schemaVersion(sql, names)
  return yield* version > newestVersion ? new DatabaseIsNewer({ version }) : Effect.void
})
export const migrate = (names: Names) => Layer.effectDiscard(runMigrations(names))

const startupRetries = Schedule.upTo(Schedule.spaced("1 second"), { duration: "30 seconds" })

type StartFailure =
  | Effect.Error<ReturnType<typeof runMigrations | typeof checkSchema>>
  | SessionLost
  | Cause.TimeoutError

const mayRecover = (failure: StartFailure): boolean => {
  if (["DatabaseInRecovery", "SessionLost", "TimeoutError"].includes(failure._tag)) return true
  const error = failure._tag === "MigrationError" ? failure.cause : failure
  return SqlError.isSqlError(error) && Outage.isTransientAtStart(error)
}

/**
 * PostgreSQL's `statement_timeout`. By default, PgBouncer rejects this startup parameter. So this service sets none
 * behind a pooler, where the deadlines of callers end statements.
 */
const statementTimeoutMs = 2_500

/**
 * A live server usually ends the reply to a statement within this time. Without a pooler, `statement_timeout` ends the
 * statement, but not the wait of a commit for a synchronous standby. Behind a pooler, the caller's deadline, at most
 * 5 seconds, cancels the statement.
 */
const maxWaitMs = { direct: statementTimeoutMs + 1_000, pooled: 5_500 }

const openSocket = ({ host, port }: Server) => (): Socket =>
  host.startsWith("/") ? connect(`${host}/.s.PGSQL.${port}`) : connect({ host, port, noDelay: true })

const optionsOf = ({ applicationName, database, host, isPooled, port, ssl, url }: Server, timeoutMs: number) => ({
  url,
  // Without `database`, `host` and `port`, the spans of statements show the defaults of `PoolClient`, not the parts of
  // `url`.
  database,
  host,
  port,
  ssl,
  applicationName,
  // Behind a pooler, each transaction can run in another session, where a prepared statement may not exist.
  prepare: !isPooled,
  startupParameters: isPooled ? {} : { statement_timeout: String(timeoutMs) }
})

/**
 * One connection for the start, migrations and imports, whose statements may take long. It has no statement timeout,
 * except behind a pooler: there, the server's setting for the role or the database applies.
 */
export const withoutTimeout = (target: Server) =>
  PoolClient.layer({ ...optionsOf(target, 0), maxConnections: 1 }, target.isPooled)

class SessionLost extends Data.TaggedError("SessionLost") {
  override readonly message = "The connection that migrates the database was lost"
}

const checkInterval = Duration.seconds(5)

/**
 * Runs `statements`, and fails if the network has lost a statement or a reply, so that this process and the server wait
 * for each other. A migration may take long, so silence does not prove such a loss. It is proved if the session of this
 * connection has been idle on the server for five seconds. A second connection checks this, and then ends the session,
 * because it may hold the lock of the migrations. After a crash of the server, it finds no session, and proves nothing.
 */
const failingIfLost = <A, E, R>(target: Server, statements: Effect.Effect<A, E, R>) =>
  Effect.gen(function*() {
    // Behind a pooler, each transaction can run in another session, so there is no one session to watch.
    if (target.isPooled) return yield* statements
    const sql = yield* SqlClient.SqlClient
    const own = sql<{ readonly pid: number }>`SELECT pg_backend_pid() AS pid`
    const [session] = yield* Effect.timeout(own, Duration.times(checkInterval, 2))
    const end = Effect.flatMap(SqlClient.SqlClient, (other) =>
      other`
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE pid = ${session?.pid ?? 0} AND state LIKE 'idle%' AND state_change < now() - interval '5 seconds'`)
    const check = Effect.provide(end, Layer.fresh(withoutTimeout(target))).pipe(
      // The check can fail on its own, for example if the server has no connection left for it. Such an error proves
      // nothing about the session. But a check without a reply fails the start's attempt by the timeout below.
      Effect.catchIf(SqlError.isSqlError, () => Effect.succeed([])),
      Effect.timeout(Duration.times(checkInterval, 2)),
      Effect.delay(checkInterval),
      Effect.flatMap((ended) => ended.length > 0 ? new SessionLost() : Effect.void)
    )
    return yield* Effect.raceFirst(statements, Effect.forever(check))
  })

const warnOfEmbeddedDatabase = Effect.fnUntraced(function*({ directory, firstTables, names }: Options) {
  const sql = yield* SqlClient.SqlClient
  const rows = sql.literal(firstTables.map((table) => `SELECT FROM "${table}"`).join(" UNION ALL "))
  if (!hasEmbeddedDatabase(directory) || (yield* sql`${rows} LIMIT 1`).length > 0) return
  yield* Effect.logWarning(
    `The database is empty, but ${names.directory}, "${directory}", has an embedded database. To copy its data, stop ` +
      `the service, and run, with the same ${names.directory} and ${names.server}: ${names.importCommand}`
  )
})

/** Adds the name of the server's setting to an SQL error or a timeout, such as those of a connection or a login. */
const nameSetting = <E extends StartFailure>(error: E, names: Names) => {
  if (error._tag !== "SqlError" && error._tag !== "TimeoutError") return error
  const isParameter = error._tag === "SqlError" && Outage.isUnsupportedParameter(error)
  return isParameter ? new PoolerInFront({ names }) : new DatabaseUnusable({ names, cause: error })
}

/**
 * Runs `statements` on a connection of their own. While the database may recover, tries again a second after each
 * failure, for about 30 seconds. A server that does not respond is given the time of the last attempt, too.
 */
const atStart = <E extends StartFailure>(
  target: Server,
  names: Names,
  statements: Effect.Effect<void, E, SqlClient.SqlClient>
) => {
  const attempt = Effect.provide(failingIfLost(target, statements), withoutTimeout(target))
  return Effect.catchIf(attempt, mayRecover, (error) =>
    Effect.andThen(
      Effect.logWarning(`Waiting for the database: ${describeChain(nameSetting(error, names))}`),
      Effect.retry(attempt, { while: mayRecover, schedule: startupRetries })
    )).pipe(Effect.mapError((error) => nameSetting(error, names)))
}

class NoServer extends Data.TaggedError("NoServer")<{ readonly names: Names }> {
  override readonly message = `${this.names.server}: set it. The embedded database is migrated when the service starts`
}

/** Migrates the server, for the command `migrateCommand`. Returns the version of the schema. */
export const migrateServer = Effect.fnUntraced(function*({ names, server }: Pick<Options, "names" | "server">) {
  if (server === undefined) return yield* new NoServer({ names })
  yield* atStart(server, names, runMigrations(names))
  return newestVersion
})

const openPool = Effect.fnUntraced(function*(target: Server, options: Options) {
  const { maxConnections, metrics, names } = options
  yield* Metric.update(metrics.maxConnections, maxConnections)
  const prepare: Effect.Effect<void, StartFailure, SqlClient.SqlClient> = options.migrates
    ? runMigrations(names)
    : checkSchema(names)
  yield* atStart(target, names, Effect.andThen(prepare, warnOfEmbeddedDatabase(options)))
  const sockets = yield* PoolSockets.make(openSocket(target), target.isPooled ? maxWaitMs.pooled : maxWaitMs.direct)
  const context = yield* Effect.context()
  const stream = (): Socket => {
    const socket = sockets.open()
    metrics.connections.modifyUnsafe(1, context)
    return socket.on("close", () => metrics.connections.modifyUnsafe(-1, context))
  }
  const connection = { ...optionsOf(target, statementTimeoutMs), maxConnections, stream }
  const pool = yield* Layer.build(PoolClient.layer(connection, target.isPooled, sockets))
  return Context.add(pool, AdminShare, yield* AdminShare.ofPool(maxConnections))
})

export const layer = (options: Options, onDirectoryLost: OnDirectoryLost) =>
  Layer.effectContext(Effect.gen(function*() {
    const { directory, names, server } = options
    if (server !== undefined) return yield* openPool(server, options)
    const EmbeddedDatabase = yield* Effect.promise(() => import("./EmbeddedDatabase.ts"))
    yield* createDirectory(directory, names.directory)
    const embedded = EmbeddedDatabase.layer(directory, names.directory, onDirectoryLost)
    const client = yield* Layer.build(Layer.provideMerge(migrate(names), embedded))
    return Context.add(client, AdminShare, AdminShare.unlimited)
  }))
