/**
 * The middleware that the contract declares for its operations. It uses no generators, because every request passes
 * here: a generator for each of the three would take a tenth of the time of a request.
 */
import { Clock, Context, Effect, Layer } from "effect"
import { HttpMethod, HttpServerRequest, type HttpServerResponse } from "effect/http"
import { ApiKeys } from "../api-keys/ApiKeys.ts"
import * as Errors from "../api/Errors.ts"
import { Auth, CurrentKey, RateLimit, Sunset, Validation } from "../api/OperationMiddleware.ts"
import { getPetSunset } from "../api/Pets.ts"
import { RateLimiter } from "../rate-limit/RateLimiter.ts"
import { CurrentCall } from "./Call.ts"
import { clientAddress } from "./ClientAddress.ts"
import * as JsonBody from "./JsonBody.ts"
import * as RateLimiting from "./RateLimiting.ts"
import { headerOf } from "./RequestHead.ts"

type Response = HttpServerResponse.HttpServerResponse

/** Matches the credential of the bearer scheme, whose name is case-insensitive (RFC 9110 §11.1). */
const bearer = /^bearer +(\S.*)$/i

/** Verifies the API key of each request (SPEC §5). Fails with 401 for a missing or invalid key. */
const auth = Layer.effect(
  Auth,
  Effect.gen(function*() {
    const { verify } = yield* ApiKeys
    return Auth.of((httpEffect, { endpoint }) =>
      Effect.withFiber((
        fiber
      ): Effect.Effect<Response, Errors.MissingApiKey | Errors.InvalidApiKey | Effect.Error<typeof httpEffect>> => {
        const call = fiber.getRef(CurrentCall)
        call.endpoint = endpoint
        const request = Context.getUnsafe(fiber.context, HttpServerRequest.HttpServerRequest)
        const [, credential] = bearer.exec(headerOf(request, "authorization") ?? "") ?? []
        if (credential === undefined) return Effect.fail(new Errors.MissingApiKey())
        return Effect.flatMap(verify(credential), (key) => {
          call.keyId = key.id
          return Effect.provideService(httpEffect, CurrentKey, key)
        })
      })
    )
  })
)

/** Charges each request to its API key. Fails with 429 if the key is banned or over a limit. */
const rateLimit = Layer.effect(
  RateLimit,
  Effect.gen(function*() {
    yield* RateLimiting.startCounters
    const limiter = yield* RateLimiter
    const { audit, usage } = yield* ApiKeys
    return RateLimit.of((httpEffect) =>
      Effect.withFiber((fiber) => {
        const key = Context.getUnsafe(fiber.context, CurrentKey)
        const call = fiber.getRef(CurrentCall)
        return Effect.flatMap(RateLimiting.chargeKey(limiter, usage, key, fiber.context), (
          decision
        ): Effect.Effect<
          Response,
          Errors.ApiKeyBanned | Errors.RateLimitExceeded | Effect.Error<typeof httpEffect>
        > => {
          call.decision = decision
          if (decision.allowed) return httpEffect
          const rejection = Effect.fail(RateLimiting.rejectionOf(decision))
          const { banBegan, bannedUntil: until = 0, decidedAt: at } = decision
          if (!banBegan) return rejection
          const address = clientAddress(Context.getUnsafe(fiber.context, HttpServerRequest.HttpServerRequest))
          return Effect.andThen(audit.recordBan({ keyId: key.id, address, at, until }), rejection)
        })
      })
    )
  })
)

/**
 * Fails with 417 for an unknown `Expect`, and with 400, 413 or 415 for a body that the service does not accept. The
 * 400 for a request that does not decode is made in `Errors.ts`.
 */
export const validation = Layer.succeed(Validation, (httpEffect, { endpoint }) => {
  const hasBody = HttpMethod.hasBody(endpoint.method)
  return Effect.withFiber((
    fiber
  ): Effect.Effect<
    Response,
    | Errors.InvalidRequest
    | Errors.PayloadTooLarge
    | Errors.UnsupportedMediaType
    | Errors.ExpectationFailed
    | Effect.Error<typeof httpEffect>
  > => {
    const request = Context.getUnsafe(fiber.context, HttpServerRequest.HttpServerRequest)
    const expect = headerOf(request, "expect")
    if (expect !== undefined && expect.toLowerCase() !== "100-continue") {
      return Effect.fail(new Errors.ExpectationFailed())
    }
    return hasBody ? Effect.andThen(JsonBody.read(request), httpEffect) : httpEffect
  })
})

/** Fails with 410 from the sunset of the deprecated operation on (RFC 8594). */
const sunset = Layer.succeed(Sunset, (httpEffect) =>
  Effect.flatMap(
    Clock.currentTimeMillis,
    (now): Effect.Effect<Response, Errors.Gone | Effect.Error<typeof httpEffect>> =>
      now < getPetSunset.getTime() ? httpEffect : Effect.fail(new Errors.Gone())
  ))

/** The middleware of the API under `/v1`. */
export const layer = Layer.mergeAll(auth, rateLimit, validation, sunset)
