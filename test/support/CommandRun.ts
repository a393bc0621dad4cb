/** Runs the `petstore` command in this process, without a terminal. */
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Cause, ConfigProvider, Console, Effect, Layer, Sink, Stdio, Stream } from "effect"
import { Command, TerminalCapabilities } from "effect/cli"
import { describeFailure, exitCodeOf } from "../../src/command/CommandFailure.ts"
import { petstore } from "../../src/command/PetstoreCommand.ts"

/** The variables that the command reads. It reads no others. */
export type Environment = Readonly<Record<string, string>>

const noTerminal = { canColor: false, canAnimate: false, canPrompt: false }

/** Runs `petstore` with `args`, and with `input` on standard input. Returns its exit code and what it prints. */
export const runCommand = (env: Environment, args: ReadonlyArray<string>, input = "") =>
  Effect.gen(function*() {
    let [stdout, stderr] = ["", ""]
    const write = (text: string) => {
      stdout += text
    }
    const writeError = (text: string) => {
      stderr += `${text}\n`
    }
    const stdio = Stdio.layerTest({
      stdin: Stream.make(new TextEncoder().encode(input)),
      stdout: () => Sink.forEach((text) => Effect.sync(() => write(String(text))))
    })
    const exit = yield* Command.runWith(petstore, { version: "1.0.0" })(args).pipe(
      Effect.provideService(Console.Console, { ...console, log: (text) => write(`${text}\n`), error: writeError }),
      Effect.provideService(ConfigProvider.ConfigProvider, ConfigProvider.fromEnv({ env })),
      Effect.provideService(TerminalCapabilities.TerminalCapabilities, noTerminal),
      Effect.provide(Layer.merge(NodeServices.layer, stdio)),
      Effect.exit
    )
    const message = exit._tag === "Failure" ? describeFailure(Cause.squash(exit.cause)) : undefined
    if (message !== undefined) writeError(message)
    return { code: exitCodeOf(exit), stdout, stderr }
  })
