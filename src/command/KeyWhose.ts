/** The subcommand `petstore keys whose`. */
import { Effect, Option, Redacted, Stdio, Stream } from "effect"
import { Argument, CliError, Command, Prompt, TerminalCapabilities } from "effect/cli"
import { ListedKey } from "../api/Keys.ts"
import { isWellFormed } from "../api/SecretForm.ts"
import { AdminClient, type FoundKey } from "../client/PetstoreClient.ts"
import { withAllErrors } from "./AllErrors.ts"
import { CommandError } from "./CommandError.ts"
import { jsonFlag } from "./KeyFlags.ts"
import { describeKey, print } from "./KeyOutput.ts"
import { formatTime } from "./Style.ts"

/** The maximum number of bytes that the command reads. A secret has 42. */
const maxInputBytes = 4_096

const readStdin = Effect.gen(function*() {
  const { stdin } = yield* Stdio.Stdio
  const chunks = yield* Stream.runCollect(Stream.takeUntil(
    Stream.mapAccum(stdin, () => 0, (read, chunk) => [read + chunk.length, [{ chunk, read: read + chunk.length }]]),
    ({ read }) => read > maxInputBytes
  ))
  return Buffer.concat(chunks.map(({ chunk }) => chunk)).toString().trim()
})

/** Reads the secret from a prompt that does not show it, or from a pipe. */
const readSecret = Effect.gen(function*() {
  const { stdinIsTerminal } = yield* Stdio.Stdio
  if (!(yield* stdinIsTerminal)) return Redacted.make(yield* readStdin)
  const { canPrompt } = yield* TerminalCapabilities.TerminalCapabilities
  return yield* canPrompt
    ? Effect.map(
      Prompt.run(Prompt.Hidden({ message: "Secret" })),
      (typed) => Redacted.make(Redacted.value(typed).trim())
    )
    : noSecret
})

const noSecret = Effect.fail(
  new CliError.InvalidValue({
    option: "secret",
    value: "",
    expected: "a secret through a pipe, or a terminal for the prompt",
    kind: "argument"
  })
)

/** The error for a text that is no secret. It does not contain the text, which may be most of a secret. */
const malformed = new CliError.InvalidValue({
  option: "secret",
  value: "…",
  expected: "psk_ and 38 letters and digits, whose last 6 are a checksum",
  kind: "argument"
})

const describeSecret = ({ expiresAt, id, revokedAt, secret: { endsAt, works } }: FoundKey): string =>
  works
    ? endsAt === null
      ? `The secret works: it is the current secret of ${id}.`
      : `The secret works until ${formatTime(endsAt)}: it is a former secret of ${id}.`
    : revokedAt !== null
    ? `The secret does not work: ${id} is revoked.`
    : endsAt === null
    ? `The secret does not work: ${id} expired at ${formatTime(expiresAt)}.`
    : `The secret does not work: it is a former secret of ${id}.`

const flags = {
  secret: Argument.Redacted("secret").pipe(
    Argument.withDescription(
      "The secret: psk_…. A shell keeps arguments in its history, so leave it out: the command reads it from a pipe " +
        "or asks for it."
    ),
    Argument.optional
  ),
  json: jsonFlag
}

/** Prints the key of a secret. The service gets only the SHA-256 of the secret. */
export const whose = Command.make(
  "whose",
  withAllErrors("whose", flags),
  Effect.fnUntraced(function*({ json, secret }) {
    const given = Option.isSome(secret) ? secret.value : yield* readSecret
    if (!isWellFormed(Redacted.value(given))) return yield* malformed
    const found = yield* AdminClient.use((client) => client.whose(given))
    if (Option.isNone(found)) return yield* new CommandError({ message: "No key has this secret." })
    return yield* print(ListedKey, found.value, {
      json,
      text: `${describeSecret(found.value)}\n\n${describeKey(found.value)}`
    })
  })
).pipe(Command.withDescription("Find the key of a leaked secret, which does not leave this machine"))
