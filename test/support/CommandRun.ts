/** Runs the `petstore` command in this process, without a service. */
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Cause, ConfigProvider, Console, Effect, Layer, Stdio } from "effect"
import { describeFailure, exitCodeOf } from "../../src/command/CommandFailure.ts"
import { helpLayer } from "../../src/command/HelpText.ts"
import { runCommand } from "../../src/command/Invocation.ts"
import { petstore } from "../../src/command/PetstoreCommand.ts"

/** Nothing listens on this port. The command fails with 1 if it tries to send a request. */
const env = { ADMIN_TOKEN: "adm_test", PETSTORE_ADMIN_URL: "127.0.0.1:1" }

/** Runs the command with `args`. Its streams are no terminals. Returns its exit code and its texts. */
export const runInProcess = (...args: ReadonlyArray<string>) =>
  Effect.gen(function*() {
    const stdout: Array<string> = []
    const stdio = Layer.succeed(Stdio.Stdio, { ...yield* Stdio.Stdio, args: Effect.succeed(args) })
    const exit = yield* runCommand(petstore).pipe(
      Effect.provideService(Console.Console, { ...console, log: (text: string) => stdout.push(text) }),
      Effect.provide([helpLayer, stdio]),
      Effect.exit
    )
    const stderr = exit._tag === "Failure" ? yield* describeFailure(Cause.squash(exit.cause)) : ""
    return { code: exitCodeOf(exit), stdout: stdout.join("\n"), stderr }
  }).pipe(
    Effect.provideService(ConfigProvider.ConfigProvider, ConfigProvider.fromEnv({ env })),
    Effect.provide(NodeServices.layer)
  )
