import { Cause, Config, Predicate, Schema } from "effect"
import { describeError } from "../config/SettingForms.ts"

const isSettingError = (error: object): error is Config.ConfigError & { readonly cause: Schema.SchemaError } =>
  error instanceof Config.ConfigError && Schema.isSchemaError(error.cause)

const causeOf = (error: object): unknown => "cause" in error && !isSettingError(error) ? error.cause : undefined

/** Describes an error and its causes in one line. Omits the values of settings, because they may be secrets. */
export const describeCause = (cause: Cause.Cause<unknown>): string => {
  const messages: Array<string> = []
  const seen = new Set<unknown>()
  let error = Cause.squash(cause)
  while (Predicate.hasProperty(error, "message") && !seen.has(error)) {
    seen.add(error)
    const message = isSettingError(error) ? describeError(error) : String(error.message)
    if (!messages.some((outer) => outer.includes(message))) messages.push(message)
    error = causeOf(error)
  }
  return messages.filter((message) => message !== "").join(": ").replaceAll(/\s+/g, " ")
}
