import { Context, Effect, Layer, Redacted } from "effect"
import { type HttpRouter, HttpServerRequest, type HttpServerResponse } from "effect/http"
import { KeyVerifier } from "../api-keys/KeyVerifier.ts"
import { adminTokenPrefix } from "../api/Brand.ts"
import { InvalidApiKey, MissingApiKey, type ServiceUnavailable } from "../api/Errors.ts"
import { Auth, CurrentKey } from "../api/OperationMiddleware.ts"
import { clientAddress } from "../rate-limit/ClientAddress.ts"
import { RequestContext } from "./RequestContext.ts"
import { bearerOf, headerOf } from "./RequestHead.ts"

type Result<Operation> = Effect.Effect<
  HttpServerResponse.HttpServerResponse,
  MissingApiKey | InvalidApiKey | ServiceUnavailable | Effect.Error<Operation>,
  HttpRouter.Provided
>

/** Returns a 401 whose message names what the client sent instead of an API key. */
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

/** Hot path: avoids `Effect.gen` (docs/performance.md). */
export const layer = Layer.effect(
  Auth,
  Effect.gen(function*() {
    const { verify } = yield* KeyVerifier
    return Auth.of((httpEffect, { endpoint }) =>
      Effect.withFiber((fiber): Result<typeof httpEffect> => {
        const context = fiber.getRef(RequestContext)
        context.endpoint = endpoint
        const request = Context.getUnsafe(fiber.context, HttpServerRequest.HttpServerRequest)
        const secret = bearerOf(request)
        if (secret?.startsWith(adminTokenPrefix) !== false) return Effect.fail(rejectionOf(request, secret))
        const onReject = (rejection: string, keyId = "none") =>
          void (context.rejection = { keyId, rejection, address: clientAddress(request) })
        return Effect.flatMap(verify(Redacted.make(secret), onReject), (key) => {
          context.keyId = key.id
          return Effect.provideService(httpEffect, CurrentKey, key)
        })
      })
    )
  })
)
