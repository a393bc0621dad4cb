import { Console, Effect, Layer, Redacted } from "effect"
import { ApiKeys } from "./ApiKeys.ts"

/** Issues a key if there is none yet, and prints it with a command that calls `exampleUrl`. */
export const layer = (exampleUrl: string) =>
  Layer.effectDiscard(Effect.gen(function*() {
    const apiKeys = yield* ApiKeys
    if ((yield* apiKeys.list({ limit: 1 })).keys.length > 0) return
    const key = Redacted.value((yield* apiKeys.issue({ name: "first key", plan: "free" })).key)
    // Print the key to standard output instead of logging it, because logs must never contain a key.
    yield* Console.log(
      `Your API key (store it now, it is not shown again): ${key}\n\n` +
        `  curl -H "Authorization: Bearer ${key}" ${exampleUrl}\n`
    )
  }))
