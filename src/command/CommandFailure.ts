/** Describes why the command failed, and chooses its exit code. */
import { Cause, Config, Effect, Exit, Predicate, Schema } from "effect"
import { CliError } from "effect/cli"
import { ErrorBody } from "../api/Errors.ts"
import * as Issue from "../api/Issue.ts"
import { PetstoreClientError } from "../client/PetstoreClient.ts"
import { describeError } from "../config/Setting.ts"
import { addressVariable, baseUrl, InvalidAddress, tokenSource } from "./AdminConnection.ts"

/** The exit codes, with the words of docs/command.md. */
export const exitCodes = [
  { code: 0, meaning: "The command succeeded." },
  {
    code: 1,
    meaning: "The service rejected the request or does not respond, there is no admin token, or the operator did " +
      "not confirm."
  },
  { code: 2, meaning: "A flag, an argument or an environment variable is invalid. Nothing was sent." },
  { code: 130, meaning: "Ctrl-C ended the command." }
] as const

const isApiError = Schema.is(ErrorBody)

const isConfigError = (failure: unknown): failure is Config.ConfigError => failure instanceof Config.ConfigError

const isUsageError = (failure: unknown): boolean =>
  CliError.isCliError(failure) || failure instanceof InvalidAddress || isConfigError(failure) ||
  failure instanceof PetstoreClientError && failure.reason === "invalid_input" || Schema.isSchemaError(failure)

export const exitCodeOf = (exit: Exit.Exit<unknown, unknown>): number => {
  if (Exit.isSuccess(exit)) return 0
  if (Cause.hasInterruptsOnly(exit.cause)) return 130
  const failure = Cause.squash(exit.cause)
  // The command has printed the help of a group without a subcommand.
  if (CliError.isCliError(failure) && failure._tag === "ShowHelp" && failure.errors.length === 0) return 0
  return isUsageError(failure) ? 2 : 1
}

/** Repeats a value in a message, so that it has no control characters and fits into a line. */
const quote = (value: string): string => JSON.stringify(value.length > 60 ? `${value.slice(0, 60)}…` : value)

/** Returns words separated by commas, the last one after "or". */
const alternatives = (words: ReadonlyArray<string>): string =>
  words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} or ${words.at(-1)}`

const suggest = (suggestions: ReadonlyArray<string>): string =>
  suggestions.length === 0 ? "See --help" : `Did you mean ${alternatives(suggestions)}?`

const lowerFirst = (text: string): string => text.charAt(0).toLowerCase() + text.slice(1)

/** Returns what a flag expects, from the message of Effect: choices with bars, a kind of number, or a sentence. */
const describeExpected = (expected: string): string =>
  expected.includes(" | ")
    ? `expected ${alternatives(expected.replaceAll("\"", "").split(" | "))}`
    : /finite number|integer/i.test(expected)
    ? "expected a whole number"
    : /^expected\b/i.test(expected)
    ? lowerFirst(expected)
    : `expected ${expected}`

/** Describes one error of the command line. */
const describeCliError = (error: CliError.CliError): string => {
  switch (error._tag) {
    case "UnrecognizedOption":
      return `${error.option}: unknown flag of ${error.command?.join(" ") ?? "petstore"}. ${suggest(error.suggestions)}`
    case "MissingOption":
      return `--${error.option}: required`
    case "MissingArgument":
      return `<${error.argument}>: required`
    case "UnexpectedArgument":
      return `${error.arguments.map(quote).join(", ")}: unexpected argument`
    case "InvalidValue": {
      const name = error.kind === "flag" ? `--${error.option}` : `<${error.option}>`
      const expected = describeExpected(error.expected)
      return error.value === "" ? `${name}: ${expected}` : `${name}: ${expected}, not ${quote(error.value)}`
    }
    case "UnknownSubcommand":
      return `${quote(error.subcommand)}: unknown subcommand of ${error.parent?.join(" ") ?? "petstore"}. ${
        suggest(error.suggestions)
      }`
    default:
      return error.message
  }
}

const describeClientError = (error: PetstoreClientError) =>
  Effect.map(baseUrl, (url) =>
    error.reason === "unreachable"
      ? `${url} does not respond. Start the service, or set ${addressVariable} to its management port.`
      : `The server at ${url} is not the management port of this service. Correct ${addressVariable}.`)

const describe = (failure: unknown) => {
  if (isApiError(failure)) {
    return failure.status !== 401
      ? Effect.succeed(failure.message)
      : Effect.map(tokenSource, (source) => `${failure.message} (The command took it from ${source}.)`)
  }
  if (CliError.isCliError(failure)) {
    const errors = failure._tag === "ShowHelp" ? failure.errors : [failure]
    return Effect.succeed(errors.map(describeCliError).join("\n"))
  }
  if (failure instanceof PetstoreClientError && failure.reason !== "invalid_input") return describeClientError(failure)
  const cause = failure instanceof PetstoreClientError ? failure.cause : failure
  if (isConfigError(cause)) return Effect.succeed(describeError(cause))
  if (Schema.isSchemaError(cause)) return Effect.succeed(Issue.describe(cause.issue, (path) => path.join(".")))
  const text = Predicate.hasProperty(cause, "message") ? String(cause.message) : String(cause)
  return Effect.succeed(text.replaceAll(/\s+/g, " "))
}

/** Hides the secrets of keys in a message that repeats arguments. */
const hideSecrets = (message: string): string => message.replaceAll(/psk_[0-9A-Za-z]+/g, "psk_…")

/** The message for the operator: one line per error. It is empty when the command has printed its help instead. */
export const describeFailure = (failure: unknown): Effect.Effect<string> =>
  // A setting that the description needs can be invalid itself.
  describe(failure).pipe(Effect.catch((error) => Effect.succeed(error.message)), Effect.map(hideSecrets))
