/** The subcommand `petstore keys usage`. */
import { DateTime, Effect } from "effect"
import { Command } from "effect/cli"
import { UsageHistory } from "../api/Usage.ts"
import { AdminClient } from "../client/PetstoreClient.ts"
import { withAllErrors } from "./AllErrors.ts"
import { idArgument, jsonFlag, watchFlag, watchOrJson } from "./KeyFlags.ts"
import { print } from "./KeyOutput.ts"
import { bars } from "./Sparkline.ts"
import { output } from "./Style.ts"
import { drawUsage } from "./UsageText.ts"
import { printOrWatch } from "./Watch.ts"

/** Prints the requests of a key over time: allowed, rejected by a limit, and rejected during a ban. */
export const usage = Command.make(
  "usage",
  withAllErrors("usage", { id: idArgument, watch: watchFlag, json: jsonFlag }, watchOrJson),
  Effect.fnUntraced(function*({ id, json, watch }) {
    const client = yield* AdminClient
    if (json) return yield* print(UsageHistory, yield* client.usage(id), { json, text: "" })
    const text = Effect.gen(function*() {
      const history = yield* client.usage(id)
      const { style } = yield* output
      return [id, ...drawUsage(history, yield* DateTime.now, yield* bars, style)].join("\n")
    })
    return yield* printOrWatch(text, watch)
  })
).pipe(
  Command.withDescription("Show the requests of a key in the last 60 minutes, 24 hours and 30 days"),
  Command.withExamples([{ command: "petstore keys usage key_… --watch" }])
)
