/** Issues a key at the first start on an embedded database, and prints it with a `curl` line that works. */
import { Console, Effect, Layer, Redacted } from "effect"
import { HttpServer } from "effect/http"
import * as Database from "../database/Database.ts"
import { ApiKeys } from "./ApiKeys.ts"

export const layer = Layer.effectDiscard(Effect.gen(function*() {
  const apiKeys = yield* ApiKeys
  if (!(yield* Database.isEmbedded) || (yield* apiKeys.list({ limit: 1 })).keys.length > 0) return
  const { address } = yield* HttpServer.HttpServer
  // A service that listens on all addresses is also reachable on the loopback address.
  const base = HttpServer.formatAddress(address).replace(/\/\/(0\.0\.0\.0|\[::\]):/, "//localhost:")
  const key = Redacted.value((yield* apiKeys.issue({ name: "first key", plan: "free" })).key)
  // Printed on standard output, which has no logs. Logs never contain a key.
  yield* Console.log(
    `Your API key, shown only now: ${key}\n\n  curl -H "Authorization: Bearer ${key}" ${base}/v1/pets\n`
  )
}))
