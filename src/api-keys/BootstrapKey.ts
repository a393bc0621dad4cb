/** A way in for a newcomer: the first start on an embedded database issues a key and shows how to call with it. */
import { Console, Effect, Layer, Redacted } from "effect"
import { HttpServer } from "effect/http"
import * as Database from "../database/Database.ts"
import { ApiKeys } from "./ApiKeys.ts"

export const layer = Layer.effectDiscard(Effect.gen(function*() {
  const apiKeys = yield* ApiKeys
  if (!(yield* Database.isEmbedded) || (yield* apiKeys.list({ limit: 1 })).keys.length > 0) return
  const { address } = yield* HttpServer.HttpServer
  // All addresses of the machine are also its loopback.
  const base = HttpServer.formatAddress(address).replace(/\/\/(0\.0\.0\.0|\[::\]):/, "//localhost:")
  const key = Redacted.value((yield* apiKeys.issue({ name: "first key", plan: "free" })).key)
  // On standard output, where no log goes: logs never hold a key.
  yield* Console.log(
    `Your API key, shown only now: ${key}\n\n  curl -H "Authorization: Bearer ${key}" ${base}/v1/pets\n`
  )
}))
