/** Authentication with API keys (SPEC §5). */
import { Context, Effect, Layer, Option, Redacted } from "effect"
import { HttpServerRequest, type HttpServerResponse } from "effect/http"
import { ApiKeys } from "../../api-keys/ApiKeys.ts"
import { Auth, CurrentKey } from "../../api/Auth.ts"
import { type InvalidApiKey, MissingApiKey } from "../../api/Errors.ts"
import { CurrentRequestContext } from "../response/RequestContext.ts"
import * as RateLimiting from "./RateLimiting.ts"

/**
 * Verifies the API key of each request. It fails with 401 for a missing or invalid key. It uses no generators, because
 * every request passes here.
 */
export const layer = Layer.effect(
  Auth,
  Effect.gen(function*() {
    const apiKeys = yield* ApiKeys
    const callerOf = yield* RateLimiting.makeAddressCaller
    return Auth.of({
      bearerAuth: (httpEffect, { credential, endpoint }) =>
        Effect.withFiber((
          fiber
        ): Effect.Effect<
          HttpServerResponse.HttpServerResponse,
          MissingApiKey | InvalidApiKey | Effect.Error<typeof httpEffect>
        > => {
          const requestContext = fiber.getRef(CurrentRequestContext)
          const request = Context.getUnsafe(fiber.context, HttpServerRequest.HttpServerRequest)
          requestContext.route = endpoint.path
          if (Redacted.value(credential) === "") return Effect.fail(new MissingApiKey())
          const verified = apiKeys.verify(
            credential,
            // The lookup may take long. Until the key is known, the request counts for its address.
            Effect.suspend(() => {
              const peer = Option.getOrElse(request.remoteAddress, () => "")
              return Effect.orDie(requestContext.slot.assign(callerOf(peer, request.headers["x-forwarded-for"])))
            })
          )
          return Effect.flatMap(verified, (key) => {
            requestContext.keyId = key.id
            return Effect.provideService(httpEffect, CurrentKey, key)
          })
        })
    })
  })
)
