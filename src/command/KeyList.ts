/** The subcommand `petstore keys list`. */
import { DateTime, Effect, Option, Schema, Stdio, Stream, Struct } from "effect"
import { Command, Flag } from "effect/cli"
import { KeysQuery, ListedKey } from "../api/Keys.ts"
import { listLimit } from "../api/Paging.ts"
import { AdminClient } from "../client/PetstoreClient.ts"
import { decodeCount, ignoreClosedPipe, jsonFlag, present, toJsonArray } from "./KeyOutput.ts"

const encodeKeys = Schema.encodeEffect(Schema.toCodecJson(Schema.Array(ListedKey)))

const decodeFilter = Schema.decodeUnknownEffect(KeysQuery.mapFields(Struct.pick(["plan", "state", "search"])))

/** Returns the state of a key at `now`. A ban of a revoked or expired key does not matter. */
const describeState = ({ ban, expiresAt, revokedAt }: ListedKey, now: DateTime.Utc): string =>
  revokedAt !== null
    ? "revoked"
    : expiresAt !== null && DateTime.isLessThanOrEqualTo(expiresAt, now)
    ? "expired"
    : ban === null
    ? "active"
    : "banned"

/** Prints the keys that meet the filter, page by page. */
export const list = Command.make(
  "list",
  {
    json: jsonFlag,
    limit: Flag.Int("limit").pipe(Flag.withDescription("Print at most this many keys"), Flag.optional),
    plan: Flag.String("plan").pipe(Flag.withDescription("Print only keys on this plan"), Flag.optional),
    state: Flag.String("state").pipe(
      Flag.withDescription("Print only keys in this state: active, expired or revoked"),
      Flag.optional
    ),
    search: Flag.String("search").pipe(
      Flag.withDescription("Print only keys with this text in the name or the id, or with these last four characters"),
      Flag.optional
    )
  },
  Effect.fnUntraced(function*({ json, limit, plan, search, state }) {
    const { all } = yield* AdminClient
    const { stdout } = yield* Stdio.Stdio
    const now = yield* DateTime.now
    const filter = yield* decodeFilter(present({ plan, state, search }))
    const describeRow = (key: ListedKey): string =>
      [key.id, key.plan.padEnd(10), describeState(key, now).padEnd(7), key.hint ?? "    ", key.name].join("  ") + "\n"
    const maxKeys = Option.isSome(limit) ? yield* decodeCount(limit.value) : Infinity
    const keys = Stream.take(all({ ...filter, pageSize: Math.min(maxKeys, listLimit.maximum) }), maxKeys)
    const lines = json
      ? toJsonArray(keys, encodeKeys)
      : Stream.map(Stream.chunks(keys), (page) => page.map(describeRow).join(""))
    yield* ignoreClosedPipe(Stream.run(lines, stdout()))
  })
).pipe(Command.withDescription("List the keys, the oldest first"))
