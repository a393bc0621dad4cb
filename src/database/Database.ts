import { PgClient } from "@effect/sql-pg"
import { Cause, Config, Data, Effect, Layer, Metric, Option, Record, Schedule } from "effect"
import { Migrator, SqlClient, SqlError } from "effect/sql"
import { connect, type Socket } from "node:net"
import * as Brand from "../api/Brand.ts"
import type { DatabaseUrl } from "../config/ConnectionUrls.ts"
import { commandPrefix, Settings } from "../config/Settings.ts"
import { describeCause } from "../observability/LogReferences.ts"
import { gauge } from "../observability/MetricConstructors.ts"
import { dataDirectory, hasEmbeddedDatabase } from "./DataDirectory.ts"
import baseline from "./migrations/0001_baseline.ts"
import keysEnabled from "./migrations/0002_keys_enabled.ts"
import growth from "./migrations/0003_growth.ts"
import usage from "./migrations/0004_usage.ts"
import * as Outage from "./Outage.ts"

const connections = gauge("database_connections", "Open connections to the database.")
const connectionLimit = gauge("database_max_connections", "DATABASE_MAX_CONNECTIONS.")

const migrations = {
  "0001_baseline": baseline,
  "0002_keys_enabled": keysEnabled,
  "0003_growth": growth,
  "0004_usage": usage
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

class PoolerInFront extends Data.TaggedError("PoolerInFront") {
  override readonly message = "DATABASE_URL: the server does not accept the parameter statement_timeout. " +
    "Add pgbouncer=true if a pooler is in front of it."
}

export const schemaVersion = (sql: SqlClient.SqlClient) =>
  Effect.map(
    sql<{ readonly version: number }>`SELECT max(migration_id) AS version FROM ${sql(migrationsTable)}`,
    ([latest]) => latest?.version ?? 0
  )

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

const mayRecover = (failure: Effect.Error<typeof runMigrations> | Config.ConfigError): boolean => {
  if (failure._tag === "DatabaseInRecovery") return true
  const error = failure._tag === "MigrationError" ? failure.cause : failure
  return SqlError.isSqlError(error) && Outage.isTransientAtStart(error)
}

/** PostgreSQL's `statement_timeout`. Poolers reject it, so behind a pooler callers need their own timeouts. */
const statementTimeoutMs = 2_500

/** Longer than `statementTimeoutMs`: without a pooler, a live server responds to each statement within this time. */
const maxSilenceMs = 3_000
const cancelTimeoutMs = 500

/**
 * Opens the driver's sockets, and destroys the sockets of a dead server, because the driver has no read timeout. A
 * socket without traffic is dead if it never received a byte, or if the driver has opened another socket since the last
 * traffic: the driver opens a socket to cancel a statement, or when all sockets are in use. All other sockets
 * without traffic are idle and stay open.
 */
const makeOpen = ({ host, port }: DatabaseUrl) => {
  let openedAt = 0
  return (): Socket => {
    openedAt = performance.now()
    const socket = host.startsWith("/") ? connect(`${host}/.s.PGSQL.${port}`) : connect({ host, port, noDelay: true })
    return socket.setTimeout(maxSilenceMs, () => {
      const { bytesRead, bytesWritten } = socket
      // Leave the driver time to cancel a statement, and to read bytes that arrived while this process was paused.
      setTimeout(() => {
        if (socket.bytesRead !== bytesRead || socket.bytesWritten !== bytesWritten) return
        const isDead = bytesRead === 0 || performance.now() - openedAt < maxSilenceMs + cancelTimeoutMs
        if (isDead) socket.destroy()
        else socket.setTimeout(maxSilenceMs)
      }, cancelTimeoutMs).unref()
    })
  }
}

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
export const withoutTimeout = (target: DatabaseUrl) => PgClient.layer({ ...optionsOf(target, 0), maxConnections: 1 })

const warnOfEmbeddedDatabase = Effect.gen(function*() {
  const [directory, sql] = [yield* Settings.dataDir.config, yield* SqlClient.SqlClient]
  const rows = sql`SELECT FROM ${sql(Brand.collection)} UNION ALL SELECT FROM api_keys LIMIT 1`
  if (!hasEmbeddedDatabase(directory) || (yield* rows).length > 0) return
  yield* Effect.logWarning(
    `The database is empty, but DATA_DIR, "${directory}", has an embedded database. To copy its data, stop the ` +
      `service, and run, with the same DATA_DIR and DATABASE_URL: ${commandPrefix} import`
  )
})

const openPool = Effect.fnUntraced(function*(target: DatabaseUrl) {
  const maxConnections = yield* Settings.databaseMaxConnections.config
  yield* Metric.update(connectionLimit, maxConnections)
  const attempt = Effect.provide(Effect.andThen(runMigrations, warnOfEmbeddedDatabase), withoutTimeout(target))
  yield* Effect.catchIf(attempt, mayRecover, (error) =>
    Effect.andThen(
      Effect.logWarning(`Waiting for the database: ${describeCause(Cause.fail(error))}`),
      Effect.retry(attempt, { while: mayRecover, schedule: startupRetries })
    )).pipe(
      Effect.mapError((error) =>
        error._tag === "SqlError" && Outage.isUnsupportedParameter(error) ? new PoolerInFront() : error
      )
    )
  const open = makeOpen(target)
  const context = yield* Effect.context()
  const stream = (): Socket => {
    const socket = open()
    connections.modifyUnsafe(1, context)
    return socket.on("close", () => connections.modifyUnsafe(-1, context))
  }
  return yield* Layer.build(PgClient.layer({ ...optionsOf(target, statementTimeoutMs), maxConnections, stream }))
})

export const layer = Layer.effectContext(Effect.gen(function*() {
  const url = yield* databaseUrl
  if (Option.isSome(url)) return yield* openPool(url.value)
  const EmbeddedDatabase = yield* Effect.promise(() => import("./EmbeddedDatabase.ts"))
  return yield* Layer.build(Layer.provideMerge(migrate, EmbeddedDatabase.layer(yield* dataDirectory)))
}))
