/** The flags of a key's name, plan, limits and expiry, which `issue` and `update` have. */
import { Option, Result } from "effect"
import { Flag } from "effect/cli"
import { limitsOf, NewKey } from "../api/Keys.ts"
import { Limits, Plan } from "../api/Plans.ts"
import { decodeField, withFieldSchema } from "./KeyFlags.ts"

export const nameFlag = Flag.String("name").pipe(withFieldSchema("name", NewKey.fields.name))

export const planFlag = Flag.Literals("plan", Plan.literals)

export const perMinuteFlag = Flag.Int("per-minute").pipe(
  Flag.withMetavar("requests"),
  Flag.withDescription("Requests a minute, on plan enterprise, together with --per-day"),
  withFieldSchema("per-minute", Limits.fields.perMinute),
  Flag.optional
)

export const perDayFlag = Flag.Int("per-day").pipe(
  Flag.withMetavar("requests"),
  Flag.withDescription("Requests a day, on plan enterprise, together with --per-minute"),
  withFieldSchema("per-day", Limits.fields.perDay),
  Flag.optional
)

export const expiresAtFlag = Flag.String("expires-at").pipe(Flag.withMetavar("instant"))

/** Decodes an instant in the form that the management API takes. */
export const decodeInstant = decodeField("expires-at", NewKey.fields.expiresAt.schema)

/** Returns the limits, if both flags are given. */
export const toLimits = (perMinute: Option.Option<number>, perDay: Option.Option<number>): Option.Option<Limits> =>
  Option.all({ perMinute, perDay })

/** The values of the three flags. `undefined` is an invalid value, or for the plan also an unknown one. */
interface LimitValues {
  readonly plan: Plan | undefined
  readonly perMinute: Option.Option<number> | undefined
  readonly perDay: Option.Option<number> | undefined
  /** Whether the key may keep its limits. Otherwise plan enterprise needs both flags. */
  readonly mayKeep?: boolean
}

const both = "--per-minute and --per-day"

/** Returns the messages about limits that do not fit the plan, or that are not given together. */
export const describeLimitErrors = (
  { mayKeep = false, perDay, perMinute, plan }: LimitValues
): ReadonlyArray<string> => {
  if (perMinute === undefined || perDay === undefined) return []
  const given = Option.firstSomeOf([perMinute, perDay])
  const hasBoth = Option.isSome(toLimits(perMinute, perDay))
  if (Option.isSome(given) && !hasBoth && (plan === undefined || plan === "enterprise")) {
    return [
      Option.isNone(perDay)
        ? "--per-day: required together with --per-minute"
        : "--per-minute: required together with --per-day"
    ]
  }
  if (plan === undefined || mayKeep && Option.isNone(given)) return []
  const limits = Option.map(given, (value) => ({ perMinute: value, perDay: value }))
  return Result.match(limitsOf({ plan, ...Option.isSome(limits) && { limits: limits.value } }), {
    onFailure: (issue) => [`${both}: ${issue}`],
    onSuccess: () => []
  })
}
