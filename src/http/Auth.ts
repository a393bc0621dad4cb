import { Context, Effect, Layer, Redacted } from "effect"
import { type HttpRouter, HttpServerRequest, type HttpServerResponse } from "effect/http"
import { KeyVerifier } from "../api-keys/KeyVerifier.ts"
import { adminTokenPrefix, keyPrefix } from "../api/Brand.ts"
import { InvalidApiKey, MissingApiKey, type ServiceUnavailable } from "../api/Errors.ts"
import { Auth, CurrentKey } from "../api/OperationMiddleware.ts"
import { clientAddress } from "../rate-limit/ClientAddress.ts"
import { recordError, RequestContext } from "./RequestContext.ts"
import { bearerOf, headerOf } from "./RequestHead.ts"

const rejectionOf = (request: HttpServerRequest.HttpServerRequest, secret?: string) => {
  const [missing, authorization = ""] = [new MissingApiKey(), headerOf(request, "authorization")?.trim()]
  if (secret !== undefined) {
    return new InvalidApiKey({ message: `An admin token works only on the management port. ${missing.message}` })
  }
  const found = /^bearer$/i.test(authorization)
    ? "Authorization: Bearer without a key"
    : authorization !== ""
    ? "Authorization without Bearer"
    : headerOf(request, "x-api-key") !== undefined
    ? "X-API-Key"
    : /[?&](?:api_?key|key|(?:access_)?token)=/i.test(request.url) && "a key in the URL, which logs can show"
  return found === false ? missing : new MissingApiKey({ message: `Found ${found}. ${missing.message}` })
}

/** Names a confusion of the client's configuration, so that nobody searches for a typo in the key. */
const malformationOf = (secret: string): InvalidApiKey | undefined => {
  const variable = /^(?:\$(?:env:)?\{?|%|\{\{)\s*(\w{1,64})\s*(?:\}|%|\}\})?$/i.exec(secret)?.[1]
  const found = /^["'\u2018-\u201d]|["'\u2018-\u201d]$/.test(secret)
    ? "The API key is in quotation marks. Send it without them"
    : /^bearer\s/i.test(secret)
    ? "The header has Bearer twice. Send it once"
    : variable !== undefined
    ? `The variable ${variable} was sent by its name, not its value. In a shell, put the header in double quotes`
    : undefined
  return found === undefined
    ? undefined
    : new InvalidApiKey({ message: `${found}: Authorization: Bearer ${keyPrefix}…` })
}

type Rejection = MissingApiKey | InvalidApiKey | ServiceUnavailable

/** No `Effect.gen` on the hot path (docs/performance.md). */
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
          context.endpoint = endpoint
          const secret = bearerOf(request)
          if (secret?.startsWith(adminTokenPrefix) !== false) return Effect.fail(rejectionOf(request, secret))
          return Effect.matchEffect(verify(Redacted.make(secret)), {
            onSuccess: (key) => {
              context.keyId = key.id
              return Effect.provideService(httpEffect, CurrentKey, key)
            },
            onFailure: (failure): Effect.Effect<never, Rejection> => {
              if (failure._tag === "ServiceUnavailable") return Effect.fail(failure)
              const { keyId = "none", reason: rejection } = failure
              context.rejection = { keyId, rejection, address: clientAddress(request) }
              const malformation = rejection === "malformed" ? malformationOf(secret) : undefined
              return Effect.fail(malformation ?? failure.toCaller)
            }
          })
        }
      )
      return Effect.tapError(authorized, recordError)
    })
  })
)
