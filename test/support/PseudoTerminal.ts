/** Runs a command on a pseudo-terminal, which `script` of util-linux opens. */
import { Effect } from "effect"
import { spawn } from "node:child_process"

/** A command that runs on a terminal of 110 columns and 30 rows. */
export interface PseudoTerminal {
  /** The output of the command so far, with its control sequences. */
  readonly output: () => string
  /** Types on the keyboard. `\x03` is Ctrl-C. */
  readonly type: (text: string) => void
  /** Waits until the command has written something that `pattern` matches, after position `from` of its output. */
  readonly waitFor: (pattern: RegExp, from?: number) => Effect.Effect<void>
  /** Waits until the command ends, and returns its exit code. */
  readonly exitCode: Effect.Effect<number | null>
}

/** Starts `command`, which a shell reads. Its environment is `env` alone. The scope kills it. */
export const open = (command: string, env: Readonly<Record<string, string>>) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.sync(() =>
        spawn("script", ["-qefc", `stty cols 110 rows 30; ${command}`, "/dev/null"], {
          env: { PATH: process.env.PATH, SHELL: "/bin/sh", TERM: "xterm-256color", LANG: "C.UTF-8", ...env }
        })
      ),
      (child) => Effect.sync(() => child.kill("SIGKILL"))
    ),
    (child): PseudoTerminal => {
      let output = ""
      const read = (chunk: string) => {
        output += chunk
      }
      child.stdout.setEncoding("utf8").on("data", read)
      child.stderr.setEncoding("utf8").on("data", read)
      child.stdin.on("error", () => {})
      const exitCode = new Promise<number | null>((resolve) => child.on("close", (code) => resolve(code)))
      return {
        output: () => output,
        type: (text) => child.stdin.write(text),
        waitFor: (pattern, from = 0) =>
          Effect.promise(async () => {
            const deadline = performance.now() + 30_000
            while (!pattern.test(output.slice(from))) {
              if (performance.now() > deadline) throw new Error(`No ${pattern} in:\n${output.slice(from)}`)
              await new Promise((resolve) => setTimeout(resolve, 20))
            }
          }),
        exitCode: Effect.promise(() => exitCode)
      }
    }
  )
