/** Rate limits over HTTP (SPEC §8): the middleware that charges keys, and the rate-limit headers of every response. */
import { Context, Effect, Layer, Metric } from "effect"
import { HttpServerRequest, type HttpServerResponse } from "effect/http"
import { ApiKeys } from "../../api-keys/ApiKeys.ts"
import type { KeyUsage } from "../../api-keys/KeyUsage.ts"
import { CurrentKey } from "../../api/Auth.ts"
import { ApiKeyBanned, RateLimitExceeded } from "../../api/Errors.ts"
import { type Limits, Plan, planLimits } from "../../api/Plans.ts"
import { RateLimit } from "../../api/RateLimit.ts"
import type { UsageKind } from "../../api/Usage.ts"
import { byAttributes, startAtZero } from "../../observability/Metrics.ts"
import type { Caller } from "../../rate-limit/CallerStates.ts"
import { type Decision, mostRestrictive, type Window } from "../../rate-limit/Policy.ts"
import { RateLimiter } from "../../rate-limit/RateLimiter.ts"
import { type ChargedDecision, CurrentRequestContext } from "../response/RequestContext.ts"
import * as ClientAddress from "./ClientAddress.ts"

/**
 * Charges each request to its API key, and fails with 429 if the key is banned or over a limit. It uses no generators,
 * because every request passes here.
 */
export const layer = Layer.effect(
  RateLimit,
  Effect.gen(function*() {
    yield* startAtZero(Plan.literals.map((plan) => bans(plan)))
    const limiter = yield* RateLimiter
    const { audit, usage } = yield* ApiKeys
    const addressOf = yield* ClientAddress.makeOfRequest

    const recordBan = (
      request: HttpServerRequest.HttpServerRequest,
      { id: keyId }: CurrentKey["Service"],
      { bannedUntil: until, decidedAt: at }: Decision
    ) => until === undefined ? Effect.void : audit.recordBan({ keyId, address: addressOf(request), at, until })

    return RateLimit.of((httpEffect) =>
      Effect.withFiber((fiber) => {
        const requestContext = fiber.getRef(CurrentRequestContext)
        const key = Context.getUnsafe(fiber.context, CurrentKey)
        // The fast path may already have charged this request.
        const charged = requestContext.decision === undefined
          ? chargeKey(limiter, usage, key)
          : Effect.succeed(requestContext.decision)
        return Effect.flatMap(charged, (
          decision
        ): Effect.Effect<
          HttpServerResponse.HttpServerResponse,
          ApiKeyBanned | RateLimitExceeded | Effect.Error<typeof httpEffect>
        > => {
          requestContext.decision = decision
          if (!decision.allowed) {
            const rejection = Effect.fail(rejectionOf(decision))
            if (!decision.banBegan) return rejection
            const request = Context.getUnsafe(fiber.context, HttpServerRequest.HttpServerRequest)
            return Effect.andThen(recordBan(request, key, decision), rejection)
          }
          const assigned = requestContext.slot.assign(callerOf(key))
          return assigned === Effect.void ? httpEffect : Effect.andThen(Effect.orDie(assigned), httpEffect)
        })
      })
    )
  })
)

const decisions = byAttributes(
  Metric.counter("rate_limit_decisions_total", {
    description: "Requests by the plan that they were charged to, and what was decided of them.",
    incremental: true
  }),
  (outcome: UsageKind, plan: string) => ({ outcome, plan })
)
const bans = byAttributes(
  Metric.counter("rate_limit_bans_total", { description: "Bans by plan.", incremental: true }),
  (plan: string) => ({ plan })
)

/**
 * Charges a request to a key of `plan`, or to an address (`none`), and counts the decision, with `count` too. It is one
 * step, because every request passes here.
 */
const charge = (
  limiter: RateLimiter["Service"],
  { caller, count, limits, plan }: {
    readonly caller: Caller
    readonly plan: Plan | "none"
    readonly limits: Limits
    readonly count?: (kind: UsageKind, at: number) => void
  }
) =>
  Effect.flatMap(limiter.charge(caller, limits), (decision) =>
    Effect.withFiber(({ context }) => {
      const outcome = decision.allowed ? "allowed" : decision.bannedUntil === undefined ? "rejected" : "banned"
      decisions(outcome, plan).updateUnsafe(1, context)
      if (decision.banBegan) bans(plan).updateUnsafe(1, context)
      count?.(outcome, decision.decidedAt)
      return Effect.succeed(decision)
    }))

const callers = new WeakMap<CurrentKey["Service"], Caller>()

/**
 * Returns the caller of a key. The text is made once per cached key, because making and hashing it takes a microsecond.
 */
export const callerOf = (key: CurrentKey["Service"]): Caller => {
  let caller = callers.get(key)
  if (caller === undefined) {
    caller = `key:${key.id}`
    callers.set(key, caller)
  }
  return caller
}

/** Charges a request to a key, and counts it in the usage of the key. */
const chargeKey = (limiter: RateLimiter["Service"], usage: KeyUsage, key: CurrentKey["Service"]) =>
  charge(limiter, {
    caller: callerOf(key),
    plan: key.plan,
    limits: key.limits,
    count: (kind, at) => usage.count(key, kind, at)
  })

/** Returns a function from a request's peer and `X-Forwarded-For` to the caller that its address is. */
export const makeAddressCaller = Effect.map(
  ClientAddress.make,
  (clientNetwork) => (peer: string, forwardedFor: string | undefined) =>
    `address:${clientNetwork(peer, forwardedFor)}` as const
)

/** Returns a function that charges a request without a valid key to its address. This also limits guesses of keys. */
export const makeChargeAddress = Effect.map(
  RateLimiter,
  (limiter) => (caller: Caller, isFree: boolean): Effect.Effect<ChargedDecision> =>
    // A free request is not charged. Its response only shows what is left.
    !isFree
      ? Effect.map(
        charge(limiter, { caller, plan: "none", limits: planLimits.free }),
        (decision) => ({ ...decision, scope: "address" })
      )
      : Effect.map(limiter.peek(caller, planLimits.free), (left) => ({ ...left, allowed: true, scope: "address" }))
)

/** Returns the 429 for a key: banned, or over a limit. */
export const rejectionOf = (decision: Decision): ApiKeyBanned | RateLimitExceeded =>
  decision.bannedUntil === undefined ? limitExceeded(decision) : banned(decision)

/** Returns the 429 for a caller over a limit. */
export const limitExceeded = (decision: Decision): RateLimitExceeded => {
  const { limit, name } = mostRestrictive(decision.windows)
  return new RateLimitExceeded({
    message: `The limit of ${limit} requests a ${name} is used up. Retry in ${retryAfter(decision)} seconds.`
  })
}

const banned = (decision: Decision): ApiKeyBanned =>
  new ApiKeyBanned({
    message: `The API key is banned for requests after a 429. Retry in ${retryAfter(decision)} seconds.`
  })

/** The windows as responses show them: during a ban nothing remains until its end. */
const shownWindows = ({ bannedUntil, windows }: Decision): Decision["windows"] => {
  if (bannedUntil === undefined) return windows
  const [minute, day] = windows
  const none = { remaining: 0, resetAt: bannedUntil }
  return [{ ...minute, ...none }, { ...day, ...none }]
}

/**
 * Seconds until the window that rejected the request, or the ban, ends: rounded up, at least one (RFC 9110 §10.2.3).
 */
const retryAfter = (decision: Decision): number =>
  Math.max(1, secondsUntilReset(mostRestrictive(shownWindows(decision)), decision))

const secondsUntilReset = (window: Window, { decidedAt }: Decision): number =>
  Math.ceil((window.resetAt - decidedAt) / 1000)

const policy = ({ limit, name, seconds }: Window): string => `"${name}";q=${limit};w=${seconds}`

const left = (window: Window, decision: Decision): string =>
  `"${window.name}";r=${window.remaining};t=${secondsUntilReset(window, decision)}`

/**
 * Returns `X-RateLimit-*` of one window, whose limits they are, and the IETF fields of both windows
 * (draft-ietf-httpapi-ratelimit-headers).
 */
export const headers = (decision: ChargedDecision): Record<string, string> => {
  const windows = shownWindows(decision)
  const window = mostRestrictive(windows)
  const [minute, day] = windows
  const shown: Record<string, string> = {
    "x-ratelimit-limit": String(window.limit),
    "x-ratelimit-remaining": String(window.remaining),
    "x-ratelimit-reset": String(Math.ceil(window.resetAt / 1000)),
    "x-ratelimit-scope": decision.scope ?? "key",
    "ratelimit-policy": `${policy(minute)}, ${policy(day)}`,
    "ratelimit": `${left(minute, decision)}, ${left(day, decision)}`
  }
  if (!decision.allowed) shown["retry-after"] = String(retryAfter(decision))
  return shown
}
