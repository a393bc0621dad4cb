import { Config, Duration } from "effect"
import { Settings } from "./Settings.ts"

/** The options of the API keys on the database (`api-keys/SqlApiKeys.ts`). */
export const apiKeyOptions = Config.all({
  auditRetention: Config.map(Settings.auditRetentionDays.config, Duration.days),
  usageRetention: Config.map(Settings.usageRetentionDays.config, Duration.days)
})
