/**
 * Turns settings into the options of `api-keys/`, `database/` and `rate-limit/`. Those for Redis are in
 * `RedisSettings.ts`. No file of these three folders imports `config/` or `api/Brand.ts`, so that another service can
 * use them.
 */
import { Config, Duration, Option } from "effect"
import * as Brand from "../api/Brand.ts"
import { databaseErrors } from "../api/DatabaseErrors.ts"
import { gauge, histogramOfSeconds } from "../observability/MetricConstructors.ts"
import { commandPrefix, Settings } from "./Settings.ts"

const server = Config.map(Config.option(Settings.databaseUrl.config), Option.getOrUndefined)

export const isEmbedded = Config.map(server, (found) => found === undefined)

export const databaseNames = {
  server: Settings.databaseUrl.name,
  directory: Settings.dataDir.name,
  migrates: Settings.migrate.name,
  migrateCommand: `${commandPrefix} migrate`,
  importCommand: `${commandPrefix} import`,
  migrationsTable: `${Brand.name}_migrations`
}

/** The options of `database/Database.ts`. */
export const databaseOptions = Config.all({
  server,
  directory: Settings.dataDir.config,
  maxConnections: Settings.databaseMaxConnections.config,
  migrates: Config.map(Settings.migrate.config, (word) => word === "on")
}).pipe(
  Config.map((options) => ({
    ...options,
    firstTables: [Brand.collection, "api_keys"],
    names: databaseNames,
    metrics: {
      connections: gauge("database_connections", "Open connections to the database."),
      maxConnections: gauge("database_max_connections", `${Settings.databaseMaxConnections.name}.`)
    }
  }))
)

/** The options of `rate-limit/SavedStates.ts`. */
export const savedStatesOptions = {
  errors: databaseErrors,
  writeDurations: histogramOfSeconds(
    "rate_limit_write_duration",
    "Duration of writes of request counts to the database."
  )
}

/** The options of `api-keys/SqlApiKeys.ts`. */
export const apiKeyOptions = Config.all({
  auditRetention: Config.map(Settings.auditRetentionDays.config, Duration.days),
  usageRetention: Config.map(Settings.usageRetentionDays.config, Duration.days)
})
