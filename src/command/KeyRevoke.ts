/** The subcommand `petstore keys revoke`. */
import { Effect, Schema } from "effect"
import { Command } from "effect/cli"
import { AdminClient } from "../client/PetstoreClient.ts"
import { withAllErrors } from "./AllErrors.ts"
import { confirm } from "./Confirm.ts"
import { idArgument, jsonFlag, yesFlag } from "./KeyFlags.ts"
import { print } from "./KeyOutput.ts"

export const revoke = Command.make(
  "revoke",
  withAllErrors("revoke", { id: idArgument, yes: yesFlag, json: jsonFlag }),
  Effect.fnUntraced(function*({ id, json, yes }) {
    const client = yield* AdminClient
    yield* confirm(`Revoke ${id}? This cannot be undone.`, yes)
    yield* client.revoke(id)
    yield* print(Schema.Struct({ id: Schema.String }), { id }, { json, text: `${id} is revoked.` })
  })
).pipe(Command.withDescription("End a key for good"))
