/** Writes logs to standard error, one line per event, as JSON or as text for people. */
import { Clock, Config, Effect, Layer, Logger, type LogLevel, Option, References } from "effect"
import * as Settings from "../config/Settings.ts"
import { JsonLines } from "./JsonLines.ts"
import * as LogWriter from "./LogWriter.ts"
import * as PrettyLines from "./PrettyLines.ts"

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
  const { logger, jsonLines } = yield* isJson ? makeJsonLogger : makePrettyLogger
  return Layer.mergeAll(
    Logger.layer([logger]),
    Layer.succeed(JsonLines, jsonLines),
    Layer.succeed(References.MinimumLogLevel, levels[yield* Settings.logLevel.config])
  )
}))

/** Makes the time of a warning that the writer itself adds. */
const makeTimestamp = Effect.map(Clock.Clock, (clock) => () => new Date(clock.currentTimeMillisUnsafe()).toISOString())

const makeJsonLogger = Effect.gen(function*() {
  const timestamp = yield* makeTimestamp
  const { write } = yield* LogWriter.make(
    process.stderr,
    (message) => JSON.stringify({ message, level: "WARN", timestamp: timestamp(), annotations: {}, spans: {} })
  )
  const logger = Logger.map(Logger.formatJson, write)
  return { logger, jsonLines: { logger, write } }
})

const makePrettyLogger = Effect.gen(function*() {
  const timestamp = yield* makeTimestamp
  const { write } = yield* LogWriter.make(process.stderr, (message) =>
    PrettyLines.format(
      { message, level: "WARN", timestamp: timestamp(), annotations: {}, cause: undefined },
      process.stderr
    ))
  const logger = Logger.map(Logger.formatStructured, (entry) => write(PrettyLines.format(entry, process.stderr)))
  return { logger, jsonLines: undefined }
})
