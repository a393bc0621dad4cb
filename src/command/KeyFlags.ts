import { Clock, Effect, Option, Result, Schema } from "effect"
import { Argument, CliError, Flag } from "effect/cli"
import { AuditAction, AuditQuery } from "../api/Audit.ts"
import * as Brand from "../api/Brand.ts"
import { KeyChange, KeyOrder, KeysQuery, KeyState, NewKey, Rotation } from "../api/KeySchemas.ts"
import { Limits, Plan } from "../api/Plans.ts"
import { TopUsageQuery, usageKinds } from "../api/Usage.ts"

export const optional = <A>(flag: Flag.Flag<A>, description?: string): Flag.Flag<A | undefined> => {
  const described = description === undefined ? flag : Flag.withDescription(flag, description)
  return Flag.map(Flag.optional(described), Option.getOrUndefined)
}

/** As `Flag.withSchema`, without the prefix "Schema validation failed" in error messages. */
const withSchema = <A, B>(schema: Schema.Codec<B, A>) => (flag: Flag.Flag<A>): Flag.Flag<B> => {
  const decode = Schema.decodeUnknownResult(schema)
  const describe = (value: A) => Result.match(decode(value), { onFailure: ({ message }) => message, onSuccess: String })
  return Flag.filterMap(flag, (value) => Result.getSuccess(decode(value)), describe)
}

const isWhole = (text: string): boolean => /^-?\d+$/.test(text)

const wholeNumber = (name: string) => {
  const flag = Flag.String(name).pipe(Flag.withMetavar("number"), Flag.filter(isWhole, () => "Expected a whole number"))
  return Flag.map(flag, Number)
}

const run = (subcommand: string): string => `run \`${Brand.name} keys ${subcommand}\``

export const idArgument = Argument.String("id").pipe(
  Argument.withDescription("The key's id: key_…"),
  Argument.filter((id) => id.startsWith("key_"), () => `Expected key_…. To find it, ${run("list --search")}`)
)

export const jsonFlag = Flag.Boolean("json").pipe(
  Flag.withDescription("Print JSON instead of text"),
  Flag.withDefault(false)
)

export const fromFlag = Flag.optional(
  Flag.FileText("from").pipe(
    Flag.withMetavar("file"),
    Flag.withDescription("Revoke all keys whose ids are in this file, one a line, instead of one key")
  )
)

export const yesFlag = Flag.Boolean("yes").pipe(
  Flag.withAlias("y"),
  Flag.withDescription("Do not ask for confirmation. Without a terminal, the command never asks"),
  Flag.withDefault(false)
)

export const limitFlag = wholeNumber("limit").pipe(
  Flag.filter((count) => count > 0, () => "Expected a number of at least 1"),
  Flag.withDescription("Print at most this many rows")
)

export const nameFlag = Flag.String("name").pipe(
  withSchema(NewKey.fields.name),
  Flag.withDescription("A name for the key")
)

export const planFlag = Flag.withDescription(Flag.Literals("plan", Plan.literals), "The plan. A new key has plan free")

const requestsFlag = (flag: string, schema: Schema.Codec<number>, description: string) =>
  optional(wholeNumber(flag).pipe(withSchema(schema)), description)

export const termFlags = {
  perMinute: requestsFlag("per-minute", Limits.fields.perMinute, "Requests per minute (only for plan enterprise)"),
  perDay: requestsFlag("per-day", Limits.fields.perDay, "Requests per day (only for plan enterprise)"),
  expiresAt: optional(
    Flag.String("expires-at").pipe(
      Flag.withMetavar("time"),
      Flag.map((text) => text === "never" ? null : text),
      withSchema(KeyChange.fields.expiresAt.schema)
    ),
    `When the key expires: 2030-12-31 (its start in UTC), 2030-12-31T08:00:00Z or "never"`
  )
}

export const toLimits = (perMinute: number | undefined, perDay: number | undefined) => {
  if (perMinute === undefined && perDay === undefined) return Effect.undefined
  if (perMinute !== undefined && perDay !== undefined) return Effect.succeed({ perMinute, perDay })
  return new CliError.ValidationError({ message: "--per-minute and --per-day: use both or neither" })
}

export const changeFlags = {
  id: idArgument,
  version: optional(
    wholeNumber("if-version").pipe(Flag.withMetavar("version")),
    "Change the key only if it has this version, which show prints"
  )
}

const secondsOf = { s: 1, m: 60, h: 3_600, d: 86_400 }

/** Returns the seconds of a duration such as `24h`, or of a number without a unit. `undefined` for other texts. */
const parseSeconds = (text: string): number | undefined => {
  const [, count, unit = "s"] = /^(-?\d+)([smhd])?$/.exec(text) ?? []
  const size = Object.entries(secondsOf).find(([name]) => name === unit)?.[1]
  return count === undefined || size === undefined ? undefined : Number(count) * size
}

export const graceFlag = Flag.String("grace").pipe(
  Flag.withMetavar("time"),
  Flag.filterMap(
    (text) => Option.fromUndefinedOr(parseSeconds(text)),
    () => "Expected a duration such as 24h (s, m, h or d), or seconds"
  ),
  withSchema(Rotation.fields.gracePeriodSeconds.schema),
  Flag.withDescription("How long former secrets still work, such as 24h. By default 0: they stop working at once"),
  Flag.withDefault(0)
)

export const readFlags = { id: idArgument, json: jsonFlag }

export const topFlags = {
  window: optional(
    Flag.Literals("window", TopUsageQuery.fields.window.schema.literals),
    "Count the requests of the current hour (default) or day of UTC"
  ),
  by: optional(Flag.Literals("by", usageKinds), "Rank keys by this kind of request (default: allowed)"),
  limit: optional(limitFlag),
  json: jsonFlag
}

/** A flag whose value is a time, or a duration before now, such as `7d`. */
const timeFlag = (name: string) =>
  Flag.String(name).pipe(
    Flag.withMetavar("time"),
    Flag.mapEffect((text) => {
      const seconds = /\d[smhd]$/.test(text) ? parseSeconds(text) : undefined
      return Effect.map(
        Clock.currentTimeMillis,
        (now) => seconds === undefined ? text : new Date(now - seconds * 1_000).toISOString()
      )
    }),
    withSchema(AuditQuery.fields.since.schema)
  )

export const logFlags = {
  id: Argument.optional(idArgument),
  since: optional(
    timeFlag("since"),
    "Print only actions at or after this time, such as 2030-12-31 (its start in UTC), or 7d for the last seven days"
  ),
  until: optional(timeFlag("until"), "Print only actions before this time"),
  operator: optional(Flag.String("operator"), "Print only actions by this operator"),
  action: optional(Flag.Literals("action", AuditAction.literals), "Print only this action"),
  limit: Flag.withDefault(limitFlag, 100),
  json: jsonFlag
}

export const listFlags = {
  plan: optional(Flag.Literals("plan", Plan.literals), "Print only keys on this plan"),
  state: optional(Flag.Literals("state", KeyState.literals), "Print only keys in this state"),
  order: Flag.Literals("order", KeyOrder.literals).pipe(
    Flag.withDescription("Print these keys first: by default the newest, as in the console"),
    Flag.withDefault("newest")
  ),
  search: optional(
    Flag.String("search").pipe(
      Flag.withMetavar("text"),
      withSchema(KeysQuery.fields.search.schema),
      // Reject secrets: the value of `--search` becomes part of the request's URL, and proxies log URLs.
      Flag.filter((text) => !text.includes(Brand.keyPrefix), () => `To find a secret's key, ${run("whose")}`)
    ),
    "Print only keys whose name begins with this text, or with this id or these last four characters, by name"
  ),
  limit: optional(limitFlag),
  json: jsonFlag
}
