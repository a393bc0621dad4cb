import { Config, Effect, Layer, Logger, Option, References, String } from "effect"
import { styleText } from "node:util"
import { Settings } from "../config/Settings.ts"
import { maxLogClose } from "../config/Shutdown.ts"
import { AccessLogEnabled, JsonLines } from "./LogReferences.ts"
import { counter, startAtZero } from "./MetricConstructors.ts"

const maxPendingCharacters = 4 * 1024 * 1024

const dropped = counter(
  "log_lines_dropped_total",
  "Log lines that were dropped because the reader of standard error is slow."
)

/**
 * Ignores write errors, so that the process continues without logs if the reader of standard error is gone, or the disk
 * of its file is full. `stderr.write` reports such an error as an event. Without a listener, the event would end the
 * process.
 */
const ignoreError = (): void => {}

/**
 * Returns a function that writes a line to standard error, or drops it if the reader is slow. Writes the lines of an
 * event-loop turn together, because a write for each line would take a tenth of a request's CPU.
 */
const makeWrite = Effect.gen(function*() {
  yield* startAtZero([dropped])
  const context = yield* Effect.context()
  const { stderr } = process
  let lines = ""
  const flush = () => {
    stderr.write(lines)
    lines = ""
  }
  stderr.on("error", ignoreError)
  process.on("exit", flush)
  yield* Effect.addFinalizer(() =>
    Effect.callback<void>((resume) => {
      flush()
      // Keep the error listener until the next event-loop turn, because Node emits a write error after this callback.
      stderr.write("", () => void setImmediate(() => resume(Effect.void)))
    }).pipe(
      Effect.timeoutOption(maxLogClose),
      Effect.andThen(Effect.sync(() => {
        process.off("exit", flush)
        stderr.off("error", ignoreError)
      }))
    )
  )
  return (line: string): void => {
    if (lines.length + stderr.writableLength > maxPendingCharacters) return dropped.updateUnsafe(1, context)
    if (lines === "") setImmediate(flush)
    lines += `${line}\n`
  }
})

type Entry = typeof Logger.formatStructured extends Logger.Logger<unknown, infer A> ? A : never

type Color = Parameters<typeof styleText>[0]

const colors: Readonly<Record<string, Color>> = { INFO: "green", WARN: "yellow", ERROR: "red", FATAL: "red" }

const style = (color: Color, text: string): string => styleText(color, text, { stream: process.stderr })

/** Escapes control characters, which could manipulate a terminal. */
const escape = (text: string): string =>
  // oxlint-disable-next-line no-control-regex -- these are the characters to escape
  text.replaceAll(/[\u0000-\u001f\u007f-\u009f]/g, (character) =>
    `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`)

const formatText = (value: unknown): string => escape(typeof value === "string" ? value : JSON.stringify(value))

export const formatPretty = ({ annotations, cause, level, message, timestamp }: Entry): string => {
  const fields = Object.entries(annotations).map(([name, value]) => ` ${style("dim", `${name}=`)}${formatText(value)}`)
  const trace = cause === undefined ? "" : `\n${cause.split("\n").map((line) => `  ${escape(line)}`).join("\n")}`
  const time = style("dim", timestamp.slice(11))
  return `${time} ${style(colors[level] ?? "gray", level.padEnd(5))} ${formatText(message)}${fields.join("")}${trace}`
}

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
    Layer.succeed(References.MinimumLogLevel, String.capitalize(yield* Settings.logLevel.config))
  )
}))
