import { Console, Effect, Layer, Redacted } from "effect"
import { HttpServer } from "effect/http"
import * as Brand from "../api/Brand.ts"
import { isEmbedded } from "../config/RoomOptions.ts"
import { localUrl } from "../config/Settings.ts"
import { ApiKeys } from "./ApiKeys.ts"

export const layer = Layer.effectDiscard(Effect.gen(function*() {
  const apiKeys = yield* ApiKeys
  if (!(yield* isEmbedded) || (yield* apiKeys.list({ limit: 1 })).keys.length > 0) return
  const baseUrl = localUrl(yield* HttpServer.HttpServer)
  const key = Redacted.value((yield* apiKeys.issue({ name: "first key", plan: "free" })).key)
  // Print the key to standard output instead of logging it, because logs must never contain a key.
  yield* Console.log(
    `Your API key (store it now, it is not shown again): ${key}\n\n` +
      `  curl -H "Authorization: Bearer ${key}" ${baseUrl}/v1/${Brand.collection}\n`
  )
}))
