import { Cause, Config, Schema } from "effect"
import { describeError } from "../config/SettingForms.ts"
import { describeChain } from "./ErrorChain.ts"

const isSettingError = (error: object): error is Config.ConfigError & { readonly cause: Schema.SchemaError } =>
  error instanceof Config.ConfigError && Schema.isSchemaError(error.cause)

/**
 * Describes an error and its causes in one line. Describes an invalid setting by `describeError`, which does not quote
 * values that may be secrets. A failure that has no message is described by its text.
 */
export const describeCause = (cause: Cause.Cause<unknown>): string =>
  describeChain(Cause.squash(cause), (error) => isSettingError(error) ? describeError(error) : undefined) ||
  String(Cause.squash(cause))
