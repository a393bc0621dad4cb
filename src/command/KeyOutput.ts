/** The parts that the subcommands of `petstore keys` share: flags, and the text of keys. */
import { Console, DateTime, Effect, Option, PlatformError, Predicate, Schema, Stream } from "effect"
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

/** Returns the fields that have a value. */
export const present = (fields: Readonly<Record<string, Option.Option<unknown>>>): Record<string, unknown> =>
  Object.fromEntries(
    Object.entries(fields).flatMap(([name, value]) => Option.isSome(value) ? [[name, value.value]] : [])
  )

const limit = Schema.Struct({ limit: Schema.Int.check(Schema.isGreaterThanOrEqualTo(1)) })
const decodeLimit = Schema.decodeUnknownEffect(limit)

/** Checks the value of `--limit`, which is at least 1. */
export const decodeCount = (count: number) => Effect.map(decodeLimit({ limit: count }), (decoded) => decoded.limit)

/**
 * Encodes the items as one JSON array, in the shape of the management API. The stream has one string per page of items,
 * and one that closes the array.
 */
export const toJsonArray = <A, E, R, E2>(
  items: Stream.Stream<A, E, R>,
  encode: (page: ReadonlyArray<A>) => Effect.Effect<unknown, E2>
) =>
  Stream.chunks(items).pipe(
    Stream.mapEffect((page) => encode(page)),
    Stream.mapAccum(
      () => "[\n",
      (before, page) => [",\n", [before + JSON.stringify(page, null, 2).slice("[\n".length, -"\n]".length)]],
      { onHalt: (before) => [before === "[\n" ? "[]\n" : "\n]\n"] }
    )
  )

const isClosedPipe = (error: unknown): boolean =>
  PlatformError.isPlatformError(error) && Predicate.hasProperty(error.reason.cause, "code") &&
  error.reason.cause.code === "EPIPE"

/** Ends without an error if a reader such as `head` closes the pipe when it has enough. */
export const ignoreClosedPipe = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.catchIf(effect, isClosedPipe, () => Effect.void)
