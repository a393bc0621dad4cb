/** The parts that the subcommands of `petstore keys` share: flags, and the text of keys. */
import { Console, DateTime, Effect, Schema } from "effect"
import { Argument, Flag } from "effect/cli"
import type { ApiKey } from "../api/Keys.ts"

export const jsonFlag = Flag.Boolean("json").pipe(
  Flag.withDescription("Print JSON instead of text"),
  Flag.withDefault(false)
)

export const idArgument = Argument.String("id").pipe(Argument.withDescription("The key's id: key_…"))

/** Prints `value` as JSON, in the shape of the management API, or prints `text`. */
export const print = <S extends Schema.ConstraintEncoder<unknown>>(
  schema: S,
  value: S["Type"],
  options: { readonly json: boolean; readonly text: string }
) =>
  options.json
    ? Schema.encodeEffect(Schema.fromJsonString(Schema.toCodecJson(schema), { space: 2 }))(value).pipe(
      Effect.flatMap(Console.log)
    )
    : Console.log(options.text)

export const formatTime = (at: DateTime.Utc | null): string => at === null ? "never" : DateTime.formatIso(at)

export const describeKey = (key: ApiKey): string =>
  [
    `id         ${key.id}`,
    `name       ${key.name}`,
    `secret     ${key.hint === null ? "psk_…" : `psk_…${key.hint}`}`,
    `version    ${key.version}`,
    `plan       ${key.plan} (${key.limits.perMinute} a minute, ${key.limits.perDay} a day)`,
    `created    ${formatTime(key.createdAt)}`,
    `expires    ${formatTime(key.expiresAt)}`,
    `revoked    ${formatTime(key.revokedAt)}`,
    `last used  ${formatTime(key.lastUsedAt)}`
  ].join("\n")
