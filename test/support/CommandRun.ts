/** Runs the `petstore` command in this process, without a terminal. */
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Cause, ConfigProvider, Console, Effect, Layer, Sink, Stdio, Stream } from "effect"
import { Command, TerminalCapabilities } from "effect/cli"
import { fileURLToPath } from "node:url"
import { describeFailure, exitCodeOf, layerErrorPresenter } from "../../src/command/CommandFailure.ts"
import { command } from "../../src/command/PetstoreCommand.ts"

/** The program, for a process of its own. */
export const cli = fileURLToPath(new URL("../../src/cli.ts", import.meta.url))

/** The variables that the command reads. It reads no others. */
export type Environment = Readonly<Record<string, string>>

const noTerminal = { canColor: false, canAnimate: false, canPrompt: false }

/** Runs `petstore` with `args`, and with `input` on standard input. Returns its exit code and what it prints. */
export const runCommand = (env: Environment, args: ReadonlyArray<string>, input = "") =>
  Effect.gen(function*() {
    const output = { stdout: "", stderr: "" }
    const write = (name: keyof typeof output, end = "\n") => (text: unknown) =>
      void (output[name] += String(text) + end)
    const stdio = Stdio.layerTest({
      stdin: Stream.make(new TextEncoder().encode(input)),
      stdout: () => Sink.forEach((text) => Effect.sync(() => write("stdout", "")(text)))
    })
    const exit = yield* Command.runWith(command, { version: "1.0.0" })(args).pipe(
      Effect.provideService(Console.Console, { ...console, log: write("stdout"), error: write("stderr") }),
      Effect.provideService(ConfigProvider.ConfigProvider, ConfigProvider.fromEnv({ env })),
      Effect.provideService(TerminalCapabilities.TerminalCapabilities, noTerminal),
      Effect.provide(Layer.mergeAll(NodeServices.layer, stdio, layerErrorPresenter)),
      Effect.exit
    )
    const message = exit._tag === "Failure" ? describeFailure(Cause.squash(exit.cause)) : undefined
    if (message !== undefined) write("stderr")(message)
    return { code: exitCodeOf(exit), ...output }
  })
