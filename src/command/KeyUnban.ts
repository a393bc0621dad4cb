/** The subcommand `petstore keys unban`. */
import { Effect, Schema } from "effect"
import { Command } from "effect/cli"
import { ApiKeyDetails } from "../api/Keys.ts"
import { AdminClient } from "../client/PetstoreClient.ts"
import { withAllErrors } from "./AllErrors.ts"
import { idArgument, jsonFlag } from "./KeyFlags.ts"
import { print } from "./KeyOutput.ts"
import { formatTime } from "./Style.ts"

/** The key, and the ban that was lifted, or `null` if there was none. */
const Unbanned = Schema.Struct({ id: Schema.String, liftedBan: ApiKeyDetails.fields.ban })

export const unban = Command.make(
  "unban",
  withAllErrors("unban", { id: idArgument, json: jsonFlag }),
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
