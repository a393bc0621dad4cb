/** Implements the operations' middleware. Hot path: avoids `Effect.gen` (measured: docs/performance.md). */
import { Clock, Context, Effect, Layer, Redacted } from "effect"
import { type HttpRouter, HttpServerRequest, type HttpServerResponse } from "effect/http"
import { ApiKeys } from "../api-keys/ApiKeys.ts"
import { KeyVerifier } from "../api-keys/KeyVerifier.ts"
import * as Errors from "../api/Errors.ts"
import { Auth, CurrentKey, RateLimit, Sunset, Validation } from "../api/OperationMiddleware.ts"
import { getPetSunset } from "../api/Pets.ts"
import { RateLimiter } from "../rate-limit/RateLimiter.ts"
import { clientAddress } from "./ClientAddress.ts"
import * as ConcurrencyLimit from "./ConcurrencyLimit.ts"
import * as JsonBody from "./JsonBody.ts"
import * as RateLimiting from "./RateLimiting.ts"
import { RequestContext } from "./RequestContext.ts"
import { headerOf } from "./RequestHead.ts"

type Result<Operation, E, R = never> = Effect.Effect<
  HttpServerResponse.HttpServerResponse,
  E | Effect.Error<Operation>,
  R
>

const bearer = /^bearer +(\S.*)$/i

type AuthError = Errors.MissingApiKey | Errors.InvalidApiKey | Errors.ServiceUnavailable

const auth = Layer.effect(
  Auth,
  Effect.gen(function*() {
    const { verify } = yield* KeyVerifier
    return Auth.of((httpEffect, { endpoint }) =>
      Effect.withFiber((fiber): Result<typeof httpEffect, AuthError> => {
        const context = Context.getUnsafe(fiber.context, RequestContext)
        context.endpoint = endpoint
        const request = Context.getUnsafe(fiber.context, HttpServerRequest.HttpServerRequest)
        const [, secret] = bearer.exec(headerOf(request, "authorization") ?? "") ?? []
        if (secret === undefined) return Effect.fail(new Errors.MissingApiKey())
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

const rateLimit = Layer.effect(
  RateLimit,
  Effect.gen(function*() {
    yield* RateLimiting.startBanCounters
    const limiter = yield* RateLimiter
    const { audit, usage } = yield* ApiKeys
    return RateLimit.of((httpEffect) =>
      Effect.withFiber((fiber) => {
        const key = Context.getUnsafe(fiber.context, CurrentKey)
        const context = Context.getUnsafe(fiber.context, RequestContext)
        const charge = Effect.flatMap(RateLimiting.chargeKey(limiter, usage, key), (decision) => {
          context.decision = decision
          if (decision.allowed) return Effect.void
          const rejection = Effect.fail(RateLimiting.rejectionOf(decision))
          const { banBegan, bannedUntil: until = 0, decidedAt: at } = decision
          if (!banBegan) return rejection
          const address = clientAddress(Context.getUnsafe(fiber.context, HttpServerRequest.HttpServerRequest))
          return Effect.andThen(audit.recordBan({ keyId: key.id, address, at, until }), rejection)
        })
        // The charge counts even if the client disconnects, so its usage and its ban are recorded too.
        return Effect.andThen(Effect.uninterruptible(charge), httpEffect)
      })
    )
  })
)

/** Takes a concurrency slot only after the body has arrived, so that slow uploads occupy no slots. */
export const validation = Layer.effect(
  Validation,
  Effect.zipWith(
    ConcurrencyLimit.make,
    Validation,
    (limitConcurrency, decoded) =>
      Validation.of((httpEffect, options) => {
        const hasBody = options.endpoint.payload.size > 0
        const limited = limitConcurrency(decoded(httpEffect, options))
        return Effect.withFiber((
          fiber
        ): Result<typeof limited, JsonBody.BodyError | Errors.ExpectationFailed, HttpRouter.Provided> => {
          const request = Context.getUnsafe(fiber.context, HttpServerRequest.HttpServerRequest)
          const expect = headerOf(request, "expect")
          if (expect !== undefined && expect.toLowerCase() !== "100-continue") {
            return Effect.fail(new Errors.ExpectationFailed())
          }
          return hasBody ? Effect.andThen(JsonBody.check(request), limited) : limited
        })
      })
  )
).pipe(Layer.provide(Validation.layer))

const sunset = Layer.succeed(Sunset, (httpEffect) =>
  Effect.flatMap(
    Clock.currentTimeMillis,
    (now): Result<typeof httpEffect, Errors.Gone> =>
      now < getPetSunset.getTime() ? httpEffect : Effect.fail(new Errors.Gone())
  ))

export const layer = Layer.mergeAll(auth, rateLimit, validation, sunset)
