#!/usr/bin/env node
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Cause, Console, Effect } from "effect"
import { Command } from "effect/cli"
import { describeFailure, exitCodeOf, layerErrorPresenter } from "./command/CommandFailure.ts"
import { command } from "./command/PetstoreCommand.ts"

const printFailure = (cause: Cause.Cause<unknown>) => {
  const message = Cause.hasInterruptsOnly(cause) ? undefined : describeFailure(Cause.squash(cause))
  return message === undefined ? Effect.void : Console.error(message)
}

Command.run(command, { version: "1.0.0" }).pipe(
  Effect.tapCause(printFailure),
  Effect.provide([NodeServices.layer, layerErrorPresenter]),
  NodeRuntime.runMain({ disableErrorReporting: true, teardown: (exit, onExit) => onExit(exitCodeOf(exit)) })
)
