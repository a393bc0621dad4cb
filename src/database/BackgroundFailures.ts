import { Context, Effect } from "effect"

/**
 * Counts the failures of background tasks: returns an effect that counts one failure of the task with this name. By
 * default, counts nothing.
 */
export const MakeCountFailure = Context.Reference<(task: string) => Effect.Effect<Effect.Effect<void>>>(
  "database/MakeCountFailure",
  { defaultValue: () => () => Effect.succeed(Effect.void) }
)

export const makeCountFailure = (task: string) => Effect.flatMap(MakeCountFailure, (make) => make(task))
