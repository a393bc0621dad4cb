/** The flags and arguments that several subcommands of `petstore keys` have. */
import { Effect, Option, Schema } from "effect"
import { Argument, CliError, Flag, type Param, TerminalCapabilities } from "effect/cli"
import * as Issue from "../api/Issue.ts"
import { validValue } from "./AllErrors.ts"

export const jsonFlag = Flag.Boolean("json").pipe(
  Flag.withDescription("Print JSON instead of text"),
  Flag.withDefault(false),
  Flag.withoutNegation
)

export const yesFlag = Flag.Boolean("yes").pipe(
  Flag.withAlias("y"),
  Flag.withDescription("Do not ask for confirmation. Without a terminal, the command never asks"),
  Flag.withDefault(false),
  Flag.withoutNegation
)

export const idArgument = Argument.String("id").pipe(Argument.withDescription("The key's id: key_…"))

/** Describes a flag and gives it a default, which `--help` names. */
export const withNamedDefault = <A extends string | number>(value: A, description: string) => <B>(flag: Flag.Flag<B>) =>
  flag.pipe(Flag.withDescription(`${description} (default: ${value})`), Flag.withDefault(value))

/** Decodes the value of the flag `name` by the schema of a field of the management API. */
export const decodeField = <A, B>(name: string, schema: Schema.ConstraintCodec<B, A>) => {
  const decode = Schema.decodeEffect(schema)
  return (value: A) =>
    Effect.mapError(
      decode(value),
      ({ issue }) => new CliError.ValidationError({ message: Issue.describe(issue, () => `--${name}`) })
    )
}

/** Checks the values of the flag `name` by the schema of a field of the management API. */
export const withFieldSchema = <A, B>(name: string, schema: Schema.ConstraintCodec<B, A>) =>
  Flag.mapEffect(decodeField(name, schema))

const count = Schema.Int.check(Schema.isGreaterThanOrEqualTo(1))

/** The flag `--limit`, the maximum number of printed rows. */
export const limitFlag = Flag.Int("limit").pipe(withFieldSchema("limit", count))

const seconds = Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 86_400 }))

/** The flag `--watch[=SECONDS]`, with which the command repeats its output on a terminal. */
export const watchFlag = Flag.Int("watch").pipe(
  Flag.withOptionalValue("2"),
  Flag.withMetavar("seconds"),
  Flag.withDescription("Redraw the output every few seconds, until Ctrl-C (default: 2)"),
  withFieldSchema("watch", seconds),
  Flag.mapEffect((interval) =>
    Effect.flatMap(
      TerminalCapabilities.TerminalCapabilities,
      ({ canAnimate }) =>
        canAnimate ? Effect.succeed(interval) : new CliError.ValidationError({
          message: "--watch: expected a terminal. In a pipe, repeat the command instead"
        })
    )
  ),
  Flag.optional
)

/** Rejects `--watch` together with `--json`. */
export const watchOrJson = (args: Param.ParsedArgs) =>
  Effect.map(
    Effect.all([validValue(watchFlag, args), validValue(jsonFlag, args)]),
    ([watch, json]) =>
      json === true && watch !== undefined && Option.isSome(watch) ? ["--watch: not valid together with --json"] : []
  )
