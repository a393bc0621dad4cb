/** Issues the first API key, with which a newcomer can call the service at once. */
import { Console, Effect, Layer, Redacted } from "effect"
import { HttpServer } from "effect/http"
import { localUrl } from "../config/Settings.ts"
import * as Database from "../database/Database.ts"
import { ApiKeys } from "./ApiKeys.ts"

/**
 * Issues a key at the first start on an embedded database without keys, and prints it with a `curl` command. It needs a
 * listening HTTP server, whose address the command contains.
 */
export const layer = Layer.effectDiscard(Effect.gen(function*() {
  const apiKeys = yield* ApiKeys
  if (!(yield* Database.isEmbedded) || (yield* apiKeys.list({ limit: 1 })).keys.length > 0) return
  const baseUrl = localUrl(yield* HttpServer.HttpServer)
  const key = Redacted.value((yield* apiKeys.issue({ name: "first key", plan: "free" })).key)
  // Logs go to standard error and must never contain a key, so the key goes to standard output.
  yield* Console.log(
    `Your API key, shown only now: ${key}\n\n  curl -H "Authorization: Bearer ${key}" ${baseUrl}/v1/pets\n`
  )
}))
