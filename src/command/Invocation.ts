/** Runs a command, and reports unknown flags and flags without a value together with invalid values. */
import { Effect, Stdio } from "effect"
import { CliError, CliOutput, Command } from "effect/cli"
import { OnlyCheck } from "./AllErrors.ts"

const options = { version: "1.0.0" }

const silent: CliOutput.Presenter = { present: () => Effect.void }

type CommandLineError = CliError.NonShowHelpErrors

/** The flags that the parser rejected before it read any value. */
interface Rejected {
  readonly unknown: ReadonlySet<string>
  readonly withoutValue: ReadonlySet<string>
}

const rejectedBy = (errors: ReadonlyArray<CommandLineError>): Rejected => ({
  unknown: new Set(errors.flatMap((error) => error._tag === "UnrecognizedOption" ? [error.option] : [])),
  withoutValue: new Set(
    errors.flatMap((error) => error._tag === "InvalidValue" && error.value === "" ? [`--${error.option}`] : [])
  )
})

/**
 * Returns arguments that the parser reads to the end. Unknown flags are removed with their value, which is the next
 * argument unless that is a flag too. Flags without a value get an empty one.
 */
const repair = (args: ReadonlyArray<string>, { unknown, withoutValue }: Rejected): ReadonlyArray<string> =>
  args.filter((arg, index) => {
    const [name = ""] = arg.split("=")
    return !unknown.has(name) && !(unknown.has(args[index - 1] ?? "") && !arg.startsWith("-"))
  }).map((arg) => withoutValue.has(arg) ? `${arg}=` : arg)

/** Whether an error of the second run is new, and not caused by the repair: a removed value may be an argument. */
const isNew = ({ withoutValue }: Rejected) => (error: CommandLineError): boolean =>
  error._tag !== "MissingArgument" && error._tag !== "UnexpectedArgument" &&
  !(error._tag === "InvalidValue" && withoutValue.has(`--${error.option}`)) &&
  !(error._tag === "ValidationError" && [...withoutValue].some((flag) => error.message.startsWith(`${flag}:`)))

const isShowHelp = (error: unknown): error is CliError.ShowHelp =>
  CliError.isCliError(error) && error._tag === "ShowHelp"

/**
 * Runs the command with the arguments of the process.
 *
 * Effect reports unknown flags, and flags without a value, before it reads any value. After such an error, a second run
 * checks the other arguments. It runs no handler.
 */
export const runCommand = <Name extends string, Input, E, R, Context>(
  command: Command.Command<Name, Input, Context, E, R>
) => {
  const run = Command.runWith(command, options)
  const check = (args: ReadonlyArray<string>, rejected: Rejected) =>
    run(repair(args, rejected)).pipe(
      Effect.provideService(OnlyCheck, true),
      Effect.provideService(CliOutput.Presenter, silent),
      Effect.flip,
      Effect.map((error) => isShowHelp(error) ? error.errors.filter(isNew(rejected)) : []),
      Effect.orElseSucceed(() => [])
    )
  return Effect.gen(function*() {
    const args = yield* (yield* Stdio.Stdio).args
    yield* Effect.catchIf(run(args), isShowHelp, (error) => {
      const { commandPath, errors } = error
      const rejected = rejectedBy(errors)
      return rejected.unknown.size + rejected.withoutValue.size === 0
        ? Effect.fail(error)
        : Effect.flatMap(
          check(args, rejected),
          (more) => Effect.fail(new CliError.ShowHelp({ commandPath, errors: [...errors, ...more] }))
        )
    })
  })
}
