/** The subcommand `petstore keys log`. */
import { DateTime, Effect, Option, Schema, Stdio, Stream } from "effect"
import { Argument, Command } from "effect/cli"
import { AuditEntry } from "../api/Audit.ts"
import { listLimit } from "../api/Paging.ts"
import { AdminClient } from "../client/PetstoreClient.ts"
import { withAllErrors } from "./AllErrors.ts"
import { jsonFlag, limitFlag, withNamedDefault } from "./KeyFlags.ts"
import { ignoreClosedPipe, toJsonArray } from "./KeyOutput.ts"
import { output } from "./Style.ts"
import { type Column, formatTable } from "./Table.ts"

const encodeEntries = Schema.encodeEffect(Schema.toCodecJson(Schema.Array(AuditEntry)))

/** Describes the changed fields, as `plan: free → pro`. A new key has only new values. */
const describeChanges = ({ after, before }: AuditEntry): string =>
  Object.keys({ ...before, ...after }).map((name) => {
    const [old, changed] = [before, after].map((values) => String(values?.[name] ?? "none"))
    return before?.[name] === undefined ? `${name}: ${changed}` : `${name}: ${old} → ${changed}`
  }).join(", ")

const columns: ReadonlyArray<Column<AuditEntry>> = [
  { heading: "TIME", cell: ({ at }) => DateTime.formatIso(at), fields: ({ at }) => [DateTime.formatIso(at)] },
  {
    heading: "ACTION",
    cell: ({ action }) => action,
    color: ({ action }, { red, yellow }) => action === "revoke" ? red : action === "ban" ? yellow : (text) => text,
    fields: ({ action }) => [action]
  },
  { heading: "KEY", cell: ({ keyId }) => keyId, fields: ({ keyId }) => [keyId] },
  { heading: "ADDRESS", cell: ({ address }) => address ?? "-", fields: ({ address }) => [address ?? ""] },
  { heading: "CHANGES", cell: describeChanges, fields: (entry) => [describeChanges(entry)], shrinks: true }
]

const flags = {
  id: Argument.String("id").pipe(
    Argument.withDescription("The key's id: key_…. Without it, the log of all keys is printed."),
    Argument.optional
  ),
  limit: limitFlag.pipe(withNamedDefault(100, "Print at most this many entries")),
  json: jsonFlag
}

/** Prints the audit log of a key, or of all keys, newest entry first. */
export const log = Command.make(
  "log",
  withAllErrors("log", flags),
  Effect.fnUntraced(function*({ id, json, limit }) {
    const { auditAll } = yield* AdminClient
    const { stdout } = yield* Stdio.Stdio
    const entries = Stream.take(
      auditAll({ pageSize: Math.min(limit, listLimit.maximum), ...Option.isSome(id) && { key: id.value } }),
      limit
    )
    const lines = json
      ? toJsonArray(entries, encodeEntries)
      : formatTable(entries, columns, yield* output, "The log has no entry.")
    yield* ignoreClosedPipe(Stream.run(lines, stdout()))
  })
).pipe(Command.withDescription("Show what was done to a key and from where, and its bans, the newest first"))
