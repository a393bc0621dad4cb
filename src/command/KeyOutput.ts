import { Console, DateTime, Effect, Redacted, Schema, Stream } from "effect"
import { type AuditEntry, changesOf, serviceOperator } from "../api/Audit.ts"
import { keyPrefix } from "../api/Brand.ts"
import type { ApiKey, ApiKeyDetails, FormerSecret, IssuedKey, ListedKey } from "../api/KeySchemas.ts"
import { isPartial, keyStateOf } from "../api/KeySchemas.ts"
import { type KeyTotals, type UsageCounts, type UsageHistory, usageKinds } from "../api/Usage.ts"

/** Replaces control and bidirectional characters: in a key's name, they could move the cursor or reorder the line. */
export const printable = (text: string): string => text.replaceAll(/[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/gu, "\uFFFD")

/** Formats a last use without seconds, because the service records it with minute resolution. */
const formatMinute = (at: DateTime.Utc | null): string =>
  at === null ? "never" : DateTime.formatIso(at).replace(/:\d\d\.\d+Z$/, "Z")

export const formatTime = (at: DateTime.Utc | null): string => at === null ? "never" : DateTime.formatIso(at)

/** A column of a table. Cells to the left of NAME must not contain spaces, so that `awk '{ print $2 }'` works. */
interface Column<Row> {
  readonly heading: string
  readonly width: number
  readonly cell: (row: Row) => string
}

const formatRow = <Row>(columns: ReadonlyArray<Column<Row>>, cell: (column: Column<Row>) => string): string =>
  columns.map((column) => printable(cell(column)).padEnd(column.width)).join("  ").trimEnd()

const formatTable = <Row>(columns: ReadonlyArray<Column<Row>>, rows: ReadonlyArray<Row>): string =>
  [formatRow(columns, ({ heading }) => heading), ...rows.map((row) => formatRow(columns, ({ cell }) => cell(row)))]
    .join("\n")

export const keyColumns = (now: DateTime.Utc): ReadonlyArray<Column<ListedKey>> => [
  { heading: "ID", width: 20, cell: ({ id }) => id },
  { heading: "STATE", width: 8, cell: (key) => keyStateOf(key, now) },
  { heading: "PLAN", width: 10, cell: ({ plan }) => plan },
  { heading: "MINUTE", width: 10, cell: ({ limits }) => String(limits.perMinute) },
  { heading: "DAY", width: 10, cell: ({ limits }) => String(limits.perDay) },
  { heading: "HINT", width: 4, cell: ({ hint }) => hint ?? "-" },
  { heading: "LAST USED", width: 17, cell: ({ lastUsedAt }) => formatMinute(lastUsedAt) },
  { heading: "NAME", width: 0, cell: ({ name }) => name }
]

const countColumns = usageKinds.map((kind) => (
  { heading: kind.toUpperCase(), width: 10, cell: (counts: UsageCounts) => String(counts[kind]) }
))

export const topColumns: ReadonlyArray<Column<KeyTotals>> = [
  { heading: "ID", width: 20, cell: ({ keyId }) => keyId },
  { heading: "PLAN", width: 10, cell: ({ plan }) => plan ?? "-" },
  ...countColumns,
  { heading: "NAME", width: 0, cell: ({ name }) => name ?? "-" }
]

export const describeUsage = ({ hours, minutes }: UsageHistory): string =>
  ([["HOUR", hours], ["MINUTE", minutes]] as const).map(([heading, rows]) =>
    formatTable([{ heading, width: 24, cell: ({ from }) => formatTime(from) }, ...countColumns], rows)
  ).join("\n\n")

const describeChanges = ({ after, before }: AuditEntry): string =>
  changesOf(before, after).map((change) => {
    const [old, changed] = [change.before, change.after].map((value) => String(value ?? "none"))
    return `${change.words}: ${change.before === undefined ? "" : `${old} → `}${changed}`
  }).join(", ")

export const auditColumns: ReadonlyArray<Column<AuditEntry>> = [
  { heading: "TIME", width: 24, cell: ({ at }) => DateTime.formatIso(at) },
  { heading: "ACTION", width: 10, cell: ({ action }) => action },
  { heading: "KEY", width: 20, cell: ({ keyId }) => keyId },
  { heading: "OPERATOR", width: 8, cell: ({ operator }) => operator ?? serviceOperator },
  { heading: "ADDRESS", width: 15, cell: ({ address }) => address ?? "-" },
  { heading: "NAME", width: 16, cell: ({ keyName }) => keyName ?? "-" },
  { heading: "CHANGES", width: 0, cell: describeChanges }
]

export const print = <S extends Schema.ConstraintEncoder<unknown>>(
  schema: S,
  value: S["Type"],
  { json, text }: { readonly json: boolean; readonly text: string }
) => {
  const encode = Schema.encodeEffect(Schema.fromJsonString(Schema.toCodecJson(schema), { space: 2 }))
  return Effect.flatMap(json ? encode(value) : Effect.succeed(text), Console.log)
}

export const printRows = Effect.fnUntraced(function*<S extends Schema.ConstraintEncoder<unknown>, E, R>(
  schema: S,
  rows: Stream.Stream<S["Type"], E, R>,
  { columns, json }: { readonly columns: ReadonlyArray<Column<S["Type"]>>; readonly json: boolean }
) {
  const found = yield* Stream.runCollect(rows)
  yield* print(Schema.Array(schema), found, { json, text: formatTable(columns, found) })
})

/** Formats a secret as its prefix and its last four characters, or only the prefix if these are unknown. */
export const formatHint = (hint: string | null = null): string => `${keyPrefix}…${hint ?? ""}`

export const describeKey = (key: ApiKey): string =>
  [
    `id         ${key.id}`,
    `name       ${printable(key.name)}`,
    `secret     ${formatHint(key.hint)}`,
    `version    ${key.version}`,
    `plan       ${key.plan} (${key.limits.perMinute} a minute, ${key.limits.perDay} a day)`,
    `created    ${formatTime(key.createdAt)}`,
    `expires    ${formatTime(key.expiresAt)}`,
    `revoked    ${formatTime(key.revokedAt)}`,
    `last used  ${formatMinute(key.lastUsedAt)}`
  ].join("\n")

export const describeIssued = (issued: IssuedKey, former: ReadonlyArray<FormerSecret> = []): string =>
  [
    describeKey(issued),
    ...former.map(describeFormer),
    `key        ${Redacted.value(issued.key)}\n\nStore the key now. It will not be shown again.`
  ].join("\n")

const describeWindow = ({ limit, remaining, resetAt }: ApiKeyDetails["usage"]["minute"]): string =>
  `${limit - remaining} of ${limit} used, ${remaining} left until ${formatTime(resetAt)}`

const describeFormer = ({ endsAt, hint, lastUsedAt }: FormerSecret): string =>
  `former     ${formatHint(hint)} ends ${formatTime(endsAt)}, last used ${formatMinute(lastUsedAt)}`

/** Says until when a ban, or the exhausted window that ends last, rejects requests. */
const describeRejection = ({ ban, usage: { day, minute } }: ApiKeyDetails): string => {
  if (ban !== null) return `rejected until ${formatTime(ban.until)} (ban)`
  const windows = [{ name: "minute", ...minute }, { name: "day", ...day }].filter(({ remaining }) => remaining === 0)
  const last = windows.toSorted((a, b) => DateTime.Order(b.resetAt, a.resetAt))[0]
  return last === undefined ? "within the limits" : `rejected until ${formatTime(last.resetAt)} (${last.name})`
}

export const describeDetails = (key: ApiKeyDetails, now: DateTime.Utc): string =>
  [
    describeKey(key),
    `state      ${keyStateOf(key, now)}`,
    ...key.formerSecrets.map(describeFormer),
    `banned     ${key.ban === null ? "no" : `until ${formatTime(key.ban.until)}`}`,
    `requests   ${describeRejection(key)}`,
    `minute     ${describeWindow(key.usage.minute)}`,
    `day        ${describeWindow(key.usage.day)}`,
    ...isPartial(key.counting) ? ["counted    without Redis, by the process that responded"] : []
  ].join("\n")
