import { Cause, Config, Context, type Logger, Schema } from "effect"
import { describeError } from "../config/SettingForms.ts"
import { describeChain } from "./ErrorChain.ts"

/**
 * The JSON logger, and the function `write` that outputs its lines. If no other logger is installed, the access log
 * calls `write` directly, because Effect's logger takes a third of the CPU time of a list (docs/performance.md).
 */
export const JsonLines = Context.Reference<
  { readonly logger: Logger.Logger<unknown, void>; readonly write: (line: string) => void } | undefined
>("petstore/observability/JsonLines", { defaultValue: () => undefined })

/** The setting `ACCESS_LOG`. */
export const AccessLogEnabled = Context.Reference<boolean>("petstore/observability/AccessLogEnabled", {
  defaultValue: () => true
})

const isSettingError = (error: object): error is Config.ConfigError & { readonly cause: Schema.SchemaError } =>
  error instanceof Config.ConfigError && Schema.isSchemaError(error.cause)

/** Describes an error and its causes in one line. Omits the values of settings, because they may be secrets. */
export const describeCause = (cause: Cause.Cause<unknown>): string =>
  describeChain(Cause.squash(cause), (error) => isSettingError(error) ? describeError(error) : undefined)
