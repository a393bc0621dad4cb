import { Effect, Layer, Option, Redacted } from "effect"
import { HttpServerRequest } from "effect/http"
import { createHash, timingSafeEqual } from "node:crypto"
import { AdminToken } from "../AdminToken.ts"
import { AdminAuth } from "../api/AdminApi.ts"
import { InvalidApiKey, MissingApiKey } from "../api/Errors.ts"
import type { Limits } from "../api/Plans.ts"
import type { Decision } from "../rate-limit/Rule.ts"
import { RateLimiter } from "../RateLimiter.ts"
import * as ClientAddress from "./ClientAddress.ts"
import * as Failure from "./Failure.ts"
import { exceeded, headers } from "./RateLimit.ts"

/** Hashed, two tokens compare in a time that says nothing of either, not even of its length. */
const digest = (token: Redacted.Redacted): Buffer => createHash("sha256").update(Redacted.value(token)).digest()

/** Wrong tokens that an address may send: bound by the minute, so that no guesser locks the operator out for a day. */
const attempts: Limits = { perMinute: 60, perDay: 60 * 24 * 60 }

export const layer = Layer.effect(
  AdminAuth,
  Effect.gen(function*() {
    const limiter = yield* RateLimiter
    const clientNetwork = yield* ClientAddress.make
    const expected = digest(yield* AdminToken)
    return AdminAuth.of({
      adminToken: Effect.fnUntraced(function*(httpEffect, { credential }) {
        const request = yield* HttpServerRequest.HttpServerRequest
        const peer = Option.getOrElse(request.remoteAddress, () => "")
        const network = clientNetwork(peer, request.headers["x-forwarded-for"])
        const caller = `address:${network}` as const
        const before = yield* limiter.peek(caller, attempts)
        if (!before.admitted) return tooManyAttempts(before)
        const missing = Redacted.value(credential) === ""
        if (!missing && timingSafeEqual(digest(credential), expected)) return yield* httpEffect
        // Only failures are charged.
        const decision = yield* limiter.charge(caller, attempts)
        if (!decision.admitted) return tooManyAttempts(decision)
        return yield* missing
          ? new MissingApiKey({ message: "Send the admin token as a bearer token: Authorization: Bearer adm_…" })
          : new InvalidApiKey({ message: "The admin token is wrong." })
      })
    })
  })
).pipe(
  // In this process alone: the loopback address of another machine is another caller.
  Layer.provide(RateLimiter.layerMemory)
)

const tooManyAttempts = (decision: Decision) => Failure.answer(exceeded(decision), headers(decision))
