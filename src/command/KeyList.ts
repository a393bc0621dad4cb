/** The subcommand `petstore keys list`. */
import { DateTime, Effect, Option, Schema, Stdio, Stream } from "effect"
import { Command, Flag } from "effect/cli"
import { KeysQuery, KeyState, ListedKey } from "../api/Keys.ts"
import { listLimit } from "../api/Paging.ts"
import { Plan } from "../api/Plans.ts"
import { AdminClient } from "../client/PetstoreClient.ts"
import { withAllErrors } from "./AllErrors.ts"
import { jsonFlag, limitFlag, watchFlag, watchOrJson, withFieldSchema } from "./KeyFlags.ts"
import { colorOfState, ignoreClosedPipe, stateOf, toJsonArray } from "./KeyOutput.ts"
import { formatAgo, formatCount, formatIn, formatTime, output } from "./Style.ts"
import { type Column, formatTable } from "./Table.ts"
import { extraLines, printOrWatch } from "./Watch.ts"

const encodeKeys = Schema.encodeEffect(Schema.toCodecJson(Schema.Array(ListedKey)))

/** The columns of the table. Times are relative to `now`. */
const columnsAt = (now: DateTime.Utc): ReadonlyArray<Column<ListedKey>> => [
  { heading: "ID", cell: ({ id }) => id, fields: ({ id }) => [id] },
  { heading: "NAME", cell: ({ name }) => name, fields: ({ name }) => [name], shrinks: true },
  { heading: "PLAN", cell: ({ plan }) => plan, fields: ({ plan }) => [plan] },
  {
    heading: "PER MINUTE/DAY",
    cell: ({ limits }) => `${formatCount(limits.perMinute)}/${formatCount(limits.perDay)}`,
    fields: ({ limits }) => [String(limits.perMinute), String(limits.perDay)]
  },
  {
    heading: "STATE",
    cell: (key) => stateOf(key, now),
    color: (key, style) => colorOfState(stateOf(key, now), style),
    fields: (key) => [stateOf(key, now)]
  },
  { heading: "HINT", cell: ({ hint }) => hint ?? "-", fields: ({ hint }) => [hint ?? ""] },
  {
    heading: "LAST USED",
    cell: ({ lastUsedAt }) => formatAgo(lastUsedAt, now),
    fields: ({ lastUsedAt }) => [lastUsedAt === null ? "" : formatTime(lastUsedAt)]
  },
  {
    heading: "BAN ENDS",
    cell: ({ ban }) => ban === null ? "-" : formatIn(ban.until, now),
    fields: ({ ban }) => [ban === null ? "" : formatTime(ban.until)]
  }
]

/** A secret would be in the URL of the request. */
const searchText = KeysQuery.fields.search.schema.check(
  Schema.makeFilter((text) => !text.includes("psk_"), {
    expected: "a part of a name or an id. Find the key of a secret with petstore keys whose"
  })
)

const noKeys = "No key meets the filter."

const flags = {
  plan: Flag.Literals("plan", Plan.literals).pipe(
    Flag.withDescription("Print only keys on this plan (default: all)"),
    Flag.optional
  ),
  state: Flag.Literals("state", KeyState.literals).pipe(
    Flag.withDescription("Print only keys in this state (default: all)"),
    Flag.optional
  ),
  search: Flag.String("search").pipe(
    Flag.withMetavar("text"),
    withFieldSchema("search", searchText),
    Flag.withDescription("Print only keys with this text in the name or the id, or with these last four characters"),
    Flag.optional
  ),
  limit: limitFlag.pipe(Flag.withDescription("Print at most this many keys (default: all)"), Flag.optional),
  watch: watchFlag,
  json: jsonFlag
}

/** Prints the keys that meet the filter, page by page. With `--watch` it prints as many as the terminal has lines. */
export const list = Command.make(
  "list",
  withAllErrors("list", flags, watchOrJson),
  Effect.fnUntraced(function*({ json, limit, plan, search, state, watch }) {
    const { all } = yield* AdminClient
    const { stdout } = yield* Stdio.Stdio
    const filter = {
      ...Option.isSome(plan) && { plan: plan.value },
      ...Option.isSome(state) && { state: state.value },
      ...Option.isSome(search) && { search: search.value }
    }
    const take = (count: number) => Stream.take(all({ ...filter, pageSize: Math.min(count, listLimit.maximum) }), count)
    const maxKeys = Option.getOrElse(limit, () => Infinity)
    if (Option.isSome(watch)) {
      const text = Effect.gen(function*() {
        const terminal = yield* output
        const count = Math.max(1, Math.min(maxKeys, terminal.rows - extraLines - 1))
        const lines = formatTable(take(count), columnsAt(yield* DateTime.now), terminal, noKeys)
        return (yield* Stream.mkString(lines)).trimEnd()
      })
      return yield* printOrWatch(text, watch)
    }
    const lines = json
      ? toJsonArray(take(maxKeys), encodeKeys)
      : formatTable(take(maxKeys), columnsAt(yield* DateTime.now), yield* output, noKeys)
    return yield* ignoreClosedPipe(Stream.run(lines, stdout()))
  })
).pipe(
  Command.withDescription("List the keys, the oldest first"),
  Command.withExamples([
    { command: "petstore keys list --state active --plan pro --search acme" },
    { command: "petstore keys list --watch=5" }
  ])
)
