/** The subcommand `petstore keys show`. */
import { DateTime, Effect } from "effect"
import { Command } from "effect/cli"
import { ApiKeyDetails } from "../api/Keys.ts"
import type { UsageHistory } from "../api/Usage.ts"
import { AdminClient } from "../client/PetstoreClient.ts"
import { withAllErrors } from "./AllErrors.ts"
import { idArgument, jsonFlag, watchFlag, watchOrJson } from "./KeyFlags.ts"
import { colorOfState, describeKey, print, stateOf } from "./KeyOutput.ts"
import { bar, type Bars, bars } from "./Sparkline.ts"
import { formatCount, formatIn, formatTime, output, type Style } from "./Style.ts"
import { describeUsage } from "./UsageText.ts"
import { printOrWatch } from "./Watch.ts"

const barWidth = 20

type Window = ApiKeyDetails["usage"]["minute"]

/** Describes a window of the rate limit. The bar is the used part. */
const describeWindow = ({ limit, remaining, resetAt }: Window, characters: Bars, style: Style): string => {
  const color = remaining === 0 ? style.red : remaining * 5 <= limit ? style.yellow : style.green
  const drawn = color(bar(limit - remaining, limit, barWidth, characters))
  return `${drawn}  ${formatCount(remaining)} of ${formatCount(limit)} left until ${formatTime(resetAt)}`
}

const describeDetails = (
  key: ApiKeyDetails,
  history: UsageHistory,
  now: DateTime.Utc,
  characters: Bars,
  style: Style
): string => {
  const state = stateOf(key, now)
  return [
    describeKey(key),
    `state      ${colorOfState(state, style)(state)}`,
    `banned     ${key.ban === null ? "no" : `until ${formatTime(key.ban.until)}, ${formatIn(key.ban.until, now)}`}`,
    `minute     ${describeWindow(key.usage.minute, characters, style)}`,
    `day        ${describeWindow(key.usage.day, characters, style)}`,
    ...describeUsage(history, now, characters, style)
  ].join("\n")
}

/** Prints a key. As text it has the usage over time too. */
export const show = Command.make(
  "show",
  withAllErrors("show", { id: idArgument, watch: watchFlag, json: jsonFlag }, watchOrJson),
  Effect.fnUntraced(function*({ id, json, watch }) {
    const client = yield* AdminClient
    if (json) return yield* print(ApiKeyDetails, yield* client.find(id), { json, text: "" })
    const text = Effect.gen(function*() {
      const [key, history] = yield* Effect.all([client.find(id), client.usage(id)], { concurrency: 2 })
      const { style } = yield* output
      return describeDetails(key, history, yield* DateTime.now, yield* bars, style)
    })
    return yield* printOrWatch(text, watch)
  })
).pipe(
  Command.withDescription("Show a key, what it has left of its limits, its ban and its usage"),
  Command.withExamples([{ command: "petstore keys show key_… --watch" }])
)
