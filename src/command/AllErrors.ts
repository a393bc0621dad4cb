/** Makes a subcommand report all errors of its command line at once. Effect stops at the first invalid value. */
import { Context, Effect } from "effect"
import { CliError, type Command, type Param } from "effect/cli"

type Params = Readonly<Record<string, Param.Any>>

/** Whether the command line is only checked: the parser fails even without an error, so that no handler runs. */
export const OnlyCheck = Context.Reference<boolean>("petstore/command/OnlyCheck", { defaultValue: () => false })

const errorsOf = (error: CliError.CliError): ReadonlyArray<CliError.NonShowHelpErrors> =>
  error._tag === "ShowHelp" ? error.errors : [error]

/** A check of several flags together. It returns a message for each error. */
type Check = (args: Param.ParsedArgs) => Effect.Effect<ReadonlyArray<string>, never, Command.Environment>

/** Returns the value of a flag, or `undefined` if it is invalid or missing. */
export const validValue = <A>(param: Param.Param<Param.ParamKind, A>, args: Param.ParsedArgs) =>
  Effect.map(Effect.result(param.parse(args)), (result) => result._tag === "Success" ? result.success[1] : undefined)

/** Collects the errors of all parameters and of `check`. A parameter takes its arguments from those before it. */
const collect = Effect.fnUntraced(function*(params: ReadonlyArray<Param.Any>, args: Param.ParsedArgs, check: Check) {
  const errors: Array<CliError.NonShowHelpErrors> = []
  let { arguments: leftover } = args
  for (const param of params) {
    const parsed = yield* Effect.result(param.parse({ flags: args.flags, arguments: leftover }))
    if (parsed._tag === "Success") [leftover] = parsed.success
    else errors.push(...errorsOf(parsed.failure))
    // An invalid argument counts as read, so that it is not reported as superfluous.
    if (parsed._tag === "Failure" && param.kind === "argument") leftover = leftover.slice(1)
  }
  if (leftover.length > 0) errors.push(new CliError.UnexpectedArgument({ arguments: leftover }))
  const messages = yield* check(args)
  return [...errors, ...messages.map((message) => new CliError.ValidationError({ message }))]
})

/** Returns the parameter with another parser. A parameter has its methods from its prototype. */
const withParse = <P extends Param.Any>(param: P, parse: P["parse"]): P =>
  Object.setPrototypeOf({ ...param, parse }, Object.getPrototypeOf(param))

/**
 * Returns the parameters of the subcommand `name`. The first one fails with the errors of all of them, and with those
 * of `check`. Effect parses the parameters in order and stops at the first failure.
 */
export const withAllErrors = <const P extends Params>(
  name: string,
  params: P,
  check: Check = () => Effect.succeed([])
): P => {
  const [first] = Object.entries(params)
  if (first === undefined) return params
  const [key, param] = first
  const parse: Param.Parse<unknown> = Effect.fnUntraced(function*(args) {
    const errors = yield* collect(Object.values(params), args, check)
    if (errors.length > 0 || (yield* OnlyCheck)) {
      return yield* new CliError.ShowHelp({ commandPath: ["petstore", "keys", name], errors })
    }
    return yield* param.parse(args)
  })
  return { ...params, [key]: withParse(param, parse) }
}
