#!/usr/bin/env node
/** The `petstore` command: an operator manages the API keys of a running service through its management port. */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Cause, Config, Console, Effect, Exit, FileSystem, Layer, Option, Predicate, Redacted, Schema } from "effect"
import { CliError, Command, Flag } from "effect/cli"
import { ErrorBody } from "./api/Errors.ts"
import * as Issue from "./api/Issue.ts"
import { ApiKeyDetails, IssuedKey, NewKey } from "./api/Keys.ts"
import { AdminClient, PetstoreClientError } from "./client/PetstoreClient.ts"
import { list } from "./command/KeyList.ts"
import { log } from "./command/KeyLog.ts"
import { describeKey, formatTime, idArgument, jsonFlag, print } from "./command/KeyOutput.ts"
import { update } from "./command/KeyUpdate.ts"
import * as Settings from "./config/Settings.ts"

const describeIssued = (issued: IssuedKey): string =>
  `${describeKey(issued)}\nkey        ${Redacted.value(issued.key)}\n\nThe key is shown only now.`

const decodeNewKey = Schema.decodeUnknownEffect(Schema.toCodecJson(NewKey))

const issue = Command.make(
  "issue",
  {
    json: jsonFlag,
    name: Flag.String("name").pipe(Flag.withDescription("What you call the key")),
    plan: Flag.String("plan").pipe(
      Flag.withDescription("The plan whose limits the key has: free, pro, business or enterprise"),
      Flag.withDefault("free")
    ),
    perMinute: Flag.Int("per-minute").pipe(
      Flag.withDescription("Requests a minute, for plan enterprise"),
      Flag.optional
    ),
    perDay: Flag.Int("per-day").pipe(Flag.withDescription("Requests a day, for plan enterprise"), Flag.optional),
    expiresAt: Flag.String("expires-at").pipe(
      Flag.withDescription("When the key ends, as 2030-12-31T00:00:00Z"),
      Flag.optional
    )
  },
  Effect.fnUntraced(function*({ expiresAt, json, name, perDay, perMinute, plan }) {
    const limits = {
      ...Option.isSome(perMinute) && { perMinute: perMinute.value },
      ...Option.isSome(perDay) && { perDay: perDay.value }
    }
    const payload = yield* decodeNewKey({
      name,
      plan,
      ...(Option.isSome(perMinute) || Option.isSome(perDay)) && { limits },
      ...Option.isSome(expiresAt) && { expiresAt: expiresAt.value }
    })
    const issued = yield* AdminClient.use((client) => client.issue(payload))
    yield* print(IssuedKey, issued, { json, text: describeIssued(issued) })
  })
).pipe(Command.withDescription("Issue a key and show it, once"))

const show = Command.make(
  "show",
  { id: idArgument, json: jsonFlag },
  Effect.fnUntraced(function*({ id, json }) {
    const key = yield* AdminClient.use((client) => client.find(id))
    const describeRemaining = ({ limit, remaining, resetAt }: typeof key.usage.minute) =>
      `${remaining} of ${limit} left until ${formatTime(resetAt)}`
    const text = [
      describeKey(key),
      `minute     ${describeRemaining(key.usage.minute)}`,
      `day        ${describeRemaining(key.usage.day)}`,
      `banned     ${key.ban === null ? "no" : `until ${formatTime(key.ban.until)}`}`
    ].join("\n")
    yield* print(ApiKeyDetails, key, { json, text })
  })
).pipe(Command.withDescription("Show a key, what it has left of its limits, and its ban"))

const rotate = Command.make(
  "rotate",
  {
    id: idArgument,
    json: jsonFlag,
    gracePeriod: Flag.Int("grace-period").pipe(
      Flag.withDescription("Seconds that the old key still works"),
      Flag.withDefault(0)
    )
  },
  Effect.fnUntraced(function*({ gracePeriod, id, json }) {
    const issued = yield* AdminClient.use((client) => client.rotate(id, { gracePeriodSeconds: gracePeriod }))
    yield* print(IssuedKey, issued, { json, text: describeIssued(issued) })
  })
).pipe(Command.withDescription("Give a key a new secret and show it, once"))

const revoke = Command.make(
  "revoke",
  { id: idArgument, json: jsonFlag },
  Effect.fnUntraced(function*({ id, json }) {
    yield* AdminClient.use((client) => client.revoke(id))
    yield* print(Schema.Struct({ id: Schema.String }), { id }, { json, text: `${id} is revoked.` })
  })
).pipe(Command.withDescription("End a key for good"))

/** The key, and the ban that was lifted, or `null` if there was none. */
const Unbanned = Schema.Struct({ id: Schema.String, liftedBan: ApiKeyDetails.fields.ban })

const unban = Command.make(
  "unban",
  { id: idArgument, json: jsonFlag },
  Effect.fnUntraced(function*({ id, json }) {
    const client = yield* AdminClient
    const { ban } = yield* client.find(id)
    yield* client.unban(id)
    const text = ban === null
      ? `${id} was not banned.`
      : `The ban of ${id}, which would have lasted until ${formatTime(ban.until)}, is lifted.`
    yield* print(Unbanned, { id, liftedBan: ban }, { json, text })
  })
).pipe(Command.withDescription("Lift the ban of a key"))

/** The URL of the management port: `PETSTORE_ADMIN_URL`, else `MANAGEMENT_PORT` on this machine. */
const baseUrl = Config.String("PETSTORE_ADMIN_URL").pipe(
  Config.orElse(() => Config.map(Settings.managementPort.config, (port) => `http://127.0.0.1:${port}`))
)

const configuredToken = Config.option(Settings.adminToken.config)
const tokenFile = Config.map(Settings.dataDir.config, (directory) => `${directory}/admin-token`)

/** The admin token: `ADMIN_TOKEN`, else the file `admin-token` that the service keeps in its `DATA_DIR`. */
const adminToken = Effect.gen(function*() {
  const configured = yield* configuredToken
  if (Option.isSome(configured)) return Redacted.make(Redacted.value(configured.value).trim())
  const file = yield* tokenFile
  const files = yield* FileSystem.FileSystem
  return yield* files.readFileString(file).pipe(
    Effect.map((token) => Redacted.make(token.trim())),
    Effect.mapError(() =>
      new CliError.UserError({
        cause: `There is no admin token: set ADMIN_TOKEN, or DATA_DIR to the service's (${file} cannot be read).`
      })
    )
  )
})

const adminClientLayer = Layer.unwrap(Effect.gen(function*() {
  return AdminClient.layer({
    baseUrl: yield* baseUrl,
    token: yield* adminToken,
    timeout: "10 seconds",
    retry: { times: 0 }
  })
}))

const keys = Command.make("keys").pipe(
  Command.withDescription("API keys"),
  Command.withSubcommands([issue, list, show, update, rotate, revoke, unban, log]),
  Command.provide(adminClientLayer)
)

/** The error message for the operator, in one line. It is empty when the command has printed its help instead. */
const describeFailure = (failure: unknown): Effect.Effect<string, Config.ConfigError> => {
  if (isApiError(failure)) {
    return failure.status !== 401
      ? Effect.succeed(failure.message)
      : Effect.map(
        Effect.all([configuredToken, tokenFile]),
        ([configured, file]) =>
          `${failure.message} (It is that of ${Option.isSome(configured) ? "ADMIN_TOKEN" : file}.)`
      )
  }
  if (CliError.isCliError(failure)) {
    const messages = failure._tag === "ShowHelp" ? failure.errors.map(({ message }) => message) : [failure.message]
    return Effect.succeed(messages.join("; "))
  }
  if (failure instanceof PetstoreClientError && failure.reason !== "invalid_input") {
    return Effect.map(baseUrl, (url) =>
      failure.reason === "unreachable"
        ? `${url} does not answer. Is the service running there? (PETSTORE_ADMIN_URL)`
        : `What answers at ${url} is no management port of this service. (PETSTORE_ADMIN_URL)`)
  }
  if (failure instanceof PetstoreClientError && Schema.isSchemaError(failure.cause)) {
    return describeFailure(failure.cause)
  }
  if (Schema.isSchemaError(failure)) {
    return Effect.succeed(Issue.describe(failure.issue, (path) => flagOfField.get(path.at(-1)) ?? path.join(".")))
  }
  return Effect.succeed(
    (Predicate.hasProperty(failure, "message") ? String(failure.message) : String(failure)).replaceAll(/\s+/g, " ")
  )
}

/** The flags that set each field of the management API, for messages about an invalid field. */
const flagOfField: ReadonlyMap<string | undefined, string> = new Map([
  ["name", "--name"],
  ["plan", "--plan"],
  ["limits", "--per-minute and --per-day"],
  ["perMinute", "--per-minute"],
  ["perDay", "--per-day"],
  ["expiresAt", "--expires-at"],
  ["limit", "--limit"],
  ["state", "--state"],
  ["search", "--search"],
  ["gracePeriodSeconds", "--grace-period"]
])

const isApiError = Schema.is(ErrorBody)

const isUsageError = (failure: unknown): boolean => CliError.isCliError(failure) && failure._tag !== "UserError"

Command.make("petstore").pipe(
  Command.withDescription("Operate a running Petstore service"),
  Command.withSubcommands([keys]),
  Command.run({ version: "1.0.0", renderErrors: false }),
  Effect.tapCause((cause) => Effect.flatMap(describeFailure(Cause.squash(cause)), Console.error)),
  Effect.provide(NodeServices.layer),
  NodeRuntime.runMain({
    disableErrorReporting: true,
    // The exit code is 2 when the command line is invalid, and 1 when the command fails.
    teardown: (exit, onExit) => onExit(Exit.isSuccess(exit) ? 0 : isUsageError(Cause.squash(exit.cause)) ? 2 : 1)
  })
)
