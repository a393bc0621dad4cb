import { Effect, Layer, Redacted } from "effect"
import { Auth, CurrentKey } from "../api/Auth.ts"
import { MissingApiKey } from "../api/Errors.ts"
import { ApiKeys } from "../ApiKeys.ts"
import { CurrentExchange } from "./Exchange.ts"

export const layer = Layer.effect(
  Auth,
  Effect.gen(function*() {
    const apiKeys = yield* ApiKeys
    return Auth.of({
      bearerAuth: Effect.fnUntraced(function*(httpEffect, { credential, endpoint }) {
        const exchange = yield* CurrentExchange
        exchange.route = endpoint.path
        if (Redacted.value(credential) === "") return yield* new MissingApiKey()
        const key = yield* apiKeys.verify(credential)
        exchange.keyId = key.id
        return yield* Effect.provideService(httpEffect, CurrentKey, key)
      })
    })
  })
)
