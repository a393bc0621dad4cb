/** Runs the `petstore` command in this process. */
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Cause, ConfigProvider, Console, Effect, Layer, Option, Queue, Sink, Stdio, Stream, Terminal } from "effect"
import { Command, TerminalCapabilities } from "effect/cli"
import { fileURLToPath } from "node:url"
import { describeFailure, exitCodeOf, layerErrorPresenter } from "../../src/command/CommandFailure.ts"
import { command } from "../../src/command/PetstoreCommand.ts"

/** The program, for a process of its own. */
export const cli = fileURLToPath(new URL("../../src/cli.ts", import.meta.url))

/** The variables that the command reads. It reads no others. */
export type Environment = Readonly<Record<string, string>>

/** A terminal on which the operator answers each question with a key, and which shows nothing. */
const terminalWith = (answer: string) =>
  Terminal.make({
    columns: Effect.succeed(80),
    rows: Effect.succeed(24),
    size: Queue.unbounded<Terminal.Size, Cause.Done>(),
    display: () => Effect.void,
    readLine: Effect.die("the command reads keys"),
    readInput: Effect.gen(function*() {
      const keys = yield* Queue.unbounded<Terminal.UserInput, Cause.Done>()
      const key = { name: answer, ctrl: false, meta: false, shift: false }
      yield* Queue.offer(keys, { input: Option.some(answer), key })
      return keys
    })
  })

/**
 * Runs `petstore` with `args`, and with `input` on standard input. With an `answer`, it runs on a terminal. Returns its
 * exit code and what it prints.
 */
export const runCommand = (env: Environment, args: ReadonlyArray<string>, input = "", answer?: string) =>
  Effect.gen(function*() {
    const capabilities = { canColor: false, canAnimate: false, canPrompt: answer !== undefined }
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
      Effect.provideService(TerminalCapabilities.TerminalCapabilities, capabilities),
      Effect.provideService(Terminal.Terminal, terminalWith(answer ?? "")),
      Effect.provide(Layer.mergeAll(NodeServices.layer, stdio, layerErrorPresenter)),
      Effect.exit
    )
    const message = exit._tag === "Failure" ? describeFailure(Cause.squash(exit.cause)) : undefined
    if (message !== undefined) write("stderr")(message)
    return { code: exitCodeOf(exit), ...output }
  })
