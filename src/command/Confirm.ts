/** Asks the operator before a command ends something that works. */
import { Effect } from "effect"
import { Prompt, TerminalCapabilities } from "effect/cli"
import { CommandError } from "./CommandError.ts"

/** Asks `question` on a terminal, unless `yes`. Fails if the operator does not confirm. A script is never asked. */
export const confirm = Effect.fnUntraced(function*(question: string, yes: boolean) {
  const { canPrompt } = yield* TerminalCapabilities.TerminalCapabilities
  const confirmed = yes || !canPrompt || (yield* Prompt.run(Prompt.Confirm({ message: question })))
  return yield* confirmed ? Effect.void : new CommandError({ message: "Nothing was changed." })
})
