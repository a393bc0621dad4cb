/** The help of the command: what Effect derives from the flags, the environment variables, and the exit codes. */
import { Console, Effect, Layer } from "effect"
import { CliConfig, CliOutput, GlobalFlag, TerminalCapabilities } from "effect/cli"
import * as Settings from "../config/Settings.ts"
import { addressVariable } from "./AdminConnection.ts"
import { exitCodes } from "./CommandFailure.ts"

interface Variable {
  readonly name: string
  readonly meaning: string
  readonly byDefault: string
}

/** Describes a setting of the service, which the command reads too. The declaration has its texts in Markdown. */
const describeSetting = ({ byDefault, name }: Settings.Setting<unknown>, meaning: string): Variable => ({
  name,
  meaning,
  byDefault: byDefault.replaceAll("`", "")
})

/** The environment variables that the command reads, in the order of the table in docs/command.md. */
export const variables: ReadonlyArray<Variable> = [
  {
    name: addressVariable,
    meaning: "The address of the management port, with or without http://",
    byDefault: `http://127.0.0.1:${Settings.managementPort.name}`
  },
  describeSetting(Settings.managementPort, "The port, if the address has neither a scheme nor a port"),
  {
    ...describeSetting(Settings.adminToken, "The admin token"),
    byDefault: "the file admin-token in DATA_DIR"
  },
  describeSetting(Settings.dataDir, "The directory of the service"),
  { name: "NO_COLOR", meaning: "Any value turns colors off", byDefault: "not set" },
  {
    name: "FORCE_COLOR",
    meaning: "Any value except 0 and false turns colors and tables on in a pipe",
    byDefault: "not set"
  },
  {
    name: "LC_ALL, LC_CTYPE, LANG",
    meaning: "The first one that is set decides whether bars are ASCII",
    byDefault: "UTF-8"
  }
]

const rows = (pairs: ReadonlyArray<readonly [string, string]>): string => {
  const width = Math.max(...pairs.map(([left]) => left.length))
  return pairs.map(([left, right]) => `  ${left.padEnd(width)}    ${right}`).join("\n")
}

const appendix = (bold: (text: string) => string): string =>
  [
    "",
    bold("ENVIRONMENT"),
    rows(variables.map(({ byDefault, meaning, name }) => [name, `${meaning} (default: ${byDefault})`])),
    "",
    bold("EXIT CODES"),
    rows(exitCodes.map(({ code, meaning }) => [String(code), meaning]))
  ].join("\n")

/** Prints help and version. The caller prints the errors of an invalid command line. */
const presenterLayer = Layer.effect(
  CliOutput.Presenter,
  Effect.gen(function*() {
    const { canColor } = yield* TerminalCapabilities.TerminalCapabilities
    const { formatHelpDoc, formatVersion } = CliOutput.defaultFormatter({ colors: canColor })
    const bold = (text: string): string => canColor ? `\x1b[1m${text}\x1b[0m` : text
    return {
      present: (event) =>
        event._tag === "Help"
          ? Console.log(formatHelpDoc(event.helpDoc) + "\n" + appendix(bold))
          : event._tag === "Version"
          ? Console.log(formatVersion(event.name, event.version))
          : Effect.void
    }
  })
)

/** The global flags are those that make sense for this command, and its help has all sections. */
export const helpLayer = Layer.merge(
  presenterLayer,
  CliConfig.layer({ builtIns: [GlobalFlag.Help, GlobalFlag.Version, GlobalFlag.Completions] })
)
