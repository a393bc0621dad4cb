/** The subcommands of `petstore keys`. */
import { Console, DateTime, Duration, Effect, Option, Redacted, Stdio, Stream } from "effect"
import { Argument, CliError, Command, Flag, Prompt, TerminalCapabilities } from "effect/cli"
import { AuditEntry } from "../api/Audit.ts"
import { ApiKey, ApiKeyDetails, IssuedKey, ListedKey } from "../api/Keys.ts"
import { listLimit } from "../api/Paging.ts"
import { isWellFormed } from "../api/SecretForm.ts"
import { AdminClient, type FoundKey } from "../client/AdminClient.ts"
import { adminClientLayer, CommandError } from "./AdminConnection.ts"
import {
  filterFlags,
  given,
  gracePeriodFlag,
  idArgument,
  ifVersionFlag,
  jsonFlag,
  limitFlag,
  nameFlag,
  planFlag,
  termFlags,
  toLimits,
  yesFlag
} from "./KeyFlags.ts"
import {
  auditColumns,
  describeDetails,
  describeIssued,
  describeKey,
  keyColumns,
  print,
  printRows
} from "./KeyOutput.ts"

/** Asks `question` on a terminal, unless `isConfirmed`. Fails if the operator does not confirm. */
const confirm = Effect.fnUntraced(function*(question: string, isConfirmed: boolean) {
  const { canPrompt } = yield* TerminalCapabilities.TerminalCapabilities
  const mayAct = isConfirmed || !canPrompt || (yield* Prompt.run(Prompt.Confirm({ message: question })))
  return yield* mayAct ? Effect.void : new CommandError({ message: "Nothing was changed." })
})

const issue = Command.make(
  "issue",
  { name: nameFlag, plan: Flag.withDefault(planFlag, "free"), ...termFlags, json: jsonFlag },
  Effect.fnUntraced(function*({ expiresAt, json, name, perDay, perMinute, plan }) {
    const limits = yield* toLimits(perMinute, perDay)
    const terms = given({ limits, expiresAt: Option.filter(expiresAt, (at) => at !== null) })
    const issued = yield* AdminClient.use((client) => client.issue({ name, plan, ...terms }))
    yield* print(IssuedKey, issued, { json, text: describeIssued(issued) })
  })
).pipe(
  Command.withDescription("Issue a key and show it, once"),
  Command.withExamples([
    { command: "petstore keys issue --name acme --plan pro" },
    { command: "petstore keys issue --name big --plan enterprise --per-minute 5000 --per-day 1000000" }
  ])
)

const list = Command.make(
  "list",
  { ...filterFlags, limit: Flag.optional(limitFlag), json: jsonFlag },
  Effect.fnUntraced(function*({ json, limit, ...filter }) {
    const { all } = yield* AdminClient
    const count = Option.getOrElse(limit, () => Infinity)
    const keys = all({ ...given(filter), pageSize: Math.min(count, listLimit.maximum) })
    const columns = keyColumns(yield* DateTime.now)
    yield* printRows(Stream.take(keys, count), { columns, json, schema: ListedKey })
  })
).pipe(
  Command.withDescription("List the keys"),
  Command.withExamples([{ command: "petstore keys list --state active --plan pro --search acme" }])
)

const show = Command.make(
  "show",
  { id: idArgument, json: jsonFlag },
  Effect.fnUntraced(function*({ id, json }) {
    const key = yield* AdminClient.use((client) => client.get(id))
    yield* print(ApiKeyDetails, key, { json, text: describeDetails(key, yield* DateTime.now) })
  })
).pipe(Command.withDescription("Show a key, what it has left of its limits, and its ban"))

const update = Command.make(
  "update",
  {
    name: Flag.optional(nameFlag),
    plan: Flag.optional(planFlag),
    ...termFlags,
    ifVersion: ifVersionFlag,
    id: idArgument,
    json: jsonFlag
  },
  Effect.fnUntraced(function*({ expiresAt, id, ifVersion, json, name, perDay, perMinute, plan }) {
    const limits = yield* toLimits(perMinute, perDay)
    const change = given({ name, plan, limits, expiresAt })
    const key = yield* AdminClient.use((client) => client.update(id, change, given({ version: ifVersion })))
    yield* print(ApiKey, key, { json, text: describeKey(key) })
  })
).pipe(
  Command.withDescription("Change the name, the plan, the limits or the expiry of a key"),
  Command.withExamples([
    { command: "petstore keys update key_… --plan pro" },
    { command: "petstore keys update key_… --expires-at never --if-version 3" }
  ])
)

const rotate = Command.make(
  "rotate",
  { id: idArgument, gracePeriod: gracePeriodFlag, ifVersion: ifVersionFlag, yes: yesFlag, json: jsonFlag },
  Effect.fnUntraced(function*({ gracePeriod, id, ifVersion, json, yes }) {
    const client = yield* AdminClient
    if (gracePeriod === 0) yield* confirm(`Rotate ${id}? Its current secret stops working now.`, yes)
    const issued = yield* client.rotate(id, {
      gracePeriod: Duration.seconds(gracePeriod),
      ...given({ version: ifVersion })
    })
    yield* print(IssuedKey, issued, { json, text: describeIssued(issued) })
  })
).pipe(
  Command.withDescription("Give a key a new secret and show it, once"),
  Command.withExamples([{ command: "petstore keys rotate key_… --grace-period 3600" }])
)

const revoke = Command.make(
  "revoke",
  { id: idArgument, ifVersion: ifVersionFlag, yes: yesFlag },
  Effect.fnUntraced(function*({ id, ifVersion, yes }) {
    const client = yield* AdminClient
    yield* confirm(`Revoke ${id}? This cannot be undone.`, yes)
    yield* client.revoke(id, given({ version: ifVersion }))
    yield* Console.log(`${id} is revoked.`)
  })
).pipe(Command.withDescription("End a key for good"))

const endFormer = Command.make(
  "end-former",
  { id: idArgument, ifVersion: ifVersionFlag },
  Effect.fnUntraced(function*({ id, ifVersion }) {
    yield* AdminClient.use((client) => client.endFormerSecrets(id, given({ version: ifVersion })))
    yield* Console.log(`Only the current secret of ${id} works.`)
  })
).pipe(Command.withDescription("End the former secrets of a key, which work after a rotation"))

const unban = Command.make(
  "unban",
  { id: idArgument },
  Effect.fnUntraced(function*({ id }) {
    const client = yield* AdminClient
    const { ban, counting } = yield* client.get(id)
    yield* client.unban(id)
    const text = ban === null
      ? `${id} was not banned.`
      : `The ban of ${id}, which would have lasted until ${DateTime.formatIso(ban.until)}, is lifted.`
    // Without Redis, the other processes count for themselves.
    const place = counting === "shared" ? "" : " This is true of the process that responded: it counts alone."
    yield* Console.log(text + place)
  })
).pipe(Command.withDescription("Lift the ban of a key"))

const log = Command.make(
  "log",
  { id: Argument.optional(idArgument), limit: Flag.withDefault(limitFlag, 100), json: jsonFlag },
  Effect.fnUntraced(function*({ id, json, limit }) {
    const client = yield* AdminClient
    // The log of an unknown key is empty, as that of a key without entries, so the key is looked up first.
    if (Option.isSome(id)) yield* client.get(id.value)
    const entries = client.auditAll({ ...given({ key: id }), pageSize: Math.min(limit, listLimit.maximum) })
    yield* printRows(Stream.take(entries, limit), { columns: auditColumns, json, schema: AuditEntry })
  })
).pipe(Command.withDescription("Show what was done to a key or to all keys, the newest first: 100 entries by default"))

/** The maximum number of bytes that `whose` reads. A secret has 42. */
const maxInputBytes = 4_096

const readStdin = Effect.gen(function*() {
  const { stdin } = yield* Stdio.Stdio
  const bytes = yield* Stream.runCollect(Stream.take(Stream.flattenIterable(stdin), maxInputBytes))
  return Redacted.make(Buffer.from(bytes).toString().trim())
})

/** Reads the secret from a prompt that does not show it, or from a pipe. A shell keeps arguments in its history. */
const readSecret = Effect.gen(function*() {
  const { canPrompt } = yield* TerminalCapabilities.TerminalCapabilities
  const secret = yield* canPrompt ? Prompt.run(Prompt.Hidden({ message: "Secret" })) : readStdin
  if (isWellFormed(Redacted.value(secret))) return secret
  return yield* new CliError.ValidationError({
    message: "The text is no secret: expected psk_ and 38 letters and digits, whose last 6 are a checksum"
  })
})

const describeSecret = ({ expiresAt, id, revokedAt, secret: { endsAt, works } }: FoundKey): string => {
  if (works && endsAt === null) return `The secret works: it is the current secret of ${id}.`
  if (works) return `The secret works until ${formatEnd(endsAt)}: it is a former secret of ${id}.`
  if (revokedAt !== null) return `The secret does not work: ${id} is revoked.`
  return endsAt === null
    ? `The secret does not work: ${id} expired at ${formatEnd(expiresAt)}.`
    : `The secret does not work: it is a former secret of ${id}.`
}

const formatEnd = (at: DateTime.Utc | null): string => at === null ? "never" : DateTime.formatIso(at)

const whose = Command.make(
  "whose",
  { json: jsonFlag },
  Effect.fnUntraced(function*({ json }) {
    const secret = yield* readSecret
    const found = yield* AdminClient.use((client) => client.whose(secret))
    if (Option.isNone(found)) return yield* new CommandError({ message: "No key has this secret." })
    const text = `${describeSecret(found.value)}\n\n${describeKey(found.value)}`
    return yield* print(ListedKey, found.value, { json, text })
  })
).pipe(
  Command.withDescription("Find the key of a leaked secret, which does not leave this machine"),
  Command.withExamples([{ command: "petstore keys whose < secret.txt" }])
)

const keys = Command.make("keys").pipe(
  Command.withDescription("Manage API keys"),
  Command.withSubcommands([issue, list, show, update, rotate, endFormer, revoke, unban, log, whose]),
  Command.provide(adminClientLayer)
)

/** The command `petstore` with all its subcommands. */
export const petstore = Command.make("petstore").pipe(
  Command.withDescription("Operate a running Petstore service, at PETSTORE_ADMIN_URL and with its ADMIN_TOKEN"),
  Command.withSubcommands([keys])
)
