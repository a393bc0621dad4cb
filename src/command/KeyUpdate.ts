/** The subcommand `petstore keys update`. */
import { Effect, Option, Schema } from "effect"
import { CliError, Command, Flag } from "effect/cli"
import { ApiKey, KeyChange } from "../api/Keys.ts"
import { AdminClient } from "../client/PetstoreClient.ts"
import { describeKey, idArgument, jsonFlag, present, print } from "./KeyOutput.ts"

const decodeChange = Schema.decodeUnknownEffect(Schema.toCodecJson(KeyChange))

const flags = {
  name: Flag.String("name").pipe(Flag.withDescription("The new name"), Flag.optional),
  plan: Flag.String("plan").pipe(
    Flag.withDescription("The new plan: free, pro, business or enterprise"),
    Flag.optional
  ),
  perMinute: Flag.Int("per-minute").pipe(
    Flag.withDescription("Requests a minute, on plan enterprise, together with --per-day"),
    Flag.optional
  ),
  perDay: Flag.Int("per-day").pipe(
    Flag.withDescription("Requests a day, on plan enterprise, together with --per-minute"),
    Flag.optional
  ),
  expiresAt: Flag.String("expires-at").pipe(
    Flag.withDescription("When the key ends, as 2030-12-31T00:00:00Z, or never"),
    Flag.optional
  )
}

/** Changes a key. Fields without a flag stay as they are. */
export const update = Command.make(
  "update",
  {
    ...flags,
    id: idArgument,
    json: jsonFlag,
    ifVersion: Flag.Int("if-version").pipe(
      Flag.withDescription("Change the key only if it has this version, which show prints"),
      Flag.optional
    )
  },
  Effect.fnUntraced(function*({ expiresAt, id, ifVersion, json, name, perDay, perMinute, plan }) {
    const limits = present({ perMinute, perDay })
    const change = {
      ...present({ name, plan, expiresAt: Option.map(expiresAt, (at) => at === "never" ? null : at) }),
      ...Object.keys(limits).length > 0 && { limits }
    }
    if (Object.keys(change).length === 0) {
      return yield* new CliError.UserError({
        cause: "Nothing to change: use --name, --plan, --per-minute and --per-day, or --expires-at."
      })
    }
    const payload = yield* decodeChange(change)
    const options = Option.isSome(ifVersion) ? { version: ifVersion.value } : {}
    const key = yield* AdminClient.use((client) => client.update(id, payload, options))
    return yield* print(ApiKey, key, { json, text: describeKey(key) })
  })
).pipe(Command.withDescription("Change the name, the plan, the limits or the expiry of a key"))
