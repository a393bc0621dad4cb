/** Writes logs to standard error, one line per event, as JSON or as text for people. */
import {
  Cause,
  Clock,
  Config,
  Effect,
  Layer,
  Logger,
  type LogLevel,
  Option,
  Predicate,
  References,
  Schema
} from "effect"
import * as Settings from "../config/Settings.ts"
import * as LogWriter from "./LogWriter.ts"

const levels = {
  trace: "Trace",
  debug: "Debug",
  info: "Info",
  warn: "Warn",
  error: "Error",
  fatal: "Fatal",
  none: "None"
} as const satisfies Record<string, LogLevel.LogLevel>

/**
 * The logger that `LOG_LEVEL` and `LOG_FORMAT` configure. Fails with a `ConfigError`.
 */
export const layer = Layer.unwrap(Effect.gen(function*() {
  // The service continues without logs when the reader of standard error has gone.
  process.stderr.on("error", () => {})
  const format = yield* Config.option(Settings.logFormat.config)
  const isJson = Option.getOrElse(format, () => process.stderr.isTTY ? "pretty" : "json") === "json"
  const { logger, jsonLines } = isJson
    ? yield* makeJsonLogger
    : { logger: Logger.consolePretty(), jsonLines: undefined }
  return Layer.mergeAll(
    Logger.layer([logger]),
    Layer.succeed(LogWriter.JsonLines, jsonLines),
    Layer.succeed(Logger.LogToStderr, true), // moves the pretty logger from standard output
    Layer.succeed(References.MinimumLogLevel, levels[yield* Settings.logLevel.config])
  )
}))

const makeJsonLogger = Effect.gen(function*() {
  const clock = yield* Clock.Clock
  const formatWarning = (message: string): string => {
    const timestamp = new Date(clock.currentTimeMillisUnsafe()).toISOString()
    return JSON.stringify({ message, level: "WARN", timestamp, annotations: {}, spans: {} })
  }
  const { write } = yield* LogWriter.make(process.stderr, formatWarning)
  const logger = Logger.map(Logger.formatJson, write)
  return { logger, jsonLines: { logger, write } }
})

/**
 * Describes a failure in one line, from the failed operation down to its innermost cause, without repeated messages.
 * An invalid setting is described by its name and expected form, never by its value.
 */
export const describe = (cause: Cause.Cause<unknown>): string => {
  const messages: Array<string> = []
  const seen = new Set<unknown>()
  let error = Cause.squash(cause)
  while (Predicate.hasProperty(error, "message") && !seen.has(error)) {
    seen.add(error)
    const message = isSettingError(error)
      ? Settings.describeError(error)
      : String(error.message)
    if (!messages.some((outer) => outer.includes(message))) messages.push(message)
    error = causeOf(error)
  }
  return messages.filter((message) => message !== "").join(": ").replaceAll(/\s+/g, " ")
}

const isSettingError = (error: object): error is Config.ConfigError & { readonly cause: Schema.SchemaError } =>
  error instanceof Config.ConfigError && Schema.isSchemaError(error.cause)

const causeOf = (error: object): unknown => "cause" in error && !isSettingError(error) ? error.cause : undefined
