/**
 * The middleware that the contract declares for its operations. It runs no generator for a request, because every
 * request passes here: a generator for each of the three would take a tenth of the time of a request.
 */
import { Clock, Context, Effect, Layer, Metric, Redacted } from "effect"
import { HttpMethod, type HttpRouter, HttpServerRequest, type HttpServerResponse } from "effect/http"
import { ApiKeys } from "../api-keys/ApiKeys.ts"
import * as Errors from "../api/Errors.ts"
import { Auth, CurrentKey, RateLimit, Sunset, Validation } from "../api/OperationMiddleware.ts"
import { getPetSunset } from "../api/Pets.ts"
import { RateLimiter } from "../rate-limit/RateLimiter.ts"
import { type Call, connectionOf, CurrentCall, headerOf } from "./Call.ts"
import { clientAddress } from "./ClientAddress.ts"
import * as JsonBody from "./JsonBody.ts"
import * as RateLimiting from "./RateLimiting.ts"

/** The result of a middleware that fails with `E`, or as the operation `Operation` that it runs. */
type Result<Operation, E, R = never> = Effect.Effect<
  HttpServerResponse.HttpServerResponse,
  E | Effect.Error<Operation>,
  R
>

/** Matches the credential of the bearer scheme, whose name is case-insensitive (RFC 9110 §11.1). */
const bearer = /^bearer +(\S.*)$/i

/**
 * Returns a function that reads the credential of a request. A connection that repeats its `Authorization` gets the
 * same object, with which the hash of the secret is remembered. No text of a secret outlives its connection.
 */
const makeCredentialOf = () => {
  const last = new WeakMap<object, { readonly authorization: string; readonly credential: Redacted.Redacted }>()
  return (request: HttpServerRequest.HttpServerRequest): Redacted.Redacted | undefined => {
    const authorization = headerOf(request, "authorization") ?? ""
    const connection = connectionOf(request)
    const known = last.get(connection)
    if (known?.authorization === authorization) return known.credential
    const [, secret] = bearer.exec(authorization) ?? []
    if (secret === undefined) return undefined
    const credential = Redacted.make(secret)
    last.set(connection, { authorization, credential })
    return credential
  }
}

/** Verifies the API key of each request (SPEC §5). Fails with 401 for a missing or invalid key. */
const auth = Layer.effect(
  Auth,
  Effect.gen(function*() {
    const { verify } = yield* ApiKeys
    const credentialOf = makeCredentialOf()
    return Auth.of((httpEffect, { endpoint }) =>
      Effect.withFiber((fiber): Result<typeof httpEffect, Errors.MissingApiKey | Errors.InvalidApiKey> => {
        const call = fiber.getRef(CurrentCall)
        call.endpoint = endpoint
        const credential = credentialOf(Context.getUnsafe(fiber.context, HttpServerRequest.HttpServerRequest))
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
        return Effect.flatMap(RateLimiting.chargeKey(limiter, usage, key), (
          decision
        ): Result<typeof httpEffect, ReturnType<typeof RateLimiting.rejectionOf>> => {
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

/** The maximum of operations that run at once. More of them would take longer, and each holds memory. */
const maxRunning = 2_500

/** The time for which an operation beyond the maximum waits. */
const maxWait = "1 second"

const queued = Metric.gauge("http_server_requests_queued", { description: "Requests that wait for a slot." })

const overloaded = Effect.die(new Errors.ServiceUnavailable({ message: "The service is overloaded. Retry shortly." }))

/**
 * Returns a function that runs an operation in a slot, which the end of its call frees. It dies with a 503 after a
 * second without a free one. The slots are counted by hand: Effect's `Semaphore` takes 5 % of the time of a list.
 */
const makeSlots = Effect.map(Metric.update(queued, 0), () => {
  let free = maxRunning
  const waiting = new Set<() => void>()
  const freeSlot = (): void => {
    free++
    const [first] = waiting
    first?.()
  }
  const take = (call: Call): void => {
    free--
    call.freeSlot = freeSlot
  }
  const waitForSlot = (call: Call) =>
    Effect.callback<void>((resume) => {
      const start = (): void => {
        waiting.delete(start)
        take(call)
        resume(Effect.void)
      }
      waiting.add(start)
      return Effect.sync(() => waiting.delete(start))
    })
  return <A, E, R>(call: Call, operation: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> => {
    if (free === 0) {
      const turn = Effect.timeoutOrElse(waitForSlot(call), { duration: maxWait, orElse: () => overloaded })
      const counted = Effect.acquireUseRelease(Metric.modify(queued, 1), () => turn, () => Metric.modify(queued, -1))
      return Effect.andThen(counted, operation)
    }
    take(call)
    return operation
  }
})

/**
 * Fails with 417 for an unknown `Expect`, and with 400, 413 or 415 for a body that the service does not accept. Then
 * the request is complete and takes a slot: a slow body occupies a connection, and no slot.
 */
export const validation = Layer.effect(
  Validation,
  Effect.zipWith(makeSlots, Validation, (inSlot, decoded) =>
    Validation.of((undecoded, options) => {
      const hasBody = HttpMethod.hasBody(options.endpoint.method)
      const httpEffect = decoded(undecoded, options)
      return Effect.withFiber((
        fiber
      ): Result<typeof httpEffect, JsonBody.BodyError | Errors.ExpectationFailed, HttpRouter.Provided> => {
        const request = Context.getUnsafe(fiber.context, HttpServerRequest.HttpServerRequest)
        const expect = headerOf(request, "expect")
        if (expect !== undefined && expect.toLowerCase() !== "100-continue") {
          return Effect.fail(new Errors.ExpectationFailed())
        }
        const call = fiber.getRef(CurrentCall)
        return hasBody
          ? Effect.flatMap(JsonBody.read(request), () => inSlot(call, httpEffect))
          : inSlot(call, httpEffect)
      })
    }))
).pipe(Layer.provide(Validation.layer))

/** Fails with 410 from the sunset of the deprecated operation on (RFC 8594). */
const sunset = Layer.succeed(Sunset, (httpEffect) =>
  Effect.flatMap(
    Clock.currentTimeMillis,
    (now): Result<typeof httpEffect, Errors.Gone> =>
      now < getPetSunset.getTime() ? httpEffect : Effect.fail(new Errors.Gone())
  ))

/** The middleware of the API under `/v1`. */
export const layer = Layer.mergeAll(auth, rateLimit, validation, sunset)
