import { DateTime, Schema } from "effect"
import { type ApiKey, givenInstant, Instant, KeyId, maxDateMs } from "./KeySchemas.ts"
import { Cursor, limit, makeCursorCodec } from "./Paging.ts"
import { isStorable, oneOf, openTo } from "./TextSchemas.ts"

export const AuditAction = oneOf("issue", "update", "rotate", "end-former", "revoke", "unban", "ban").annotate({
  description: "The action. `update` includes disabling and enabling. `ban` is the start of a ban."
})
export type AuditAction = typeof AuditAction.Type

/**
 * Shown in place of the operator's name for an entry that has none: in log lines, in the command's output and in the
 * console.
 */
export const serviceOperator = "service"

export const wordsOf = (name: string): string =>
  name === "hint" ? "secret" : name.replaceAll(/-|(?=[A-Z])/g, " ").toLowerCase()

/**
 * The value of a field of `ApiKey` or of its limits, a grace period in seconds, or a ban's end. Times are ISO 8601. A
 * `hint` is only the last four characters of a secret.
 */
const AuditValue = Schema.NullOr(Schema.Union([Schema.String, Schema.Int, Schema.Boolean]))
export const AuditValues = Schema.Record(Schema.String, AuditValue)
export type AuditValues = typeof AuditValues.Type

export const valuesOf = ({ enabled, expiresAt, hint, limits, name, plan, revokedAt }: ApiKey): AuditValues => ({
  name,
  plan,
  ...limits,
  enabled,
  expiresAt: expiresAt && DateTime.formatIso(expiresAt),
  revokedAt: revokedAt && DateTime.formatIso(revokedAt),
  hint
})

export const changesOf = (before: AuditValues | null, after: AuditValues | null) =>
  Object.keys({ ...before, ...after })
    .map((name) => ({ name, words: wordsOf(name), before: before?.[name], after: after?.[name] }))

/** An entry of the audit log: an API key was issued or changed, or a ban of it began or was lifted. */
export const AuditEntry = Schema.Struct({
  /** The id, unique in the log. */
  id: Schema.Int,
  /** The time of the action. */
  at: Instant,
  /** The action, such as `issue` or `ban`. A newer service may send other actions. */
  action: openTo(AuditAction),
  /** The id of the API key that the action concerns. */
  keyId: KeyId,
  /** The current name of the API key, or `null` if the key has been deleted. */
  keyName: Schema.NullOr(Schema.String),
  /** The name of the admin token, or `null` if the service acted on its own, as in a ban. */
  operator: Schema.NullOr(Schema.String),
  /**
   * The IP address of the operator or, for a ban, of the client whose request began it. Without an address, `null` or
   * "unknown".
   */
  address: Schema.NullOr(Schema.String),
  /** The changed fields, with their values before the change. `null` for a new key. */
  before: Schema.NullOr(AuditValues),
  /** The changed fields, with their values after the change. For a rotation, also `gracePeriodSeconds`. */
  after: Schema.NullOr(AuditValues)
}).annotate({ identifier: "AuditEntry" })
export interface AuditEntry extends Schema.Schema.Type<typeof AuditEntry> {}

/** The position that a cursor encodes: the time (epoch ms) and the id of the last entry of the previous page. */
export interface AuditPosition {
  readonly at: number
  readonly id: number
}

const parsePosition = (text: string): AuditPosition | undefined => {
  const [, at, id] = /^(\d{1,16}) (\d{1,15})$/.exec(text) ?? []
  return at === undefined || Number(at) > maxDateMs ? undefined : { at: Number(at), id: Number(id) }
}

/** Encodes and decodes the cursors of the audit log. */
export const auditCursors = makeCursorCodec(({ at, id }: AuditPosition) => `${at} ${id}`, parsePosition)

/** The query of a page of the audit log. Without filters, the pages have all entries. */
export const AuditQuery = Schema.Struct({
  /** The maximum number of entries. The default is 20, the maximum 100. */
  limit: Schema.optionalKey(limit("Maximum number of entries returned.")),
  /** The position at which the page starts: `cursor` in `next` of the previous page. */
  cursor: Schema.optionalKey(Cursor),
  /** Only entries of this API key. */
  key: Schema.optionalKey(KeyId),
  /** Only entries of the admin token with this name. */
  operator: Schema.String.annotate({ description: "The name of the admin token.", examples: ["admin"] })
    .check(isStorable).pipe(Schema.optionalKey),
  /** Only entries with this action. */
  action: Schema.optionalKey(AuditAction),
  /** Only entries at or after this time. */
  since: Schema.optionalKey(givenInstant("Only entries at or after this time. A date without a time means 00:00 UTC.")),
  /** Only entries before this time. */
  until: Schema.optionalKey(givenInstant("Only entries before this time. A date without a time means 00:00 UTC."))
})
export interface AuditQuery extends Schema.Schema.Type<typeof AuditQuery> {}

/** A page of the audit log. The last page has no `next`. */
export const AuditPage = Schema.Struct({
  /** The entries of the page, newest first. */
  entries: Schema.Array(AuditEntry),
  /** The query for the next page, if there is one. */
  next: Schema.optionalKey(AuditQuery)
}).annotate({ description: "The entries of the page, newest first." })
export interface AuditPage extends Schema.Schema.Type<typeof AuditPage> {}
