import { Cause, Console, DateTime, Duration, Effect, Logger, Option, Redacted, References, Stdio, Stream } from "effect"
import { Argument, CliError, Command, Flag, Prompt, TerminalCapabilities } from "effect/cli"
import { AuditEntry } from "../api/Audit.ts"
import * as Brand from "../api/Brand.ts"
import { ApiKey, ApiKeyDetails, isPartial, IssuedKey, keyStateOf, ListedKey } from "../api/KeySchemas.ts"
import { listLimit } from "../api/Paging.ts"
import { findSecret, isWellFormed } from "../api/Secrets.ts"
import { KeyTotals, UsageHistory } from "../api/Usage.ts"
import { AdminClient, type FoundKey } from "../client/AdminClient.ts"
import { databaseOptions } from "../config/RoomOptions.ts"
import { describeCause } from "../observability/DescribeCause.ts"
import { adminClientLayer, CommandError } from "./AdminConnection.ts"
import * as Flags from "./KeyFlags.ts"
import * as Output from "./KeyOutput.ts"

const confirm = Effect.fnUntraced(function*(question: string, isConfirmed: boolean) {
  const { canPrompt } = yield* TerminalCapabilities.TerminalCapabilities
  const mayAct = isConfirmed || !canPrompt || (yield* Prompt.run(Prompt.Confirm({ message: question })))
  return yield* mayAct ? Effect.void : new CommandError({ message: "Nothing was changed." })
})

const issue = Command.make(
  "issue",
  { name: Flags.nameFlag, plan: Flag.withDefault(Flags.planFlag, "free"), ...Flags.termFlags, json: Flags.jsonFlag },
  Effect.fnUntraced(function*({ expiresAt, json, name, perDay, perMinute, plan }) {
    const limits = yield* Flags.toLimits(perMinute, perDay)
    const issued = yield* AdminClient.use((client) => client.issue({ name, plan, limits, expiresAt }))
    yield* Output.print(IssuedKey, issued, { json, text: Output.describeIssued(issued) })
  })
).pipe(Command.withDescription("Issue a key and show it, once"))

const list = Command.make("list", Flags.listFlags, ({ json, limit = Infinity, ...filter }) =>
  Effect.gen(function*() {
    const { all } = yield* AdminClient
    const keys = all({ ...filter, pageSize: Math.min(limit, listLimit.maximum) })
    const columns = Output.keyColumns(yield* DateTime.now)
    yield* Output.printRows(ListedKey, Stream.take(keys, limit), { columns, json })
  })).pipe(Command.withDescription("List the keys"))

const show = Command.make("show", Flags.readFlags, ({ id, json }) =>
  Effect.gen(function*() {
    const key = yield* AdminClient.use((client) => client.get(id))
    yield* Output.print(ApiKeyDetails, key, { json, text: Output.describeDetails(key, yield* DateTime.now) })
  })).pipe(Command.withDescription("Show a key, its remaining requests and its ban"))

const update = Command.make(
  "update",
  {
    name: Flags.optional(Flags.nameFlag),
    plan: Flags.optional(Flags.planFlag),
    ...Flags.termFlags,
    ...Flags.changeFlags,
    json: Flags.jsonFlag
  },
  Effect.fnUntraced(function*({ expiresAt, id, json, name, perDay, perMinute, plan, version }) {
    const change = { name, plan, limits: yield* Flags.toLimits(perMinute, perDay), expiresAt }
    if (Object.values(change).every((field) => field === undefined)) {
      const message = "Nothing to change: name at least one flag, such as --plan pro"
      return yield* new CliError.ValidationError({ message })
    }
    const key = yield* AdminClient.use((client) => client.update(id, change, { version }))
    return yield* Output.print(ApiKey, key, { json, text: Output.describeKey(key) })
  })
).pipe(Command.withDescription("Change the name, the plan, the limits or the expiry of a key"))

const rotate = Command.make(
  "rotate",
  { ...Flags.changeFlags, grace: Flags.graceFlag, yes: Flags.yesFlag, json: Flags.jsonFlag },
  Effect.fnUntraced(function*({ grace, id, json, version, yes }) {
    const client = yield* AdminClient
    if (grace === 0) yield* confirm(`Rotate ${id}? Its secrets stop working now.`, yes)
    const issued = yield* client.rotate(id, { gracePeriod: Duration.seconds(grace), version })
    // The key is already rotated, so print its new secret even if `client.get` fails.
    const { formerSecrets } = yield* Effect.orElseSucceed(client.get(id), () => ({ formerSecrets: [] }))
    yield* Output.print(IssuedKey, issued, { json, text: Output.describeIssued(issued, formerSecrets) })
  })
).pipe(Command.withDescription("Give a key a new secret, shown once. Without --grace, its former ones stop working"))

/**
 * Returns the ids in the file of `--from`: the first word of each line. Ignores the rest of a line and the heading
 * `ID`, so that the output of `keys list` works as a file.
 */
const parseIds = Effect.fnUntraced(function*(text: string) {
  const words = text.split("\n").map((line) => line.trim().split(/\s+/, 1).join()).filter((word) => word !== "")
  const unknown = words.find((word) => !word.startsWith("key_") && word !== "ID")
  if (unknown === undefined) return new Set(words.filter((word) => word !== "ID"))
  return yield* new CliError.ValidationError({
    message: `--from: expected one id of a key (key_…) a line, not "${Output.printable(unknown.slice(0, 40))}"`
  })
})

/** Revokes the keys. A missing or already revoked key is no failure, so that an interrupted run can be repeated. */
const revokeAll = Effect.fnUntraced(function*(ids: ReadonlySet<string>, yes: boolean) {
  const client = yield* AdminClient
  yield* confirm(`Revoke ${ids.size} keys? This cannot be undone.`, yes)
  const outcomes = yield* Effect.forEach(ids, (id) =>
    Effect.gen(function*() {
      const outcome = yield* client.revoke(id).pipe(
        Effect.as("is revoked"),
        Effect.catchTags({
          Conflict: () => Effect.succeed("was revoked before"),
          NotFound: () => Effect.succeed("does not exist")
        })
      )
      yield* Console.log(`${id} ${outcome}.`)
      return outcome
    }))
  const count = (outcome: string) => outcomes.filter((each) => each === outcome).length
  yield* Console.log(
    `${count("is revoked")} revoked, ${count("was revoked before")} before, ${count("does not exist")} do not exist.`
  )
})

const revoke = Command.make(
  "revoke",
  { ...Flags.changeFlags, id: Argument.optional(Flags.idArgument), from: Flags.fromFlag, yes: Flags.yesFlag },
  Effect.fnUntraced(function*({ from, id, version, yes }) {
    if (Option.isSome(id) === Option.isSome(from) || (Option.isSome(from) && version !== undefined)) {
      return yield* new CliError.ValidationError({ message: "Name one key, or a file with --from" })
    }
    if (Option.isSome(from)) return yield* revokeAll(yield* parseIds(from.value), yes)
    const [client, key] = [yield* AdminClient, Option.getOrElse(id, () => "")]
    yield* confirm(`Revoke ${key}? This cannot be undone.`, yes)
    yield* client.revoke(key, { version })
    return yield* Console.log(`${key} is revoked.`)
  })
).pipe(Command.withDescription("Revoke a key, or all keys of a list, permanently"))

const enabling = (name: string, enabled: boolean, description: string) =>
  Command.make(name, Flags.changeFlags, ({ id, version }) =>
    Effect.gen(function*() {
      yield* AdminClient.use((client) => client.update(id, { enabled }, { version }))
      yield* Console.log(`${id} is ${name}d.`)
    })).pipe(Command.withDescription(description))

const disable = enabling("disable", false, "Reject the requests of a key until it is enabled again")
const enable = enabling("enable", true, "Enable a disabled key")

const endFormer = Command.make("end-former", Flags.changeFlags, ({ id, version }) =>
  Effect.gen(function*() {
    yield* AdminClient.use((client) => client.endFormerSecrets(id, { version }))
    yield* Console.log(`Only the current secret of ${id} works.`)
  })).pipe(Command.withDescription("Revoke the former secrets of a key, which still work after a rotation"))

const unban = Command.make(
  "unban",
  { id: Flags.idArgument },
  Effect.fnUntraced(function*({ id }) {
    const client = yield* AdminClient
    const { ban, counting } = yield* client.get(id)
    yield* client.unban(id)
    const text = ban === null
      ? `${id} was not banned.`
      : `Lifted the ban on ${id}, which would have lasted until ${DateTime.formatIso(ban.until)}.`
    const place = isPartial(counting)
      ? " Redis was not used: this applies only to the process that responded."
      : ""
    yield* Console.log(text + place)
  })
).pipe(Command.withDescription("Lift the ban on a key"))

const log = Command.make("log", Flags.logFlags, ({ id, json, limit, ...filter }) =>
  Effect.gen(function*() {
    const client = yield* AdminClient
    const pageSize = Math.min(limit, listLimit.maximum)
    // Check the id only if the log is empty, because a key that was deleted with SQL may still have audit entries.
    const checkKey = Option.isSome(id) ? Stream.drain(Stream.fromEffect(client.get(id.value))) : Stream.empty
    const entries = client.auditAll({ ...filter, key: Option.getOrUndefined(id), pageSize }).pipe(
      Stream.orElseIfEmpty(() => checkKey)
    )
    yield* Output.printRows(AuditEntry, Stream.take(entries, limit), { columns: Output.auditColumns, json })
  })).pipe(Command.withDescription("Show the audit log of a key or of all keys, newest first (100 entries by default)"))

const top = Command.make("top", Flags.topFlags, ({ json, ...query }) =>
  Effect.gen(function*() {
    const keys = yield* AdminClient.use((client) => client.topUsage(query))
    yield* Output.printRows(KeyTotals, Stream.fromIterable(keys), { columns: Output.topColumns, json })
  })).pipe(Command.withDescription("Show the keys with the most allowed, rejected or banned requests"))

const usage = Command.make("usage", Flags.readFlags, ({ id, json }) =>
  Effect.gen(function*() {
    const history = yield* AdminClient.use((client) => client.usage(id))
    yield* Output.print(UsageHistory, history, { json, text: Output.describeUsage(history) })
  })).pipe(Command.withDescription("Show the requests of a key by hour, and by minute for the last hour"))

/** Reads a secret from a hidden prompt or from stdin, because an argument would stay in the shell's history. */
const readSecret = Effect.gen(function*() {
  const { canPrompt } = yield* TerminalCapabilities.TerminalCapabilities
  const { stdin } = yield* Stdio.Stdio
  const piped = Effect.map(Stream.mkString(Stream.decodeText(stdin)), Redacted.make)
  const text = yield* canPrompt ? Prompt.run(Prompt.Hidden({ message: "Secret" })) : piped
  const secret = findSecret(Redacted.value(text)) ?? ""
  if (isWellFormed(secret)) return Redacted.make(secret)
  return yield* new CliError.ValidationError({
    message: `The input has no complete secret: expected ${Brand.keyPrefix} and 38 letters and digits`
  })
})

const describeSecret = (secret: string, key: FoundKey, now: DateTime.Utc): string => {
  const { expiresAt, id, revokedAt, secret: { endsAt, works } } = key
  const owner = `it is ${endsAt === null ? "the current" : "a former"} secret of ${id}`
  const subject = `The secret ${Output.formatHint(secret.slice(-4))}`
  if (works) return `${subject} works${endsAt === null ? "" : ` until ${Output.formatTime(endsAt)}`}: ${owner}.`
  const ends = [endsAt, revokedAt, expiresAt].filter((at) => at !== null).toSorted(DateTime.Order)
  const stoppedAt = ends.find((at) => DateTime.isLessThanOrEqualTo(at, now))
  // If the key is only disabled, `key` does not tell when its secrets stopped working. The audit log does.
  const outcome = stoppedAt === undefined ? "does not work" : `stopped working at ${Output.formatTime(stoppedAt)}`
  return `${subject} ${outcome}: ${owner}, which is ${keyStateOf(key, now)}.`
}

const whose = Command.make(
  "whose",
  { json: Flags.jsonFlag },
  Effect.fnUntraced(function*({ json }) {
    const secret = yield* readSecret
    const found = yield* AdminClient.use((client) => client.whose(secret))
    if (Option.isNone(found)) return yield* new CommandError({ message: "No key has this secret." })
    const description = describeSecret(Redacted.value(secret), found.value, yield* DateTime.now)
    const text = `${description}\n\n${Output.describeKey(found.value)}`
    return yield* Output.print(ListedKey, found.value, { json, text })
  })
).pipe(Command.withDescription("Find the key of a secret that you enter or pipe in. It never leaves this machine"))

const keys = Command.make("keys").pipe(
  Command.withDescription(
    "Manage API keys. Reads the variables PETSTORE_ADMIN_URL (by default http://127.0.0.1:MANAGEMENT_PORT, " +
      "with port 9090), ADMIN_TOKEN (by default the file admin-token in DATA_DIR, ./data), " +
      "and NODE_EXTRA_CA_CERTS (a file, for HTTPS with a private CA)"
  ),
  Command.withSubcommands(
    [issue, list, show, update, rotate, endFormer, disable, enable, revoke, unban, usage, top, log, whose]
  ),
  Command.provide(adminClientLayer)
)

/** Adds the causes to the message of a failure. Keeps a `ConfigError` as it is, because it has its own exit code. */
const describe = <E extends { readonly _tag: string }>(error: E) =>
  error._tag === "ConfigError" ? error : new CommandError({ message: describeCause(Cause.fail(error)) })

const importEmbedded = Command.make("import", {}, () =>
  // Import the database code here, not at the head of the file, so that the `keys` commands start without it.
  Effect.promise(() => import("../database/EmbeddedImport.ts")).pipe(
    Effect.flatMap(({ run }) => Effect.flatMap(databaseOptions, run)),
    Effect.mapError(describe),
    Effect.provideService(References.MinimumLogLevel, "None"),
    Effect.flatMap((imported) => Console.log(`Imported ${imported}.`))
  )).pipe(Command.withDescription("Copy the embedded database (DATA_DIR) to an empty PostgreSQL one (DATABASE_URL)"))

const migrate = Command.make("migrate", {}, () =>
  Effect.promise(() => import("../database/Database.ts")).pipe(
    Effect.flatMap(({ migrateServer }) => Effect.flatMap(databaseOptions, migrateServer)),
    Effect.mapError(describe),
    Effect.provide(Logger.layer([Logger.withConsoleError(Logger.make(({ message }) => String(message)))])),
    Effect.flatMap((version) => Console.log(`The database has schema version ${version}.`))
  )).pipe(
    Command.withDescription(
      "Migrate the schema of a PostgreSQL database (DATABASE_URL, with the role that owns the tables)"
    )
  )

export const command = Command.make(Brand.name).pipe(
  Command.withDescription(
    `Manage the keys of a running ${Brand.title} service, migrate its database, or import its embedded one`
  ),
  Command.withSubcommands([keys, migrate, importEmbedded])
)
