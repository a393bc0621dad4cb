/** Writes logs to standard error, one line per event, as JSON or as text for people. */
import { Config, Effect, Layer, Logger, type LogLevel, Metric, Option, References } from "effect"
import { styleText } from "node:util"
import { Settings } from "../config/Settings.ts"
import { AccessLogEnabled, JsonLines } from "./LogLines.ts"
import { startAtZero } from "./Metrics.ts"

/** The maximum of characters that wait for the reader of standard error. Lines beyond it are dropped. */
const maxPending = 4 * 1024 * 1024

/** The maximum time of the last write, when the process ends. */
const maxFlushTime = "1 second"

const dropped = Metric.counter("log_lines_dropped_total", {
  description: "Log lines that were dropped because the reader of standard error is slow.",
  incremental: true
})

/**
 * Returns a function that writes a line. Node's stream never waits for a reader that is slow or has stopped. The lines
 * of one turn of the event loop are one write. With a write for each line, or with a library that writes in Node's
 * thread pool (sonic-boom), a line costs 4 to 7 µs more, a tenth of a request.
 */
const makeWrite = Effect.gen(function*() {
  yield* startAtZero([dropped])
  const context = yield* Effect.context()
  const { stderr } = process
  // The service continues without logs when the reader has gone.
  stderr.on("error", () => {})
  let lines = ""
  const flush = () => {
    stderr.write(lines)
    lines = ""
  }
  process.on("exit", flush)
  yield* Effect.addFinalizer(() =>
    Effect.timeoutOption(
      Effect.callback<void>((resume) => {
        flush()
        stderr.write("", () => resume(Effect.void))
      }),
      maxFlushTime
    )
  )
  return (line: string): void => {
    if (lines.length + stderr.writableLength > maxPending) {
      dropped.updateUnsafe(1, context)
      return
    }
    if (lines === "") setImmediate(flush)
    lines += `${line}\n`
  }
})

/** An entry of the log, as `Logger.formatStructured` returns it. */
type Entry = typeof Logger.formatStructured extends Logger.Logger<unknown, infer A> ? A : never

type Color = Parameters<typeof styleText>[0]

const colors: ReadonlyMap<string, Color> = new Map([
  ["INFO", "green"],
  ["WARN", "yellow"],
  ["ERROR", "red"],
  ["FATAL", "red"]
])

const style = (color: Color, text: string): string => styleText(color, text, { stream: process.stderr })

/** Escapes control characters, with which a text could change what a terminal shows. */
const escape = (text: string): string =>
  // oxlint-disable-next-line no-control-regex -- these are the characters to escape
  text.replaceAll(/[\u0000-\u001f\u007f-\u009f]/g, (character) =>
    `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`)

const formatText = (value: unknown): string => escape(typeof value === "string" ? value : JSON.stringify(value))

/** Formats an entry for people: one line, which an error's stack trace follows. Colors depend on the terminal. */
export const formatPretty = ({ annotations, cause, level, message, timestamp }: Entry): string => {
  const fields = Object.entries(annotations).map(([name, value]) => ` ${style("dim", `${name}=`)}${formatText(value)}`)
  const trace = cause === undefined ? "" : `\n${cause.split("\n").map((line) => `  ${escape(line)}`).join("\n")}`
  const time = style("dim", timestamp.slice(11))
  return `${time} ${style(colors.get(level) ?? "gray", level.padEnd(5))} ${formatText(message)}${
    fields.join("")
  }${trace}`
}

const levels = {
  trace: "Trace",
  debug: "Debug",
  info: "Info",
  warn: "Warn",
  error: "Error",
  fatal: "Fatal",
  none: "None"
} as const satisfies Record<string, LogLevel.LogLevel>

/** The logger that `LOG_LEVEL`, `LOG_FORMAT` and `ACCESS_LOG` configure. Fails with a `ConfigError`. */
export const layer = Layer.unwrap(Effect.gen(function*() {
  const format = yield* Config.option(Settings.logFormat.config)
  const isJson = Option.getOrElse(format, () => process.stderr.isTTY ? "pretty" : "json") === "json"
  const write = yield* makeWrite
  const logger = isJson
    ? Logger.map(Logger.formatJson, write)
    : Logger.map(Logger.formatStructured, (entry) => write(formatPretty(entry)))
  return Layer.mergeAll(
    Logger.layer([logger]),
    Layer.succeed(JsonLines, isJson ? { logger, write } : undefined),
    Layer.succeed(AccessLogEnabled, yield* Settings.accessLog.config),
    Layer.succeed(References.MinimumLogLevel, levels[yield* Settings.logLevel.config])
  )
}))
