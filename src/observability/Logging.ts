/** Writes logs to standard error, one line per event, as JSON or as text for people. */
import { Cause, Config, Effect, Layer, Logger, Predicate, References, Schema } from "effect"
import * as Issue from "../api/Issue.ts"

const level = Config.schema(
  Schema.Literals(["trace", "debug", "info", "warn", "error", "fatal", "none"])
    .transform(["Trace", "Debug", "Info", "Warn", "Error", "Fatal", "None"]),
  "LOG_LEVEL"
).pipe(Config.withDefault("Info"))

const format = Config.Literals(["json", "pretty"], "LOG_FORMAT")

/**
 * Collects the lines of one turn of the event loop and writes them at once. A write per line costs as much as a
 * request. The writer flushes pending lines when the layer closes and when the process exits.
 */
const lineWriter = Effect.acquireRelease(
  Effect.sync(() => {
    let lines = ""
    const flush = () => {
      process.stderr.write(lines)
      lines = ""
    }
    process.on("exit", flush)
    const write = (line: string): void => {
      if (lines === "") setImmediate(flush)
      lines += `${line}\n`
    }
    return { flush, write }
  }),
  ({ flush }) =>
    Effect.sync(() => {
      flush()
      process.off("exit", flush)
    })
)

/**
 * The logger that `LOG_LEVEL` and `LOG_FORMAT` configure. The default level is `info`. The default format is `pretty`
 * on a terminal, else `json`. Fails with a `ConfigError`.
 */
export const layer = Layer.unwrap(Effect.gen(function*() {
  // The service continues without logs when the reader of standard error has gone.
  process.stderr.on("error", () => {})
  const isJson = (yield* Config.withDefault(format, process.stderr.isTTY ? "pretty" : "json")) === "json"
  const logger = isJson
    ? Logger.map(Logger.formatJson, (yield* lineWriter).write)
    : Logger.consolePretty()
  return Layer.mergeAll(
    Logger.layer([logger]),
    Layer.succeed(Logger.LogToStderr, true), // moves the pretty logger from standard output
    Layer.succeed(References.MinimumLogLevel, yield* level)
  )
}))

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
      ? Issue.describe(error.cause.issue, (path) => path.join("_"))
      : String(error.message)
    if (!messages.some((outer) => outer.includes(message))) messages.push(message)
    error = causeOf(error)
  }
  return messages.filter((message) => message !== "").join(": ").replaceAll(/\s+/g, " ")
}

const isSettingError = (error: object): error is Config.ConfigError & { readonly cause: Schema.SchemaError } =>
  error instanceof Config.ConfigError && Schema.isSchemaError(error.cause)

const causeOf = (error: object): unknown => "cause" in error && !isSettingError(error) ? error.cause : undefined
