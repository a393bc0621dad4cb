import { Context, Effect, Layer, Redacted } from "effect"
import { type HttpRouter, HttpServerRequest, type HttpServerResponse } from "effect/http"
import { KeyVerifier } from "../api-keys/KeyVerifier.ts"
import { InvalidApiKey, MissingApiKey, type ServiceUnavailable } from "../api/Errors.ts"
import { Auth, CurrentKey } from "../api/OperationMiddleware.ts"
import { recordError, RequestContext } from "./RequestContext.ts"
import { bearerOf, clientAddress, confusionOf, headerOf } from "./RequestHead.ts"

const adminTokenMessage = `An admin token works only on the management port. ${new MissingApiKey().message}`

const missingOf = (request: HttpServerRequest.HttpServerRequest) => {
  const [missing, authorization = ""] = [new MissingApiKey(), headerOf(request, "authorization")?.trim()]
  const found = /^bearer$/i.test(authorization)
    ? "Authorization: Bearer without a key"
    : authorization !== ""
    ? "Authorization without Bearer"
    : headerOf(request, "x-api-key") !== undefined
    ? "X-API-Key"
    : /[?&](?:api_?key|key|(?:access_)?token)=/i.test(request.url) && "a key in the URL, which logs can show"
  return found === false ? missing : new MissingApiKey({ message: `Found ${found}. ${missing.message}` })
}

type Rejection = MissingApiKey | InvalidApiKey | ServiceUnavailable

/**
 * Hot path: a request runs no `Effect.gen`, which would cost 1.5 to 2 µs per request in this middleware and that of
 * `RateLimit.ts` together (docs/performance.md). The `Effect.gen` below runs once, when the layer is built.
 */
export const layer = Layer.effect(
  Auth,
  Effect.gen(function*() {
    const { verify } = yield* KeyVerifier
    return Auth.of((httpEffect, { endpoint }) => {
      type Authorized = Effect.Effect<
        HttpServerResponse.HttpServerResponse,
        Rejection | Effect.Error<typeof httpEffect>,
        HttpRouter.Provided
      >
      const authorized = Effect.contextWith(
        (services: Context.Context<HttpServerRequest.HttpServerRequest>): Authorized => {
          const request = Context.get(services, HttpServerRequest.HttpServerRequest)
          const context = Context.get(services, RequestContext)
          context.routed(endpoint)
          const secret = bearerOf(request)
          if (secret === undefined) {
            context.rejected({ address: clientAddress(request) })
            return Effect.fail(missingOf(request))
          }
          return Effect.matchEffect(verify(Redacted.make(secret)), {
            onSuccess: (key) => {
              context.authenticated(key.id)
              return Effect.provideService(httpEffect, CurrentKey, key)
            },
            onFailure: (failure): Effect.Effect<never, Rejection> => {
              if (failure._tag === "ServiceUnavailable") return Effect.fail(failure)
              const { keyId = "none", reason } = failure
              context.rejected({ keyId, rejection: reason, address: clientAddress(request) })
              if (reason === "admin_token") return Effect.fail(new InvalidApiKey({ message: adminTokenMessage }))
              if (reason !== "malformed") return Effect.fail(new InvalidApiKey())
              const message = confusionOf(secret, "API key") ?? "The API key is incomplete or mistyped."
              return Effect.fail(new InvalidApiKey({ message }))
            }
          })
        }
      )
      // `Auth` runs first, so this records the errors of all later steps too, before HttpApi encodes them.
      return Effect.tapError(authorized, recordError)
    })
  })
)
