import { Duration, Effect, Metric } from "effect"
import type { KeyUsage } from "../api-keys/KeyUsage.ts"
import { ApiKeyBanned, RateLimitExceeded } from "../api/Errors.ts"
import type { CurrentKey } from "../api/OperationMiddleware.ts"
import { Plan, planLimits } from "../api/Plans.ts"
import type { UsageKind } from "../api/Usage.ts"
import { byAttributes, startAtZero } from "../observability/Metrics.ts"
import { type Decision, mostRestrictive, type Window } from "../rate-limit/Policy.ts"
import type { Caller, RateLimiter } from "../rate-limit/RateLimiter.ts"
import type { ChargedDecision } from "./RequestContext.ts"

const decisions = byAttributes(
  Metric.counter("rate_limit_decisions_total", {
    description: "Requests, by the plan that they were charged to and the rate limit decision.",
    incremental: true
  }),
  (outcome: UsageKind, plan: string) => ({ outcome, plan })
)
const bans = byAttributes(
  Metric.counter("rate_limit_bans_total", { description: "Bans by plan.", incremental: true }),
  (plan: string) => ({ plan })
)

const countDecision = (charged: Effect.Effect<Decision>, plan: Plan | "none") =>
  Effect.withFiber(({ context }) =>
    Effect.map(charged, (decision) => {
      decisions(kindOf(decision), plan).updateUnsafe(1, context)
      if (decision.banBegan) bans(plan).updateUnsafe(1, context)
      return decision
    })
  )

const kindOf = ({ allowed, bannedUntil }: Decision): UsageKind =>
  allowed ? "allowed" : bannedUntil === undefined ? "rejected" : "banned"

export const startBanCounters = startAtZero(Plan.literals.map((plan) => bans(plan)))

export const chargeKey = (limiter: RateLimiter["Service"], usage: KeyUsage, key: CurrentKey["Service"]) =>
  Effect.map(countDecision(limiter.charge(`key:${key.id}`, key.limits), key.plan), (decision) => {
    usage.count(key.id, kindOf(decision), decision.decidedAt)
    return decision
  })

/**
 * Charges the client's address for a request that has no valid key or reached no operation. This also limits guessing
 * of keys. If `isFree`, only reads the limits, and allows the request.
 */
export const chargeAddress = (limiter: RateLimiter["Service"], caller: Caller, isFree: boolean) =>
  Effect.map(
    isFree
      ? Effect.map(limiter.peek(caller, planLimits.free), (state) => ({ ...state, allowed: true }))
      : countDecision(limiter.charge(caller, planLimits.free), "none"),
    (decision): ChargedDecision => ({ ...decision, scope: "address" })
  )

export const rejectionOf = (decision: ChargedDecision): ApiKeyBanned | RateLimitExceeded => {
  const seconds = retryAfterSeconds(decision)
  const wait = { retryAfter: Duration.seconds(seconds) }
  if (decision.bannedUntil !== undefined) {
    const reason = "temporarily banned for continued requests after 429 responses"
    return new ApiKeyBanned({ ...wait, message: `The API key is ${reason}. Retry in ${seconds} seconds.` })
  }
  const { limit, name } = mostRestrictive(decision.windows)
  const caller = decision.scope === "address" ? "Your address" : "The API key"
  return new RateLimitExceeded({
    ...wait,
    message: `${caller} has used its limit of ${limit} requests per ${name}. Retry in ${seconds} seconds.`
  })
}

/**
 * During a ban, the limit per minute is shown with zero remaining requests, and with the end of the ban as its reset.
 */
const shownWindows = ({ bannedUntil, windows: [minute, day] }: Decision): Decision["windows"] =>
  bannedUntil === undefined ? [minute, day] : [{ ...minute, remaining: 0, resetAt: bannedUntil }, day]

export const retryAfterSeconds = (decision: Decision): number =>
  secondsUntilReset(mostRestrictive(shownWindows(decision)), decision)

const secondsUntilReset = (window: Window, { decidedAt }: Decision): number =>
  Math.ceil((window.resetAt - decidedAt) / 1000)

const policy = ({ limit, name, seconds }: Window): string => `"${name}";q=${limit};w=${seconds}`

const left = (window: Window, decision: Decision): string =>
  `"${window.name}";r=${window.remaining};t=${secondsUntilReset(window, decision)}`

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
