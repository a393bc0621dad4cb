/** The subcommand `petstore keys rotate`. */
import { Effect } from "effect"
import { Command, Flag } from "effect/cli"
import { IssuedKey, Rotation } from "../api/Keys.ts"
import { AdminClient } from "../client/PetstoreClient.ts"
import { withAllErrors } from "./AllErrors.ts"
import { confirm } from "./Confirm.ts"
import { idArgument, jsonFlag, withFieldSchema, withNamedDefault, yesFlag } from "./KeyFlags.ts"
import { describeIssued, print } from "./KeyOutput.ts"

const flags = {
  id: idArgument,
  gracePeriod: Flag.Int("grace-period").pipe(
    Flag.withMetavar("seconds"),
    withFieldSchema("grace-period", Rotation.fields.gracePeriodSeconds.schema),
    withNamedDefault(0, "Seconds that the old secret still works")
  ),
  yes: yesFlag,
  json: jsonFlag
}

/** Replaces the secret of a key. Without a grace period it asks first, because the old secret ends at once. */
export const rotate = Command.make(
  "rotate",
  withAllErrors("rotate", flags),
  Effect.fnUntraced(function*({ gracePeriod, id, json, yes }) {
    const client = yield* AdminClient
    if (gracePeriod === 0) yield* confirm(`Rotate ${id}? Its current secret stops working now.`, yes)
    const issued = yield* client.rotate(id, { gracePeriodSeconds: gracePeriod })
    yield* print(IssuedKey, issued, { json, text: describeIssued(issued) })
  })
).pipe(
  Command.withDescription("Give a key a new secret and show it, once"),
  Command.withExamples([{ command: "petstore keys rotate key_… --grace-period 3600" }])
)
