import { Cause, Config, Context, Data, Duration, Effect, Layer, Metric, Option, Record, Schedule } from "effect"
import { Migrator, SqlClient, SqlError } from "effect/sql"
import { connect, type Socket } from "node:net"
import * as Brand from "../api/Brand.ts"
import type { DatabaseUrl } from "../config/ConnectionUrls.ts"
import { commandPrefix, Settings } from "../config/Settings.ts"
import { describeCause } from "../observability/DescribeCause.ts"
import { gauge } from "../observability/MetricConstructors.ts"
import * as AdminShare from "./AdminShare.ts"
import { dataDirectory, hasEmbeddedDatabase } from "./DataDirectory.ts"
import baseline from "./migrations/0001_baseline.ts"
import keysEnabled from "./migrations/0002_keys_enabled.ts"
import growth from "./migrations/0003_growth.ts"
import usage from "./migrations/0004_usage.ts"
import keyLimits from "./migrations/0005_key_limits.ts"
import formerHints from "./migrations/0006_former_hints.ts"
import * as Outage from "./Outage.ts"
import * as PoolClient from "./PoolClient.ts"
import * as PoolSockets from "./PoolSockets.ts"

const connections = gauge("database_connections", "Open connections to the database.")
const connectionLimit = gauge("database_max_connections", "DATABASE_MAX_CONNECTIONS.")

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
export const migrationsTable = `${Brand.name}_migrations`

export class DatabaseIsNewer extends Data.TaggedError("DatabaseIsNewer")<{ readonly version: number }> {
  override readonly message =
    `The database has schema version ${this.version}, but this service supports only versions up to ` +
    `${newestVersion}. Start the version of the service that migrated it, or a later one.`
}

class DatabaseInRecovery extends Data.TaggedError("DatabaseInRecovery") {
  override readonly message =
    "The server is in recovery and accepts no writes. Promote it, or set DATABASE_URL to the address of the primary."
}

class DatabaseUnusable extends Data.TaggedError("DatabaseUnusable")<{ readonly cause: unknown }> {
  override readonly message = "DATABASE_URL: the database cannot be used" +
    (/does not support TLS/.test(describeCause(Cause.fail(this.cause)))
      ? ". Let the server use TLS, or add sslmode=disable to connect without it"
      : "")
}

class PoolerInFront extends Data.TaggedError("PoolerInFront") {
  override readonly message = "DATABASE_URL: the server does not accept the parameter statement_timeout. " +
    "Add pgbouncer=true if a pooler is in front of it."
}

export class SchemaIsOlder extends Data.TaggedError("SchemaIsOlder")<{ readonly version: number }> {
  override readonly message =
    `The database has schema version ${this.version}, but this service needs version ${newestVersion}, and MIGRATE ` +
    `is off. Run, with the role that owns the tables in DATABASE_URL: ${commandPrefix} migrate`
}

export const schemaVersion = (sql: SqlClient.SqlClient) =>
  Effect.map(
    sql<{ readonly version: number }>`SELECT max(migration_id) AS version FROM ${sql(migrationsTable)}`,
    ([latest]) => latest?.version ?? 0
  )

/** Checks the version of the schema, and changes nothing. */
const checkSchema = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  const [table] = yield* sql<{ readonly exists: boolean }>`SELECT to_regclass(${migrationsTable}) IS NOT NULL AS exists`
  const version = table?.exists === true ? yield* schemaVersion(sql) : 0
  if (version > newestVersion) return yield* new DatabaseIsNewer({ version })
  return yield* version < newestVersion ? new SchemaIsOlder({ version }) : Effect.void
})

export const runMigrations = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  const [server] = yield* sql<{ readonly isInRecovery: boolean }>`SELECT pg_is_in_recovery() AS "isInRecovery"`
  if (server?.isInRecovery === true) return yield* new DatabaseInRecovery()
  yield* Migrator.make({})({ loader, table: migrationsTable })
  const version = yield* schemaVersion(sql)
  return yield* version > newestVersion ? new DatabaseIsNewer({ version }) : Effect.void
})
export const migrate = Layer.effectDiscard(runMigrations)

const startupRetries = Schedule.upTo(Schedule.spaced("1 second"), { duration: "30 seconds" })

type StartFailure =
  | Effect.Error<typeof runMigrations | typeof checkSchema>
  | Config.ConfigError
  | SessionLost
  | Cause.TimeoutError

const mayRecover = (failure: StartFailure): boolean => {
  if (["DatabaseInRecovery", "SessionLost", "TimeoutError"].includes(failure._tag)) return true
  const error = failure._tag === "MigrationError" ? failure.cause : failure
  return SqlError.isSqlError(error) && Outage.isTransientAtStart(error)
}

/** PostgreSQL's `statement_timeout`. Poolers reject it, so behind a pooler callers need their own timeouts. */
const statementTimeoutMs = 2_500

/**
 * A live server ends the reply to a statement within this time. Behind a pooler, only the deadlines of callers end a
 * statement: at most 5 seconds, and the time of a cancellation.
 */
const maxWaitMs = { direct: statementTimeoutMs + 1_000, pooled: 5_500 }

const openSocket = ({ host, port }: DatabaseUrl) => (): Socket =>
  host.startsWith("/") ? connect(`${host}/.s.PGSQL.${port}`) : connect({ host, port, noDelay: true })

const databaseUrl = Config.option(Settings.databaseUrl.config)

export const isEmbedded = Config.map(databaseUrl, Option.isNone)

const optionsOf = ({ applicationName, database, host, isPooled, port, ssl, url }: DatabaseUrl, timeoutMs: number) => ({
  url,
  // Without `database`, `host` and `port`, the driver's spans show defaults, not the parts of `url`.
  database,
  host,
  port,
  ssl,
  applicationName,
  // Behind a pooler, each transaction can run in another session, where a prepared statement does not exist.
  prepare: !isPooled,
  startupParameters: isPooled ? {} : { statement_timeout: String(timeoutMs) }
})

/** One connection without a statement timeout, because migrations and imports may take long. */
export const withoutTimeout = (target: DatabaseUrl) =>
  PoolClient.layer({ ...optionsOf(target, 0), maxConnections: 1 }, target.isPooled)

class SessionLost extends Data.TaggedError("SessionLost") {
  override readonly message = "The connection that migrates the database was lost"
}

const checkInterval = Duration.seconds(5)

/**
 * Runs `statements` on one connection, and fails if that connection is half-open. A migration may take long, so silence
 * is no proof. The proof is that its session waits for this process: then a statement or a reply was lost. The second
 * connection that finds it ends the session, because it may hold the lock of the migrations.
 */
const failingIfLost = <A, E, R>(target: DatabaseUrl, statements: Effect.Effect<A, E, R>) =>
  Effect.gen(function*() {
    // Behind a pooler, a session belongs to no connection.
    if (target.isPooled) return yield* statements
    const sql = yield* SqlClient.SqlClient
    const own = sql<{ readonly pid: number }>`SELECT pg_backend_pid() AS pid`
    const [session] = yield* Effect.timeout(own, Duration.times(checkInterval, 2))
    const end = Effect.flatMap(SqlClient.SqlClient, (other) =>
      other`
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE pid = ${session?.pid ?? 0} AND state LIKE 'idle%' AND state_change < now() - interval '5 seconds'`)
    const check = Effect.provide(end, Layer.fresh(withoutTimeout(target))).pipe(
      // The check may find no free connection. That says nothing about the session.
      Effect.catchIf(SqlError.isSqlError, () => Effect.succeed([])),
      Effect.timeout(Duration.times(checkInterval, 2)),
      Effect.delay(checkInterval),
      Effect.flatMap((ended) => ended.length > 0 ? new SessionLost() : Effect.void)
    )
    return yield* Effect.raceFirst(statements, Effect.forever(check))
  })

const warnOfEmbeddedDatabase = Effect.gen(function*() {
  const [directory, sql] = [yield* Settings.dataDir.config, yield* SqlClient.SqlClient]
  const rows = sql`SELECT FROM ${sql(Brand.collection)} UNION ALL SELECT FROM api_keys LIMIT 1`
  if (!hasEmbeddedDatabase(directory) || (yield* rows).length > 0) return
  yield* Effect.logWarning(
    `The database is empty, but DATA_DIR, "${directory}", has an embedded database. To copy its data, stop the ` +
      `service, and run, with the same DATA_DIR and DATABASE_URL: ${commandPrefix} import`
  )
})

/** Names `DATABASE_URL` in a failure to connect or to log in. */
const nameSetting = <E extends StartFailure>(error: E) => {
  if (error._tag !== "SqlError" && error._tag !== "TimeoutError") return error
  const isParameter = error._tag === "SqlError" && Outage.isUnsupportedParameter(error)
  return isParameter ? new PoolerInFront() : new DatabaseUnusable({ cause: error })
}

/** Runs `statements` on a connection of its own, and retries while the database may recover. */
const atStart = <E extends StartFailure>(
  target: DatabaseUrl,
  statements: Effect.Effect<void, E, SqlClient.SqlClient>
) => {
  const attempt = Effect.provide(failingIfLost(target, statements), withoutTimeout(target))
  return Effect.catchIf(attempt, mayRecover, (error) =>
    Effect.andThen(
      Effect.logWarning(`Waiting for the database: ${describeCause(Cause.fail(nameSetting(error)))}`),
      Effect.retry(attempt, { while: mayRecover, schedule: startupRetries })
    )).pipe(Effect.mapError(nameSetting))
}

class NoServer extends Data.TaggedError("NoServer") {
  override readonly message = "DATABASE_URL: set it. The embedded database is migrated when the service starts"
}

/** Migrates the database at `DATABASE_URL`, for the command. Returns the version of the schema. */
export const migrateFromSettings = Effect.gen(function*() {
  const url = yield* databaseUrl
  if (Option.isNone(url)) return yield* new NoServer()
  yield* atStart(url.value, runMigrations)
  return newestVersion
})

const openPool = Effect.fnUntraced(function*(target: DatabaseUrl) {
  const maxConnections = yield* Settings.databaseMaxConnections.config
  yield* Metric.update(connectionLimit, maxConnections)
  const prepare: Effect.Effect<void, StartFailure, SqlClient.SqlClient> = (yield* Settings.migrate.config) === "on"
    ? runMigrations
    : checkSchema
  yield* atStart(target, Effect.andThen(prepare, warnOfEmbeddedDatabase))
  const sockets = yield* PoolSockets.make(openSocket(target), target.isPooled ? maxWaitMs.pooled : maxWaitMs.direct)
  const context = yield* Effect.context()
  const stream = (): Socket => {
    const socket = sockets.open()
    connections.modifyUnsafe(1, context)
    return socket.on("close", () => connections.modifyUnsafe(-1, context))
  }
  const options = { ...optionsOf(target, statementTimeoutMs), maxConnections, stream }
  const pool = yield* Layer.build(PoolClient.layer(options, target.isPooled, sockets))
  return Context.add(pool, AdminShare.AdminShare, yield* AdminShare.makeShare(maxConnections))
})

export const layer = Layer.effectContext(Effect.gen(function*() {
  const url = yield* databaseUrl
  if (Option.isSome(url)) return yield* openPool(url.value)
  const EmbeddedDatabase = yield* Effect.promise(() => import("./EmbeddedDatabase.ts"))
  return yield* Layer.build(Layer.provideMerge(migrate, EmbeddedDatabase.layer(yield* dataDirectory)))
}))
