/** Prints keys, as text and as JSON. */
import { Console, DateTime, Effect, PlatformError, Predicate, Redacted, Schema, Stream } from "effect"
import { type ApiKey, type IssuedKey, type KeyState, keyStateOf, type ListedKey } from "../api/Keys.ts"
import { formatCount, formatTime, printable, type Style } from "./Style.ts"

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

export type State = KeyState | "banned"

/** Returns the state of a key at `now`. A ban of a revoked or expired key does not matter. */
export const stateOf = (
  key: Pick<ListedKey, "ban" | "expiresAt" | "revokedAt">,
  now: DateTime.Utc
): State => {
  const state = keyStateOf(key, now)
  return state === "active" && key.ban !== null ? "banned" : state
}

/** Returns the color of a state: green works, yellow is banned for a while, and red has ended. */
export const colorOfState = (state: State, { green, red, yellow }: Style) =>
  state === "active" ? green : state === "banned" ? yellow : red

export const describeKey = (key: ApiKey): string =>
  [
    `id         ${key.id}`,
    `name       ${printable(key.name)}`,
    `secret     ${key.hint === null ? "psk_…" : `psk_…${key.hint}`}`,
    `version    ${key.version}`,
    `plan       ${key.plan} (${formatCount(key.limits.perMinute)} a minute, ${formatCount(key.limits.perDay)} a day)`,
    `created    ${formatTime(key.createdAt)}`,
    `expires    ${formatTime(key.expiresAt)}`,
    `revoked    ${formatTime(key.revokedAt)}`,
    `last used  ${formatTime(key.lastUsedAt)}`
  ].join("\n")

export const describeIssued = (issued: IssuedKey): string =>
  `${describeKey(issued)}\nkey        ${Redacted.value(issued.key)}\n\nThe key is shown only now.`

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
