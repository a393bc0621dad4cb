/** The completion scripts of the `petstore` command in bash, zsh and fish. Their prompts run on a terminal. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { execFile, execFileSync } from "node:child_process"
import { writeFile } from "node:fs/promises"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { promisify } from "node:util"
import { temporaryDirectory } from "../support/Harness.ts"
import { open } from "../support/PseudoTerminal.ts"

const cli = fileURLToPath(new URL("../../src/cli.ts", import.meta.url))

const hasProgram = (name: string): boolean => {
  try {
    execFileSync("which", [name])
    return true
  } catch {
    return false
  }
}

/** Makes a directory with the completion script. */
const prepare = (shell: string) =>
  Effect.gen(function*() {
    const directory = yield* temporaryDirectory
    return yield* Effect.promise(async () => {
      const { stdout } = await promisify(execFile)(process.execPath, [cli, "--completions", shell])
      await writeFile(join(directory, "completion"), stdout)
      return { directory, env: { HOME: directory, PATH: process.env.PATH ?? "" } }
    })
  })

/** The beginnings of command lines, each with several completions, none of which is in the line. */
const cases = [
  { line: "petstore keys ", includes: ["issue", "list", "show", "usage", "rotate", "revoke", "whose"] },
  { line: "petstore keys r", includes: ["revoke", "rotate"] },
  { line: "petstore keys list --", includes: ["--plan", "--state", "--search", "--limit", "--watch", "--json"] },
  { line: "petstore keys list --state ", includes: ["active", "expired", "revoked"] },
  { line: "petstore keys issue --name a --plan ", includes: ["free", "pro", "business", "enterprise"] }
] as const

/**
 * The start of an interactive shell without the files of the user, and what makes it read the completion script.
 * `petstore` is a function, as in docs/command.md.
 */
const interactive = {
  bash: { command: "bash --norc --noprofile -i", setup: "petstore() { :; }; source ./completion" },
  zsh: {
    command: "zsh -f -i",
    setup: "petstore() { :; }; autoload -Uz compinit && compinit -u -D && source ./completion"
  }
} as const

for (const [shell, { command, setup }] of Object.entries(interactive)) {
  describe.skipIf(!hasProgram(shell))(`The completion for ${shell}`, () => {
    it.live("shows subcommands, flags and values after the Tab key", () =>
      Effect.gen(function*() {
        const { directory, env } = yield* prepare(shell)
        for (const { includes, line } of cases) {
          const terminal = yield* open(`cd ${directory}; exec ${command}`, { ...env, PS1: "> " })
          yield* terminal.waitFor(/>/)
          terminal.type(`${setup} && echo is''ready\n`)
          yield* terminal.waitFor(/isready/)
          const from = terminal.output().length
          terminal.type(`${line}\t\t`)
          for (const expected of includes) yield* terminal.waitFor(new RegExp(expected), from)
          // Ctrl-U deletes the line.
          terminal.type("\x15exit\n")
          // The end of the shell, which writes its history to the directory.
          yield* terminal.exitCode
        }
      }), 120_000)
  })
}

describe.skipIf(!hasProgram("fish"))("The completion for fish", () => {
  it.live("has subcommands, flags and values, with descriptions", () =>
    Effect.gen(function*() {
      const { directory, env } = yield* prepare("fish")
      for (const { includes, line } of cases) {
        const { stdout } = yield* Effect.promise(() =>
          promisify(execFile)("fish", [
            "--no-config",
            "-c",
            `function petstore; end; source ./completion; complete -C '${line}'`
          ], {
            cwd: directory,
            env: { ...env, LANG: "C.UTF-8" }
          })
        )
        const completions = stdout.trimEnd().split("\n").map((row) => row.split("\t"))
        assert.includeMembers(completions.map(([word]) => word), [...includes])
        for (const [word, description] of completions) assert.isNotEmpty(description, word)
      }
    }), 60_000)
})
