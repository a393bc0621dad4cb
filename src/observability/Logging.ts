/** Logs: one line an event on standard error, as JSON or for a person to read. */
import { Cause, Config, Effect, Layer, Logger, Predicate, References, Schema } from "effect"
import * as Issue from "../api/Issue.ts"

const level = Config.schema(
  Schema.Literals(["trace", "debug", "info", "warn", "error", "fatal", "none"])
    .transform(["Trace", "Debug", "Info", "Warn", "Error", "Fatal", "None"]),
  "LOG_LEVEL"
).pipe(Config.withDefault("Info"))

const format = Config.Literals(["json", "pretty"], "LOG_FORMAT")

/** Writes the lines of one turn of the event loop at once: a write for each line costs as much as a request. */
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

/** `LOG_LEVEL` and `LOG_FORMAT`. */
export const layer = Layer.unwrap(Effect.gen(function*() {
  // That nobody reads them any more is no reason to stop.
  process.stderr.on("error", () => {})
  const isJson = (yield* Config.withDefault(format, process.stderr.isTTY ? "pretty" : "json")) === "json"
  const logger = isJson
    ? Logger.map(Logger.formatJson, (yield* lineWriter).write)
    : Logger.consolePretty()
  return Layer.mergeAll(
    Logger.layer([logger]),
    Layer.succeed(Logger.LogToStderr, true), // for the pretty one
    Layer.succeed(References.MinimumLogLevel, yield* level)
  )
}))

/** What went wrong in one line, from what was tried down to why it failed. */
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
