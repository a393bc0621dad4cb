/** The database of the service: a PostgreSQL server, or one embedded in this process. */
import { PgClient } from "@effect/sql-pg"
import { Config, Effect, Layer, Option } from "effect"
import { Migrator } from "effect/sql"
import { dataDirectory } from "./DataDirectory.ts"
import pets from "./migrations/0001_pets.ts"
import apiKeys from "./migrations/0002_api_keys.ts"
import rateLimits from "./migrations/0003_rate_limits.ts"
import idempotencyKeys from "./migrations/0004_idempotency_keys.ts"
import petsChanges from "./migrations/0005_pets_changes.ts"

/** Brings the schema up to date. Processes that start together wait for the first (a table lock). */
export const migrate = Layer.effectDiscard(
  Migrator.make({})({
    loader: Migrator.fromRecord({
      "0001_pets": pets,
      "0002_api_keys": apiKeys,
      "0003_rate_limits": rateLimits,
      "0004_idempotency_keys": idempotencyKeys,
      "0005_pets_changes": petsChanges
    }),
    table: "petstore_migrations"
  })
)

const url = Config.option(Config.Redacted("DATABASE_URL"))

/** Whether the database lives in this process. */
export const isEmbedded = Config.map(url, Option.isNone)

/** `DATABASE_URL` names a server (PostgreSQL 15 or later); without it, the database lives in `DATA_DIR`. */
export const layer = Layer.unwrap(Effect.gen(function*() {
  const server = yield* url
  const database = Option.isSome(server)
    ? PgClient.layer({
      url: server.value,
      applicationName: "petstore",
      multiplex: true,
      connectTimeout: "5 seconds",
      startupParameters: { statement_timeout: "5000" }
    })
    // Only who has no server loads one.
    : (yield* Effect.promise(() => import("./EmbeddedDatabase.ts"))).layer(yield* dataDirectory)
  return migrate.pipe(Layer.provideMerge(database))
}))
