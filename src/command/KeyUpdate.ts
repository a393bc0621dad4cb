/** The subcommand `petstore keys update`. */
import { Effect, Option } from "effect"
import { Command, Flag, type Param } from "effect/cli"
import { ApiKey } from "../api/Keys.ts"
import { AdminClient } from "../client/PetstoreClient.ts"
import { validValue, withAllErrors } from "./AllErrors.ts"
import { idArgument, jsonFlag } from "./KeyFlags.ts"
import { describeKey, print } from "./KeyOutput.ts"
import {
  decodeInstant,
  describeLimitErrors,
  expiresAtFlag,
  nameFlag,
  perDayFlag,
  perMinuteFlag,
  planFlag,
  toLimits
} from "./LimitFlags.ts"

const changes = {
  name: nameFlag.pipe(Flag.withDescription("The new name"), Flag.optional),
  plan: planFlag.pipe(Flag.withDescription("The new plan"), Flag.optional),
  perMinute: perMinuteFlag,
  perDay: perDayFlag,
  expiresAt: expiresAtFlag.pipe(
    Flag.withDescription("When the key ends, as 2030-12-31 or 2030-12-31T00:00:00Z, or never"),
    // The management API removes the expiry with `null`.
    Flag.mapEffect((text) => text === "never" ? Effect.succeed(null) : decodeInstant(text)),
    Flag.optional
  )
}

const check = Effect.fnUntraced(function*(args: Param.ParsedArgs) {
  const { perDay, perMinute, plan } = changes
  const chosen = yield* validValue(plan, args)
  const errors = describeLimitErrors({
    plan: chosen === undefined ? undefined : Option.getOrUndefined(chosen),
    perMinute: yield* validValue(perMinute, args),
    perDay: yield* validValue(perDay, args),
    // A key that is on plan enterprise already keeps its limits.
    mayKeep: true
  })
  const isEmpty = ["name", "plan", "per-minute", "per-day", "expires-at"].every((name) =>
    (args.flags[name] ?? []).length === 0
  )
  return isEmpty
    ? [...errors, "Nothing to change: use --name, --plan, --per-minute and --per-day, or --expires-at"]
    : errors
})

/** Changes a key. Fields without a flag stay as they are. */
export const update = Command.make(
  "update",
  withAllErrors("update", {
    ...changes,
    ifVersion: Flag.Int("if-version").pipe(
      Flag.withMetavar("version"),
      Flag.withDescription("Change the key only if it has this version, which show prints"),
      Flag.optional
    ),
    id: idArgument,
    json: jsonFlag
  }, check),
  Effect.fnUntraced(function*({ expiresAt, id, ifVersion, json, name, perDay, perMinute, plan }) {
    const limits = toLimits(perMinute, perDay)
    const change = {
      ...Option.isSome(name) && { name: name.value },
      ...Option.isSome(plan) && { plan: plan.value },
      ...Option.isSome(limits) && { limits: limits.value },
      ...Option.isSome(expiresAt) && { expiresAt: expiresAt.value }
    }
    const options = Option.isSome(ifVersion) ? { version: ifVersion.value } : {}
    const key = yield* AdminClient.use((client) => client.update(id, change, options))
    yield* print(ApiKey, key, { json, text: describeKey(key) })
  })
).pipe(
  Command.withDescription("Change the name, the plan, the limits or the expiry of a key"),
  Command.withExamples([
    { command: "petstore keys update key_… --plan pro" },
    { command: "petstore keys update key_… --expires-at never --if-version 3" }
  ])
)
