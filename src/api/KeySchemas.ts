import { DateTime, Result, Schema } from "effect"
import { Cursor, limit, makeCursorCodec } from "./Paging.ts"
import { Limits, Plan, planLimits } from "./Plans.ts"
import { isStorable, oneOf, openTo } from "./TextSchemas.ts"

export const KeyId = Schema.String.annotate({
  description: "Identifier of the key. It is not secret.",
  examples: ["key_4fTq9XbLw2ZkPn7R"]
}).check(isStorable)

export const maxDateMs = 8_640_000_000_000_000

export const Instant = Schema.DateTimeUtcFromString

const visibleCharacter = /[^\p{White_Space}\p{C}\p{Default_Ignorable_Code_Point}\u2800]/u

const nameLength = { expected: "a name of 1 to 255 characters" }

const name = Schema.String.annotate({
  description: "The name that an operator gives the key: 1 to 255 characters.",
  examples: ["acme"]
}).check(
  Schema.isMinCodePoints(1, nameLength),
  Schema.isMaxCodePoints(255, nameLength),
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
  description: "Whether the key is enabled. Requests with a disabled key get 401 until it is enabled again."
})

/** The body of `issueKey`. */
export const NewKey = Schema.Struct({
  /** The name for operators: 1 to 255 code points, with a visible character and without control characters. */
  name,
  /** The plan, which determines the limits. */
  plan: Plan,
  /** The limits of a key on plan enterprise. Required when a key gets this plan, and rejected on other plans. */
  limits: Schema.optionalKey(Limits),
  /** When the key stops working. `null` means never, which is also the default of a new key. */
  expiresAt: Schema.optionalKey(
    Schema.NullOr(givenInstant("When the key expires. A date without a time means 00:00 UTC."))
  )
}).check(Schema.makeFilter(checkLimits)).annotate({ identifier: "NewKey" })
export interface NewKey extends Schema.Schema.Type<typeof NewKey> {}

/** The body of `updateKey`. Absent fields stay unchanged, but a new plan replaces the limits. */
export const KeyChange = Schema.Struct({
  ...NewKey.fields,
  /** The new name. */
  name: Schema.optionalKey(name),
  /** The new plan. */
  plan: Schema.optionalKey(Plan),
  /** With `false`, the service rejects the key until another change sets `true`. */
  enabled: Schema.optionalKey(isEnabled)
}).check(
  // If `plan` or `limits` is absent, the valid limits depend on the stored plan, so `ApiKeys.update` checks them.
  Schema.makeFilter(({ limits, plan }) =>
    plan === undefined || limits === undefined ? undefined : checkLimits({ limits, plan })
  )
).annotate({ identifier: "KeyChange" })
export interface KeyChange extends Schema.Schema.Type<typeof KeyChange> {}

/** An API key, without its secret. */
export const ApiKey = Schema.Struct({
  /** The id, which is not secret. */
  id: KeyId,
  /** The version, for `If-Match`. Each change of the key increments it, but uses and bans do not. */
  version: Schema.Int,
  /** The name that an operator gave the key. */
  name,
  /** The last four characters of the secret. `null` for secrets from before the service stored these characters. */
  hint: Schema.NullOr(Schema.String),
  /** The plan. */
  plan: Plan,
  /** The limits of the plan, or of the key on plan enterprise. */
  limits: Limits,
  /** Whether the key is enabled. Requests with a disabled key get 401. */
  enabled: isEnabled,
  /** When the key was issued. */
  createdAt: Instant,
  /** When the key stops working, if ever. */
  expiresAt: Schema.NullOr(Instant),
  /** When the key was revoked, if ever. */
  revokedAt: Schema.NullOr(Instant),
  /** The last use, with minute resolution, if any. */
  lastUsedAt: Schema.NullOr(Instant)
}).annotate({ identifier: "ApiKey", description: "The key, without its secret." })
export interface ApiKey extends Schema.Schema.Type<typeof ApiKey> {}

/** A key with its secret, from the response that issues or rotates it. */
export const IssuedKey = Schema.Struct({
  ...ApiKey.fields,
  /** The secret. */
  key: Schema.RedactedFromValue(Schema.String)
}).annotate({
  identifier: "IssuedKey",
  description: "The key, with its secret. Only the response that issues or rotates the key contains the secret."
})
export interface IssuedKey extends Schema.Schema.Type<typeof IssuedKey> {}

/**
 * The position that a cursor encodes: the last key of the previous page. But if the service stopped scanning
 * (`ApiKeyStore.scanEnd`) before it had found a match beyond that page, it is the last key that it scanned. `createdAt`
 * is in epoch milliseconds. Only the cursors of a list with `search` have `name`, because that list is in the order of
 * names.
 */
export interface KeyPosition {
  readonly createdAt: number
  readonly id: string
  readonly name?: string
}

const parsePosition = (text: string): KeyPosition | undefined => {
  const [, createdAt, id, ofName] = /^(\d{1,16}) ([^\0\n]*)(?:\n([^\0\n]*))?$/.exec(text) ?? []
  if (id === undefined || Number(createdAt) > maxDateMs) return undefined
  return { createdAt: Number(createdAt), id, ...ofName !== undefined && { name: ofName } }
}

const formatPosition = (position: KeyPosition): string => {
  const ofTime = `${position.createdAt} ${position.id}`
  return position.name === undefined ? ofTime : `${ofTime}\n${position.name}`
}

/** Encodes and decodes the cursors of lists of keys. */
export const keyCursors = makeCursorCodec(formatPosition, parsePosition)

/** The state of a key. */
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
  description: "Which keys come first, without `search`. By default the oldest."
})

/** The query of a page of keys. Without filters, the pages have all keys. */
export const KeysQuery = Schema.Struct({
  /** Only keys on this plan. */
  plan: Schema.optionalKey(Plan),
  /** Only keys in this state. `active` includes banned keys. */
  state: Schema.optionalKey(KeyState),
  /** Only keys whose name begins with this text, in upper or lower case, or whose `id` or `hint` is this text. */
  search: Schema.String.annotate({
    description:
      "The beginning of the name, in upper or lower case, the whole id, or the last four characters of the secret. " +
      "The keys are then in the order of their names.",
    examples: ["acme"]
  }).check(Schema.isMinCodePoints(1), Schema.isMaxCodePoints(255), isStorable).pipe(Schema.optionalKey),
  /** Only keys that have not expired yet, and expire at or before this time. */
  expiresBefore: Schema.optionalKey(
    givenInstant(
      "Only keys that have not expired yet, and expire at or before this time. A date without a time means 00:00 UTC."
    )
  ),
  /** Only the key with a current or former secret whose SHA-256 is this, in lower-case hexadecimal. */
  secretHash: Schema.String.annotate({
    description: "The SHA-256 of a current or former secret of the key, in hexadecimal.",
    examples: ["0f2e4c1d5b6a7988".repeat(4)]
  }).check(Schema.isPattern(/^[0-9a-f]{64}$/, { expected: "64 lowercase hexadecimal digits" }))
    .pipe(Schema.optionalKey),
  /** Which keys come first. The default is `oldest`. Has no effect with `search`, which orders keys by name. */
  order: Schema.optionalKey(KeyOrder),
  /** The maximum number of keys. The default is 20, the maximum 100. */
  limit: Schema.optionalKey(limit("Maximum number of keys returned.")),
  /** The position at which the page starts: `cursor` in `next` of the previous page. */
  cursor: Schema.optionalKey(Cursor)
})
export interface KeysQuery extends Schema.Schema.Type<typeof KeysQuery> {}
export interface KeyFilter extends Omit<KeysQuery, "order" | "limit" | "cursor"> {}

const ban = Schema.NullOr(Schema.Struct({ until: Instant }))

/** The current or former secret that matches `KeysQuery.secretHash`. */
export const FoundSecret = Schema.Struct({
  /** Whether requests with the secret are authenticated. */
  works: Schema.Boolean.annotate({ description: "Whether requests with the secret are authenticated." }),
  /** The expiry of a former secret. `null` for the current one. */
  endsAt: Schema.NullOr(Instant).annotate({ description: "The expiry of a former secret. `null` for the current one." })
}).annotate({ identifier: "FoundSecret" })
export interface FoundSecret extends Schema.Schema.Type<typeof FoundSecret> {}

/** A key in a list, with its ban. */
export const ListedKey = Schema.Struct({
  ...ApiKey.fields,
  /** The ban, if the key is banned. */
  ban,
  /** The secret that matches `secretHash` of the query. Absent without `secretHash`. */
  secret: Schema.optionalKey(FoundSecret)
}).annotate({ identifier: "ListedKey" })
export interface ListedKey extends Schema.Schema.Type<typeof ListedKey> {}

/** A page of keys. The last page has no `next`. */
export const KeysPage = Schema.Struct({
  /** The keys of the page. */
  keys: Schema.Array(ListedKey),
  /** The query for the next page, if there is one. */
  next: Schema.optionalKey(KeysQuery)
}).annotate({ description: "The keys of the page." })
export interface KeysPage extends Schema.Schema.Type<typeof KeysPage> {}

/** A secret that a rotation replaced. It works until `endsAt`, if the key is active. */
export const FormerSecret = Schema.Struct({
  /** The last four characters of the secret. Absent for some secrets that older versions issued or rotated. */
  hint: Schema.optionalKey(Schema.String.annotate({ description: "The last four characters of the secret." })),
  /** When the secret stops working. */
  endsAt: Instant,
  /** The last use, with minute resolution, if any. */
  lastUsedAt: Schema.NullOr(Instant)
})
export interface FormerSecret extends Schema.Schema.Type<typeof FormerSecret> {}

const Window = Schema.Struct({ limit: Schema.Int, remaining: Schema.Int, resetAt: Instant })

/** A key with its usage, its ban and its former secrets. */
export const ApiKeyDetails = Schema.Struct({
  ...ApiKey.fields,
  /** The windows of the limits per minute and per day: each with its limit, the remaining requests and its reset. */
  usage: Schema.Struct({ minute: Window, day: Window }),
  /** The ban, if the key is banned. */
  ban,
  /** Where `usage` and `ban` come from: from Redis, or from the process that responds. */
  counting: openTo(
    Schema.Literals(["single", "own", "shared", "fallback"]).annotate({
      description: "Where `usage` and `ban` come from: Redis (`shared`), or the process that responds, because it is " +
        "the only one on its database (`single`), has no Redis (`own`), or Redis does not respond (`fallback`)."
    })
  ),
  /** The former secrets in their grace period. */
  formerSecrets: Schema.Array(FormerSecret).annotate({ description: "The former secrets in their grace period." })
}).annotate({ identifier: "ApiKeyDetails", description: "The key, with its usage, its ban and its former secrets." })
export interface ApiKeyDetails extends Schema.Schema.Type<typeof ApiKeyDetails> {}

/** Whether `usage` and `ban` may be incomplete, because other processes may count requests and ban keys too. */
export const isPartial = (counting: ApiKeyDetails["counting"]): boolean =>
  counting !== "shared" && counting !== "single"

/** The body of `rotateKey`. */
export const Rotation = Schema.Struct({
  /** The grace period of former secrets in seconds, up to 30 days. The default is 0. */
  gracePeriodSeconds: Schema.Int.annotate({ examples: [3600] })
    .check(Schema.isBetween({ minimum: 0, maximum: 2_592_000 }))
    .pipe(Schema.optionalKey)
}).annotate({ identifier: "Rotation" })
