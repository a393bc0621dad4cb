/** Writes logs to standard error, one line per event, as JSON or as text for people. */
import { Clock, Config, Effect, Layer, Logger, type LogLevel, Option, References } from "effect"
import * as Settings from "../config/Settings.ts"
import { JsonLines } from "./JsonLines.ts"
import * as LogWriter from "./LogWriter.ts"

export { describe } from "./Failure.ts"

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
    Layer.succeed(JsonLines, jsonLines),
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
