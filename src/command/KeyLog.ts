/** The subcommand `petstore keys log`. */
import { DateTime, Effect, Option, Schema, Stdio, Stream } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { AuditEntry } from "../api/Audit.ts"
import { listLimit } from "../api/Paging.ts"
import { AdminClient } from "../client/PetstoreClient.ts"
import { decodeCount, ignoreClosedPipe, jsonFlag, toJsonArray } from "./KeyOutput.ts"

const encodeEntries = Schema.encodeEffect(Schema.toCodecJson(Schema.Array(AuditEntry)))

/** Describes the changed fields, as `plan: free → pro`. A new key has only new values. */
const describeChanges = ({ after, before }: AuditEntry): string =>
  Object.keys({ ...before, ...after }).map((name) => {
    const [old, changed] = [before, after].map((values) => String(values?.[name] ?? "none"))
    return before?.[name] === undefined ? `${name}: ${changed}` : `${name}: ${old} → ${changed}`
  }).join(", ")

const describeEntry = (entry: AuditEntry): string =>
  [
    DateTime.formatIso(entry.at),
    entry.action.padEnd(6),
    entry.keyId,
    entry.address ?? "-",
    describeChanges(entry)
  ].join("  ") + "\n"

/** Prints the audit log of a key, or of all keys, newest entry first. */
export const log = Command.make(
  "log",
  {
    id: Argument.String("id").pipe(
      Argument.withDescription("The key's id: key_…. Without it, the log of all keys is printed."),
      Argument.optional
    ),
    json: jsonFlag,
    limit: Flag.Int("limit").pipe(Flag.withDescription("Print at most this many entries"), Flag.withDefault(100))
  },
  Effect.fnUntraced(function*({ id, json, limit }) {
    const { auditAll } = yield* AdminClient
    const { stdout } = yield* Stdio.Stdio
    const count = yield* decodeCount(limit)
    const entries = Stream.take(
      auditAll({ pageSize: Math.min(count, listLimit.maximum), ...Option.isSome(id) && { key: id.value } }),
      count
    )
    const lines = json
      ? toJsonArray(entries, encodeEntries)
      : Stream.map(Stream.chunks(entries), (page) => page.map(describeEntry).join(""))
    yield* ignoreClosedPipe(Stream.run(lines, stdout()))
  })
).pipe(Command.withDescription("Show what was done to a key and from where, and its bans, the newest first"))
