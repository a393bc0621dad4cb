/** The subcommand `petstore keys issue`. */
import { Effect, Option } from "effect"
import { Command, Flag, type Param } from "effect/cli"
import { IssuedKey } from "../api/Keys.ts"
import { AdminClient } from "../client/PetstoreClient.ts"
import { validValue, withAllErrors } from "./AllErrors.ts"
import { jsonFlag, withNamedDefault } from "./KeyFlags.ts"
import { describeIssued, print } from "./KeyOutput.ts"
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

const plan = planFlag.pipe(withNamedDefault("free", "The plan whose limits the key has"))

const check = Effect.fnUntraced(function*(args: Param.ParsedArgs) {
  return describeLimitErrors({
    plan: yield* validValue(plan, args),
    perMinute: yield* validValue(perMinuteFlag, args),
    perDay: yield* validValue(perDayFlag, args)
  })
})

const flags = {
  name: nameFlag.pipe(Flag.withDescription("What you call the key")),
  plan,
  perMinute: perMinuteFlag,
  perDay: perDayFlag,
  expiresAt: expiresAtFlag.pipe(
    Flag.withDescription("When the key ends, as 2030-12-31 or 2030-12-31T00:00:00Z (default: never)"),
    Flag.mapEffect(decodeInstant),
    Flag.optional
  ),
  json: jsonFlag
}

export const issue = Command.make(
  "issue",
  withAllErrors("issue", flags, check),
  Effect.fnUntraced(function*({ expiresAt, json, name, perDay, perMinute, plan: chosen }) {
    const limits = toLimits(perMinute, perDay)
    const issued = yield* AdminClient.use((client) =>
      client.issue({
        name,
        plan: chosen,
        ...Option.isSome(limits) && { limits: limits.value },
        ...Option.isSome(expiresAt) && { expiresAt: expiresAt.value }
      })
    )
    yield* print(IssuedKey, issued, { json, text: describeIssued(issued) })
  })
).pipe(
  Command.withDescription("Issue a key and show it, once"),
  Command.withExamples([
    { command: "petstore keys issue --name acme --plan pro" },
    { command: "petstore keys issue --name big --plan enterprise --per-minute 5000 --per-day 1000000" }
  ])
)
