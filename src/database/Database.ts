/** The database of the service: a PostgreSQL server, or one embedded in this process. */
import { PgClient } from "@effect/sql-pg"
import { Cause, Config, Data, Duration, Effect, Layer, Option, Redacted, Schedule } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import type { Duplex } from "node:stream"
import { type ConnectionString, isReplica, parse } from "../config/ConnectionString.ts"
import { dataDirectory } from "../config/DataDirectory.ts"
import * as Settings from "../config/Settings.ts"
import { describe } from "../observability/Logging.ts"
import * as ConnectionMetrics from "./ConnectionMetrics.ts"
import { IsReplica } from "./IsReplica.ts"
import * as MigrationRunner from "./MigrationRunner.ts"
import * as pets from "./migrations/0001_pets.ts"
import * as apiKeys from "./migrations/0002_api_keys.ts"
import * as rateLimits from "./migrations/0003_rate_limits.ts"
import * as idempotencyKeys from "./migrations/0004_idempotency_keys.ts"
import * as petsChanges from "./migrations/0005_pets_changes.ts"
import * as updatedInPlace from "./migrations/0006_updated_in_place.ts"
import * as apiKeysChanges from "./migrations/0007_api_keys_changes.ts"
import * as apiKeysCreated from "./migrations/0008_api_keys_created.ts"
import * as apiKeysVersion from "./migrations/0009_api_keys_version.ts"
import * as auditLog from "./migrations/0010_audit_log.ts"
import * as keyUsage from "./migrations/0011_key_usage.ts"
import * as formerSecrets from "./migrations/0012_former_secrets.ts"
import * as Outage from "./Outage.ts"
import * as PostgresSocket from "./PostgresSocket.ts"
import { ServerSelection } from "./ServerSelection.ts"

/** The migrations in order. Their numbers are the versions of the schema. */
export const migrations = {
  "0001_pets": pets,
  "0002_api_keys": apiKeys,
  "0003_rate_limits": rateLimits,
  "0004_idempotency_keys": idempotencyKeys,
  "0005_pets_changes": petsChanges,
  "0006_updated_in_place": updatedInPlace,
  "0007_api_keys_changes": apiKeysChanges,
  "0008_api_keys_created": apiKeysCreated,
  "0009_api_keys_version": apiKeysVersion,
  "0010_audit_log": auditLog,
  "0011_key_usage": keyUsage,
  "0012_former_secrets": formerSecrets
}
/** The newest version of the schema. */
const newest = Math.max(...Object.keys(migrations).map((name) => Number.parseInt(name, 10)))

/** The schema of the database was made by a later version of the service. */
export class DatabaseIsNewer extends Data.TaggedError("DatabaseIsNewer")<{ readonly version: number }> {
  override readonly message =
    `The database has schema version ${this.version}, which is newer than version ${newest} of this service. ` +
    "Start the version of the service that migrated it, or a later one."
}

/** The server is a standby, or replays its log after a crash or a backup. */
class DatabaseInRecovery extends Data.TaggedError("DatabaseInRecovery") {
  override readonly message =
    "The server is in recovery and accepts no writes. Promote it, set DATABASE_URL to the primary, " +
    "or add target_session_attrs=standby to read only."
}

/** The schema of a replica is of an earlier version. A process that uses the primary migrates it. */
class SchemaIsOlder extends Data.TaggedError("SchemaIsOlder")<{ readonly version: number }> {
  override readonly message =
    `The database has schema version ${this.version}, and this version of the service needs ` +
    `${newest}. Start a process of this version that uses the primary first.`
}

/**
 * Migrates the schema to the newest version. Processes that start together wait for the first. On a replica it checks
 * that the schema has the newest version.
 */
const bringUpToDate = Effect.gen(function*() {
  const readsOnly = yield* IsReplica
  const sql = yield* SqlClient.SqlClient
  const [server] = yield* sql<{ readonly isInRecovery: boolean }>`SELECT pg_is_in_recovery() AS "isInRecovery"`
  yield* server?.isInRecovery === true && !readsOnly ? new DatabaseInRecovery() : Effect.void
  const version = yield* readsOnly ? MigrationRunner.currentVersion : MigrationRunner.runMigrations(migrations)
  yield* version > newest ? new DatabaseIsNewer({ version }) : Effect.void
  yield* version < newest ? new SchemaIsOlder({ version }) : Effect.void
})
export const migrate = Layer.effectDiscard(bringUpToDate)

/** The maximum time that the service waits for the server at its start. */
const timeout = Duration.seconds(30)

/** Whether the server may be usable soon: it is in recovery or starts, or another process will migrate it. */
const mayRecover = (failure: Effect.Error<typeof bringUpToDate>): boolean => {
  if (failure._tag === "DatabaseInRecovery" || failure._tag === "SchemaIsOlder") return true
  const error = MigrationRunner.sqlErrorOf(failure)
  return error !== undefined && Outage.isStarting(error)
}

/** The server cancels statements that take longer. */
const statementTimeoutMs = 3_500

/** PgBouncer rejects the parameter, or ignores it if it is one of its `ignore_startup_parameters`. */
class PoolerInFront extends Data.TaggedError("PoolerInFront") {
  override readonly message = "DATABASE_URL: the server does not accept the parameter statement_timeout. " +
    "Add pgbouncer=true if a pooler is in front of it."
}

/** Fails if sessions do not have the parameters of their startup: prepared statements would fail at random as well. */
const checkStatementTimeout = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  const [row] = yield* sql<{ readonly ms: string }>`
    SELECT setting AS ms FROM pg_settings WHERE name = 'statement_timeout'`
  yield* row?.ms === String(statementTimeoutMs) ? Effect.void : new PoolerInFront()
})

const databaseUrl = Config.option(Settings.databaseUrl.config)

/** Whether the database is embedded in this process. */
export const isEmbedded = Config.map(databaseUrl, Option.isNone)

/** `DATABASE_URL` was valid when the settings were checked, but a file that it names cannot be read any more. */
class InvalidDatabaseUrl extends Data.TaggedError("InvalidDatabaseUrl")<{ readonly problem: string }> {
  override readonly message = `DATABASE_URL: expected ${Settings.databaseUrl.form} with ${this.problem}`
}

const server = (target: ConnectionString, maxConnections: number, countConnection: (connection: Duplex) => Duplex) => {
  const { connectTimeoutSeconds, database, isPooled, password, servers, username } = target
  const [first] = servers
  // With several servers, the next one is tried soon.
  const seconds = connectTimeoutSeconds ?? (servers.length === 1 ? 5 : 2)
  const selection = new ServerSelection(servers, target.targetSessionAttrs)
  const options = {
    host: first.host,
    port: first.port,
    username,
    password,
    database,
    applicationName: target.applicationName ?? "petstore",
    startupOptions: target.options,
    // A pooler gives each transaction another session, which has not prepared the statement.
    prepare: !isPooled,
    connectTimeout: seconds === 0 ? "Infinity" : Duration.seconds(seconds),
    stream: () => selection.open(PostgresSocket.open)
  } as const
  // Migrations run without `statement_timeout`. One connection runs the migration. A second one reports the holder of
  // the lock that it waits for. A third one holds the advisory lock.
  const attempt = Effect.provide(
    Effect.provideService(bringUpToDate, IsReplica, isReplica(target)),
    PgClient.layer({ ...options, maxConnections: 3 })
  ).pipe(
    // Each attempt to connect uses one of the servers.
    Effect.retry({ while: mayRecover, times: servers.length - 1 })
  )
  const migrated = Effect.catchIf(attempt, mayRecover, (error) =>
    Effect.andThen(
      Effect.logWarning(`Waiting for the database: ${describe(Cause.fail(error))}`),
      Effect.retry(attempt, {
        while: mayRecover,
        schedule: Schedule.upTo(Schedule.spaced("1 second"), { duration: timeout })
      })
    ))
  return PgClient.layer({
    ...options,
    maxConnections,
    multiplex: true,
    // One statement at a time on each connection: a statement that waits for a lock must not delay others. Statements
    // serve many requests, so few are in flight.
    multiplexConcurrency: 1,
    stream: () => countConnection(selection.open(isPooled ? PostgresSocket.openPooled : PostgresSocket.openWatched)),
    startupParameters: isPooled ? {} : { statement_timeout: String(statementTimeoutMs) }
  }).pipe(
    Layer.tap((services) => isPooled ? Effect.void : Effect.provide(checkStatementTimeout, services)),
    Layer.catchTag(
      "SqlError",
      (error) =>
        Layer.effectContext<PgClient.PgClient | SqlClient.SqlClient, SqlError.SqlError | PoolerInFront, never>(
          Effect.fail(Outage.isUnsupportedParameter(error) ? new PoolerInFront() : error)
        )
    ),
    Layer.provide(Layer.effectDiscard(migrated)),
    Layer.merge(Layer.succeed(IsReplica, isReplica(target)))
  )
}

const embedded = Layer.unwrap(Effect.gen(function*() {
  // Loads PGlite only when `DATABASE_URL` is not set.
  const EmbeddedDatabase = yield* Effect.promise(() => import("./EmbeddedDatabase.ts"))
  return migrate.pipe(Layer.provideMerge(EmbeddedDatabase.layer(yield* dataDirectory)))
}))

type Opened = ReturnType<typeof server> | typeof embedded

/** Connects to a server in `DATABASE_URL` (PostgreSQL 15 or later), or opens the database in `DATA_DIR`. */
export const layer = Layer.unwrap(Effect.gen(function*(): Effect.fn.Return<
  Layer.Layer<Layer.Success<Opened>, Layer.Error<Opened>>,
  Config.ConfigError | InvalidDatabaseUrl
> {
  const url = yield* databaseUrl
  if (Option.isNone(url)) return embedded
  const target = parse(Redacted.value(url.value))
  const maxConnections = yield* Settings.databaseMaxConnections.config
  return server(
    yield* Effect.mapError(Effect.fromResult(target), (problem) => new InvalidDatabaseUrl({ problem })),
    maxConnections,
    yield* ConnectionMetrics.makeCountConnection(maxConnections)
  )
}))
