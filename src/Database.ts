/** The database of the service: a PostgreSQL server, or one embedded in this process. */
import { PgClient } from "@effect/sql-pg"
import { Cause, Config, Data, Duration, Effect, Layer, Option, Predicate, Redacted, Schedule } from "effect"
import { Migrator, SqlClient } from "effect/sql"
import * as PostgresSocket from "./database/PostgresSocket.ts"
import { dataDirectory } from "./DataDirectory.ts"
import { describe } from "./Logging.ts"
import pets from "./migrations/0001_pets.ts"
import apiKeys from "./migrations/0002_api_keys.ts"
import rateLimits from "./migrations/0003_rate_limits.ts"
import idempotencyKeys from "./migrations/0004_idempotency_keys.ts"
import petsChanges from "./migrations/0005_pets_changes.ts"
import updatedInPlace from "./migrations/0006_updated_in_place.ts"
import apiKeysChanges from "./migrations/0007_api_keys_changes.ts"
import apiKeysCreated from "./migrations/0008_api_keys_created.ts"
import * as Settings from "./Settings.ts"

/** The versions of the schema, the earliest first. */
export const migrations = {
  "0001_pets": pets,
  "0002_api_keys": apiKeys,
  "0003_rate_limits": rateLimits,
  "0004_idempotency_keys": idempotencyKeys,
  "0005_pets_changes": petsChanges,
  "0006_updated_in_place": updatedInPlace,
  "0007_api_keys_changes": apiKeysChanges,
  "0008_api_keys_created": apiKeysCreated
}
const table = "petstore_migrations"
/** The highest number in a migration's name, which is the version that the migrator records. */
const newest = Math.max(...Object.keys(migrations).map((name) => Number.parseInt(name, 10)))

/** A later version of the service made the database what it is. */
export class DatabaseIsNewer extends Data.TaggedError("DatabaseIsNewer")<{ readonly version: number }> {
  override readonly message =
    `The database has schema version ${this.version}, and this version of the service knows ` +
    `none after ${newest}. Run the version that brought it there, or a later one.`
}

/** Brings the schema up to date. Processes that start together wait for the first (a table lock). */
const bringUpToDate = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  yield* Migrator.make({})({ loader: Migrator.fromRecord(migrations), table })
  const [latest] = yield* sql<{ readonly version: number }>`SELECT max(migration_id) AS version FROM ${sql(table)}`
  yield* latest !== undefined && latest.version > newest ? new DatabaseIsNewer(latest) : Effect.void
})
export const migrate = Layer.effectDiscard(bringUpToDate)

/** How long a server may take to be there when the service starts. */
const patience = Duration.seconds(30)

/** A server that is not there yet (the system's codes), on its way up or full (its own codes), or silent. */
const mayCome = (error: Effect.Error<typeof bringUpToDate>): boolean => {
  if (error._tag !== "SqlError") return false
  const { cause } = error.reason
  return Predicate.hasProperty(cause, "code")
    ? /^(ECONN|ENOENT|ENOTFOUND|EAI_AGAIN|EHOST|ENET|ETIMEDOUT|57P|53)/.test(String(cause.code))
    : error.reason._tag === "ConnectionError" && /timed out|closed/.test(describe(Cause.fail(error)))
}

const databaseUrl = Config.option(Settings.databaseUrl)

/** Whether the database lives in this process. */
export const isEmbedded = Config.map(databaseUrl, Option.isNone)

const server = (url: Redacted.Redacted) => {
  const options = { url, applicationName: "petstore", connectTimeout: "5 seconds" } as const
  // On a connection of its own: a migration takes as long as it takes.
  const attempt = Effect.provide(bringUpToDate, PgClient.layer({ ...options, maxConnections: 1 }))
  const migrated = Effect.catchIf(attempt, mayCome, (error) =>
    Effect.andThen(
      Effect.logWarning(`Waiting for the database: ${describe(Cause.fail(error))}`),
      Effect.retry(attempt, {
        while: mayCome,
        schedule: Schedule.upTo(Schedule.spaced("1 second"), { duration: patience })
      })
    ))
  return PgClient.layer({
    ...options,
    multiplex: true,
    // Statements serve many requests, so that few are under way. One that waits for a lock is to hold up no other.
    multiplexConcurrency: 1,
    stream: PostgresSocket.opener(Redacted.value(url)),
    startupParameters: { statement_timeout: "3500" }
  }).pipe(Layer.provide(Layer.effectDiscard(migrated)))
}

/** `DATABASE_URL` names a server (PostgreSQL 15 or later); without it, the database lives in `DATA_DIR`. */
export const layer = Layer.unwrap(Effect.gen(function*() {
  const url = yield* databaseUrl
  if (Option.isSome(url)) return server(url.value)
  // Only who has no server loads one.
  const EmbeddedDatabase = yield* Effect.promise(() => import("./database/EmbeddedDatabase.ts"))
  return migrate.pipe(Layer.provideMerge(EmbeddedDatabase.layer(yield* dataDirectory)))
}))
