/** Logs: one line an event on standard error, as JSON or for a person to read. */
import { Cause, Config, Effect, Layer, Logger, Predicate, References, Schema } from "effect"
import * as Issue from "./api/Issue.ts"

const level = Config.Literals(["trace", "debug", "info", "warn", "error", "fatal", "none"], "LOG_LEVEL").pipe(
  Config.withDefault("info")
)

const levels = {
  trace: "Trace",
  debug: "Debug",
  info: "Info",
  warn: "Warn",
  error: "Error",
  fatal: "Fatal",
  none: "None"
} as const

const format = Config.Literals(["json", "pretty"], "LOG_FORMAT").pipe(
  Config.withDefault(process.stderr.isTTY ? "pretty" : "json")
)

/** The lines of one turn of the event loop are written at once: a write for each line costs as much as a request. */
const writeLine = (() => {
  let lines = ""
  const flush = () => {
    process.stderr.write(lines)
    lines = ""
  }
  process.on("exit", flush)
  // That nobody reads them any more is no reason to stop.
  process.stderr.on("error", () => {})
  return (line: string): void => {
    if (lines === "") setImmediate(flush)
    lines += `${line}\n`
  }
})()

/** `LOG_LEVEL` and `LOG_FORMAT`. */
export const layer = Layer.unwrap(Effect.gen(function*() {
  const logger = (yield* format) === "json" ? Logger.map(Logger.formatJson, writeLine) : Logger.consolePretty()
  return Layer.mergeAll(
    Logger.layer([logger]),
    Layer.succeed(Logger.LogToStderr, true), // for the pretty one
    Layer.succeed(References.MinimumLogLevel, levels[yield* level])
  )
}))

/** What went wrong in one line, from what was tried down to why it failed. */
export const describe = (cause: Cause.Cause<unknown>): string => {
  const messages: Array<string> = []
  for (let error = Cause.squash(cause); Predicate.hasProperty(error, "message"); error = causeOf(error)) {
    const message = isSettingError(error)
      ? Issue.describe(error.cause.issue, (path) => path.join("_"))
      : String(error.message)
    if (!messages.some((outer) => outer.includes(message))) messages.push(message)
  }
  return messages.filter((message) => message !== "").join(": ").replaceAll(/\s+/g, " ")
}

const isSettingError = (error: object): error is Config.ConfigError & { readonly cause: Schema.SchemaError } =>
  error instanceof Config.ConfigError && Schema.isSchemaError(error.cause)

const causeOf = (error: object): unknown => "cause" in error && !isSettingError(error) ? error.cause : undefined
