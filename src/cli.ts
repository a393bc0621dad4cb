#!/usr/bin/env node
/** The `petstore` command: an operator manages the API keys of a running service through its management port. */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Cause, Console, Effect } from "effect"
import { describeFailure, exitCodeOf } from "./command/CommandFailure.ts"
import { helpLayer } from "./command/HelpText.ts"
import { runCommand } from "./command/Invocation.ts"
import { petstore } from "./command/PetstoreCommand.ts"

const printFailure = (cause: Cause.Cause<unknown>) =>
  Cause.hasInterruptsOnly(cause)
    ? Effect.void
    : Effect.flatMap(describeFailure(Cause.squash(cause)), (text) => text === "" ? Effect.void : Console.error(text))

runCommand(petstore).pipe(
  Effect.tapCause(printFailure),
  Effect.provide([helpLayer, NodeServices.layer]),
  NodeRuntime.runMain({
    disableErrorReporting: true,
    teardown: (exit, onExit) => onExit(exitCodeOf(exit))
  })
)
