/** Rate limits over HTTP (SPEC §8): charges to keys and addresses, and the rate-limit headers of every response. */
import { Duration, Effect, Metric } from "effect"
import type { KeyUsage } from "../api-keys/KeyUsage.ts"
import { ApiKeyBanned, RateLimitExceeded } from "../api/Errors.ts"
import type { CurrentKey } from "../api/OperationMiddleware.ts"
import { type Limits, Plan, planLimits } from "../api/Plans.ts"
import type { UsageKind } from "../api/Usage.ts"
import { byAttributes, startAtZero } from "../observability/Metrics.ts"
import type { Caller } from "../rate-limit/CallerStates.ts"
import { type Decision, mostRestrictive, type Window } from "../rate-limit/Policy.ts"
import type { RateLimiter } from "../rate-limit/RateLimiter.ts"
import type { ChargedDecision } from "./RequestContext.ts"

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
  Effect.withFiber(({ context }) =>
    Effect.map(limiter.charge(caller, limits), (decision) => {
      const outcome = decision.allowed ? "allowed" : decision.bannedUntil === undefined ? "rejected" : "banned"
      decisions(outcome, plan).updateUnsafe(1, context)
      if (decision.banBegan) bans(plan).updateUnsafe(1, context)
      count?.(outcome, decision.decidedAt)
      return decision
    })
  )

/** Shows the bans of each plan with the value 0 before the first one. */
export const startCounters = startAtZero(Plan.literals.map((plan) => bans(plan)))

/** Charges a request to a key, and counts it in the usage of the key. */
export const chargeKey = (limiter: RateLimiter["Service"], usage: KeyUsage, key: CurrentKey["Service"]) =>
  charge(limiter, {
    caller: `key:${key.id}`,
    plan: key.plan,
    limits: key.limits,
    count: (kind, at) => usage.count(key.id, kind, at)
  })

/**
 * Charges a request without a valid key to the network of its client. This also limits guesses of keys. A free request
 * is not charged: its response only shows what is left.
 */
export const chargeAddress = (
  limiter: RateLimiter["Service"],
  caller: Caller,
  isFree: boolean
): Effect.Effect<ChargedDecision> =>
  isFree
    ? Effect.map(limiter.peek(caller, planLimits.free), (left) => ({ ...left, allowed: true, scope: "address" }))
    : Effect.map(
      charge(limiter, { caller, plan: "none", limits: planLimits.free }),
      (decision) => ({ ...decision, scope: "address" })
    )

/** Returns the 429 for a key: banned, or over a limit. */
export const rejectionOf = (decision: Decision): ApiKeyBanned | RateLimitExceeded =>
  decision.bannedUntil === undefined
    ? limitExceeded(decision)
    : new ApiKeyBanned({
      message: `The API key is banned for requests after a 429. Retry in ${retryAfter(decision)} seconds.`,
      retryAfter: Duration.seconds(retryAfter(decision))
    })

/** Returns the 429 for a caller over a limit. */
export const limitExceeded = (decision: Decision): RateLimitExceeded => {
  const { limit, name } = mostRestrictive(decision.windows)
  return new RateLimitExceeded({
    message: `The limit of ${limit} requests a ${name} is used up. Retry in ${retryAfter(decision)} seconds.`,
    retryAfter: Duration.seconds(retryAfter(decision))
  })
}

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
  return {
    "x-ratelimit-limit": String(window.limit),
    "x-ratelimit-remaining": String(window.remaining),
    "x-ratelimit-reset": String(Math.ceil(window.resetAt / 1000)),
    "x-ratelimit-scope": decision.scope ?? "key",
    "ratelimit-policy": `${policy(minute)}, ${policy(day)}`,
    "ratelimit": `${left(minute, decision)}, ${left(day, decision)}`
  }
}
