import { Config, Duration } from "effect"
import { Settings } from "./Settings.ts"

/** The options of `api-keys/SqlApiKeys.ts`, from settings. */
export const apiKeyOptions = Config.all({
  auditRetention: Config.map(Settings.auditRetentionDays.config, Duration.days),
  usageRetention: Config.map(Settings.usageRetentionDays.config, Duration.days)
})
