/** Declares the audit log: what operators did to keys, and which bans began, with its endpoint. */
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { Instant, KeyId } from "./Keys.ts"
import { cursor, limit, linkHeader, linkOf, nextOf } from "./Paging.ts"
import { isStorable } from "./Text.ts"

/** An action of an operator, or the begin of a ban. */
const actions = ["issue", "update", "rotate", "end-former", "revoke", "unban", "ban"] as const
export const AuditAction = Schema.Literals(actions).annotate({
  description: "The action. `update` includes disabling and enabling. `ban` is the begin of a ban.",
  message: `Expected one of ${actions.join(", ")}`
})
export type AuditAction = typeof AuditAction.Type

/** Turns the name of a field or an action into words: `perMinute` into "per minute". */
export const wordsOf = (name: string): string =>
  name === "hint" ? "secret" : name.replaceAll(/-|(?=[A-Z])/g, " ").toLowerCase()

/** The values of the fields that an action changed. Instants are ISO 8601 texts. No value is a secret. */
export const AuditValues = Schema.Record(
  Schema.String,
  Schema.NullOr(Schema.Union([Schema.String, Schema.Int, Schema.Boolean]))
)
export type AuditValues = typeof AuditValues.Type

/**
 * One entry of the audit log. `operator` is the name of the admin token. It is `null` for an action of the service
 * itself, as is `address`, unless it is a ban. `keyName` is the current name of the key, or `null` for a key that is
 * no longer in the database. `before` and `after` have the changed fields.
 */
export const AuditEntry = Schema.Struct({
  id: Schema.Int,
  at: Instant,
  action: AuditAction,
  keyId: KeyId,
  keyName: Schema.NullOr(Schema.String),
  operator: Schema.NullOr(Schema.String),
  address: Schema.NullOr(Schema.String),
  before: Schema.NullOr(AuditValues),
  after: Schema.NullOr(AuditValues)
}).annotate({ identifier: "AuditEntry" })
export interface AuditEntry extends Schema.Schema.Type<typeof AuditEntry> {}

/** The position of an entry in the audit log, which the cursor of a page contains. `at` is in epoch milliseconds. */
export const AuditPosition = Schema.Struct({ at: Schema.Int, id: Schema.Int })
export interface AuditPosition extends Schema.Schema.Type<typeof AuditPosition> {}

/** Parses the text of a cursor. Returns `undefined` for an invalid text, or an instant later than those of `Date`. */
const parsePosition = (text: string): AuditPosition | undefined => {
  const [, at, id] = /^(\d{1,16}) (\d{1,15})$/.exec(text) ?? []
  return at === undefined || Number(at) > 8_640_000_000_000_000 ? undefined : { at: Number(at), id: Number(id) }
}

/** The query of `listAudit`: the page, and the key, the operator and the action that all its entries have. */
export const AuditQuery = Schema.Struct({
  limit: Schema.optionalKey(limit("Maximum number of entries returned.")),
  cursor: Schema.optionalKey(cursor(AuditPosition, {
    format: ({ at, id }) => `${at} ${id}`,
    parse: parsePosition
  })),
  key: Schema.optionalKey(KeyId),
  operator: Schema.optionalKey(
    Schema.String.annotate({ description: "The name of the admin token.", examples: ["admin"] }).check(isStorable)
  ),
  action: Schema.optionalKey(AuditAction)
})
export interface AuditQuery extends Schema.Schema.Type<typeof AuditQuery> {}

/** A page of the audit log. `next` is the query of the next page; the last page has none. */
export const AuditPage = Schema.Struct({
  entries: Schema.Array(AuditEntry),
  next: Schema.optionalKey(AuditQuery)
}).annotate({ description: "The entries of the page, newest first." })
export interface AuditPage extends Schema.Schema.Type<typeof AuditPage> {}

/** The endpoint of the audit log, newest entries first. */
export class AuditGroup extends HttpApiGroup.make("audit", { topLevel: true }).add(
  HttpApiEndpoint.get("listAudit", "/audit", {
    query: AuditQuery.fields,
    success: AuditPage.pipe(HttpApiSchema.encodeToWithHeaders({
      body: Schema.Array(AuditEntry),
      headers: linkHeader("/admin/audit", AuditQuery)
    }, {
      decode: ({ body, headers }) => ({ entries: body, ...nextOf(headers) }),
      encode: (page) => ({ body: page.entries, headers: linkOf(page) })
    }))
  }).annotateMerge(OpenApi.annotations({
    summary: "List the entries of the audit log",
    description: "Returns a page of entries, newest first: all, or those of a key, of an operator or of an action."
  }))
).annotate(OpenApi.Description, "The audit log.") {}
