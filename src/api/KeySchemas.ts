import { DateTime, Result, Schema } from "effect"
import { Cursor, limit, makeCursorCodec } from "./Paging.ts"
import { Limits, Plan, planLimits } from "./Plans.ts"
import { isStorable, oneOf } from "./Text.ts"

export const KeyId = Schema.String.annotate({
  description: "Identifier of the key. It is not secret.",
  examples: ["key_4fTq9XbLw2ZkPn7R"]
}).check(isStorable)

export const maxDateMs = 8_640_000_000_000_000

export const Instant = Schema.DateTimeUtcFromString

const visibleCharacter = /[^\p{White_Space}\p{C}\p{Default_Ignorable_Code_Point}\u2800]/u

const name = Schema.String.annotate({
  description: "The name that an operator gives the key: 1 to 255 characters.",
  examples: ["acme"]
}).check(
  Schema.isBetweenLength(1, 255, { expected: "a name of 1 to 255 characters" }),
  isStorable,
  Schema.makeFilter((text: string) => visibleCharacter.test(text) && !/\p{Cc}/u.test(text), {
    expected: "a name with at least one visible character and no control characters"
  })
)

export const givenInstant = (description: string) =>
  Schema.String.annotate({ description, examples: ["2030-12-31T00:00:00Z"] }).check(
    Schema.isPattern(/^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d))?$/, {
      expected: "a time like 2030-12-31T00:00:00Z"
    }).abort(),
    // Reject days such as 30 February, which `Date` turns into a day in March.
    Schema.makeFilter((text: string) => {
      const date = text.slice(0, "2030-12-31".length)
      const instant = new Date(date)
      return !Number.isNaN(instant.getTime()) && instant.toISOString().startsWith(date)
    }, { expected: "a date that exists" })
  ).pipe(Schema.decodeTo(Instant))

interface PlanAndLimits {
  readonly plan: Plan
  readonly limits?: Limits
}

export const limitsOf = ({ limits, plan }: PlanAndLimits): Result.Result<Limits, string> => {
  if (plan !== "enterprise" && limits === undefined) return Result.succeed(planLimits[plan])
  if (plan !== "enterprise") return Result.fail(`cannot be set on plan ${plan}: only enterprise has custom limits`)
  if (limits === undefined) return Result.fail("required on plan enterprise")
  const isOrdered = limits.perMinute <= limits.perDay
  return isOrdered ? Result.succeed(limits) : Result.fail("expected perMinute to be at most perDay")
}

const checkLimits = (key: PlanAndLimits) =>
  Result.match(limitsOf(key), { onFailure: (issue) => ({ path: ["limits"], issue }), onSuccess: () => undefined })

const isEnabled = Schema.Boolean.annotate({
  description: "Whether requests with the key are authenticated. A disabled key can be enabled again."
})

export const NewKey = Schema.Struct({
  name,
  plan: Plan,
  limits: Schema.optionalKey(Limits),
  expiresAt: Schema.optionalKey(Schema.NullOr(givenInstant("When the key expires. A date is its start in UTC.")))
}).check(Schema.makeFilter(checkLimits)).annotate({ identifier: "NewKey" })
export interface NewKey extends Schema.Schema.Type<typeof NewKey> {}

/** The body of `updateKey`. Absent fields stay unchanged, but a new plan replaces the limits. */
export const KeyChange = Schema.Struct({
  ...NewKey.fields,
  name: Schema.optionalKey(name),
  plan: Schema.optionalKey(Plan),
  enabled: Schema.optionalKey(isEnabled)
}).check(
  // If `plan` or `limits` is absent, the valid limits depend on the stored plan, so `ApiKeys.update` checks them.
  Schema.makeFilter(({ limits, plan }) =>
    plan === undefined || limits === undefined ? undefined : checkLimits({ limits, plan })
  )
).annotate({ identifier: "KeyChange" })
export interface KeyChange extends Schema.Schema.Type<typeof KeyChange> {}

/** `hint` is the last four characters of the secret, or `null` if the secret is older than this field. */
export const ApiKey = Schema.Struct({
  id: KeyId,
  version: Schema.Int,
  name,
  hint: Schema.NullOr(Schema.String),
  plan: Plan,
  limits: Limits,
  enabled: isEnabled,
  createdAt: Instant,
  expiresAt: Schema.NullOr(Instant),
  revokedAt: Schema.NullOr(Instant),
  lastUsedAt: Schema.NullOr(Instant)
}).annotate({ identifier: "ApiKey", description: "The key, without its secret." })
export interface ApiKey extends Schema.Schema.Type<typeof ApiKey> {}

export const IssuedKey = Schema.Struct({ ...ApiKey.fields, key: Schema.RedactedFromValue(Schema.String) }).annotate({
  identifier: "IssuedKey",
  description: "The key, with its secret. Only the response that issues or rotates the key contains the secret."
})
export interface IssuedKey extends Schema.Schema.Type<typeof IssuedKey> {}

/** The last key of the previous page. */
export interface KeyPosition {
  readonly createdAt: number
  readonly id: string
}

const parsePosition = (text: string): KeyPosition | undefined => {
  const [, createdAt, id] = /^(\d{1,16}) ([^\0]*)$/.exec(text) ?? []
  return id === undefined || Number(createdAt) > maxDateMs ? undefined : { createdAt: Number(createdAt), id }
}

/** The service's cursors of keys. */
export const keyCursors = makeCursorCodec(({ createdAt, id }: KeyPosition) => `${createdAt} ${id}`, parsePosition)

export const KeyState = oneOf("active", "banned", "disabled", "expired", "revoked").annotate({
  description: "The state of the keys. `active` includes banned keys. `revoked` takes precedence over `expired`, and " +
    "`expired` over `disabled`."
})
export type KeyState = typeof KeyState.Type

export const keyStateOf = (
  { ban = null, enabled, expiresAt, revokedAt }: ApiKey & Partial<Pick<ListedKey, "ban">>,
  now: DateTime.Utc
): KeyState => {
  if (revokedAt !== null) return "revoked"
  if (expiresAt !== null && DateTime.isLessThanOrEqualTo(expiresAt, now)) return "expired"
  if (!enabled) return "disabled"
  return ban !== null && DateTime.isGreaterThan(ban.until, now) ? "banned" : "active"
}

export const KeyOrder = oneOf("oldest", "newest").annotate({
  description: "Which keys come first. By default the oldest."
})

export const KeysQuery = Schema.Struct({
  plan: Schema.optionalKey(Plan),
  state: Schema.optionalKey(KeyState),
  search: Schema.String.annotate({
    description: "A part of the name or the id, or the last four characters of the secret.",
    examples: ["acme"]
  }).check(Schema.isBetweenLength(1, 255), isStorable).pipe(Schema.optionalKey),
  secretHash: Schema.String.annotate({
    description: "The SHA-256 of a current or former secret of the key, in hexadecimal.",
    examples: ["0f2e4c1d5b6a7988".repeat(4)]
  }).check(Schema.isPattern(/^[0-9a-f]{64}$/, { expected: "64 lowercase hexadecimal digits" }))
    .pipe(Schema.optionalKey),
  order: Schema.optionalKey(KeyOrder),
  limit: Schema.optionalKey(limit("Maximum number of keys returned.")),
  cursor: Schema.optionalKey(Cursor)
})
export interface KeysQuery extends Schema.Schema.Type<typeof KeysQuery> {}
export interface KeyFilter extends Omit<KeysQuery, "order" | "limit" | "cursor"> {}

const ban = Schema.NullOr(Schema.Struct({ until: Instant }))

/** The current or former secret that matches `KeysQuery.secretHash`. */
export const FoundSecret = Schema.Struct({
  works: Schema.Boolean.annotate({ description: "Whether requests with the secret are authenticated." }),
  endsAt: Schema.NullOr(Instant).annotate({ description: "The expiry of a former secret. `null` for the current one." })
}).annotate({ identifier: "FoundSecret" })
export interface FoundSecret extends Schema.Schema.Type<typeof FoundSecret> {}

export const ListedKey = Schema.Struct({ ...ApiKey.fields, ban, secret: Schema.optionalKey(FoundSecret) })
  .annotate({ identifier: "ListedKey" })
export interface ListedKey extends Schema.Schema.Type<typeof ListedKey> {}

/** `next` is the query for the next page. The last page has none. */
export const KeysPage = Schema.Struct({ keys: Schema.Array(ListedKey), next: Schema.optionalKey(KeysQuery) })
  .annotate({ description: "The keys of the page." })
export interface KeysPage extends Schema.Schema.Type<typeof KeysPage> {}

/** A secret that a rotation replaced. Works until `endsAt` if its key is active. `lastUsedAt` has minute resolution. */
export const FormerSecret = Schema.Struct({ endsAt: Instant, lastUsedAt: Schema.NullOr(Instant) })
export interface FormerSecret extends Schema.Schema.Type<typeof FormerSecret> {}

const Window = Schema.Struct({ limit: Schema.Int, remaining: Schema.Int, resetAt: Instant })

export const ApiKeyDetails = Schema.Struct({
  ...ApiKey.fields,
  usage: Schema.Struct({ minute: Window, day: Window }),
  ban,
  counting: Schema.Literals(["own", "shared", "fallback"]).annotate({
    description: "Where `usage` and `ban` come from: Redis (`shared`), or the process that responds, " +
      "because it has no Redis (`own`) or Redis does not respond (`fallback`)."
  }),
  formerSecrets: Schema.Array(FormerSecret).annotate({ description: "The former secrets in their grace period." })
}).annotate({ identifier: "ApiKeyDetails", description: "The key, with its usage, its ban and its former secrets." })
export interface ApiKeyDetails extends Schema.Schema.Type<typeof ApiKeyDetails> {}

export const Rotation = Schema.Struct({
  gracePeriodSeconds: Schema.Int.annotate({ examples: [3600] })
    .check(Schema.isBetween({ minimum: 0, maximum: 2_592_000 }))
    .pipe(Schema.optionalKey)
}).annotate({ identifier: "Rotation" })
