import { Context, Duration, Effect, Layer } from "effect"
import { HttpServerRequest, type HttpServerResponse } from "effect/http"
import { AuditLog } from "../api-keys/AuditLog.ts"
import { KeyUsage } from "../api-keys/KeyUsage.ts"
import { ApiKeyBanned, RateLimitExceeded, ServiceUnavailable } from "../api/Errors.ts"
import { CurrentKey, RateLimit } from "../api/OperationMiddleware.ts"
import { Plan, planLimits } from "../api/Plans.ts"
import type { UsageKind } from "../api/Usage.ts"
import { byAttributes, counter, startAtZero } from "../observability/MetricConstructors.ts"
import * as LimitHeaders from "../rate-limit/LimitHeaders.ts"
import { type LimitScope, type RejectingWindow, rejectingWindow } from "../rate-limit/LimitHeaders.ts"
import type { Decision } from "../rate-limit/Policy.ts"
import { type Caller, RateLimiter, type Unavailable } from "../rate-limit/RateLimiter.ts"
import * as ErrorResponses from "./ErrorResponses.ts"
import { RequestContext } from "./RequestContext.ts"
import { clientAddress, clientNetwork, type RequestHead } from "./RequestHead.ts"

const decisions = byAttributes(
  counter(
    "rate_limit_decisions_total",
    "Requests, by the plan that they were charged to, the rate limit decision, and the window that rejected them."
  ),
  (outcome: UsageKind, plan: string, window: RejectingWindow | "none") => ({ outcome, plan, window })
)
const bans = byAttributes(counter("rate_limit_bans_total", "Bans by plan."), (plan: string) => ({ plan }))

/** Turns a failure of the limiter to load or save counts into a 503. */
export const toServiceUnavailable = (failure: Unavailable): ServiceUnavailable =>
  failure instanceof ServiceUnavailable ? failure : new ServiceUnavailable({ message: failure.message })

const countDecision = (decision: Decision, plan: Plan | "none", services: Context.Context<never>): void => {
  decisions(kindOf(decision), plan, rejectingWindow(decision) ?? "none").updateUnsafe(1, services)
  if (decision.banBegan) bans(plan).updateUnsafe(1, services)
}

const kindOf = ({ allowed, bannedUntil }: Decision): UsageKind =>
  allowed ? "allowed" : bannedUntil === undefined ? "rejected" : "banned"

/**
 * Hot path: a request runs no `Effect.gen`, which would cost 1.5 to 2 µs per request in this middleware and that of
 * `Auth.ts` together (docs/performance.md). The `Effect.gen` below runs once, when the layer is built.
 */
export const layer = Layer.effect(
  RateLimit,
  Effect.gen(function*() {
    yield* startAtZero(Plan.literals.map((plan) => bans(plan)))
    const [limiter, audit, usage] = [yield* RateLimiter, yield* AuditLog, yield* KeyUsage]
    return RateLimit.of((httpEffect) =>
      Effect.contextWith((services: Context.Context<CurrentKey | HttpServerRequest.HttpServerRequest>) => {
        const [key, context] = [Context.get(services, CurrentKey), Context.get(services, RequestContext)]
        const charge = Effect.matchEffect(limiter.charge(`key:${key.id}`, key.limits), {
          onFailure: (failure) => Effect.fail(toServiceUnavailable(failure)),
          onSuccess: (decision): Effect.Effect<void, ApiKeyBanned | RateLimitExceeded> => {
            countDecision(decision, key.plan, services)
            context.charged(decision)
            usage.count(key.id, kindOf(decision), decision.decidedAt)
            if (decision.allowed) return Effect.void
            context.exceeded(rejectingWindow(decision))
            const rejection = Effect.fail(rejectionOf(decision, "key"))
            const { banBegan, bannedUntil: until = 0, decidedAt: at } = decision
            if (!banBegan) return rejection
            const address = clientAddress(Context.get(services, HttpServerRequest.HttpServerRequest))
            return Effect.andThen(audit.recordBan({ keyId: key.id, address, at, until }), rejection)
          }
        })
        // Uninterruptible, so that a client cannot avoid the rate limit, the usage count or a ban by disconnecting.
        return Effect.andThen(Effect.uninterruptible(charge), httpEffect)
      })
    )
  })
)

const addressOf = (head: RequestHead): Caller => `address:${clientNetwork(head)}`

/** Charges the client's address. `orDie`, because the limiter fails only for API keys. */
export const chargeAddress = (limiter: RateLimiter["Service"], head: RequestHead) =>
  Effect.tap(
    Effect.orDie(limiter.charge(addressOf(head), planLimits.free)),
    (decision) => Effect.map(Effect.context(), (services) => countDecision(decision, "none", services))
  )

/**
 * Counts a request against the client's address, to limit the guessing of API keys. Replaces the response with a 429 if
 * the address is over its limit. Call this only if the request counted against no API key. A request does not count,
 * and keeps its response, if `isFree` is true, or if the response is a server error other than 505. A 505 counts,
 * because the client chose the HTTP version.
 */
export const limitAddress = (
  limiter: RateLimiter["Service"],
  head: RequestHead,
  context: RequestContext,
  response: HttpServerResponse.HttpServerResponse,
  isFree: boolean
) =>
  isFree || (response.status >= 500 && response.status !== 505)
    ? Effect.map(Effect.orDie(limiter.peek(addressOf(head), planLimits.free)), (decision) => ({ decision, response }))
    : Effect.map(chargeAddress(limiter, head), (decision) => {
      if (decision.allowed) return { decision, response }
      context.exceeded(rejectingWindow(decision), clientAddress(head))
      return {
        decision,
        response: ErrorResponses.make(context, rejectionOf(decision, "address"), { connection: "close" })
      }
    })

const rejectionOf = (decision: Decision, scope: LimitScope): ApiKeyBanned | RateLimitExceeded => {
  const fields = {
    message: LimitHeaders.describeRejection(decision, scope),
    retryAfter: Duration.seconds(LimitHeaders.retryAfterSeconds(decision))
  }
  return decision.bannedUntil === undefined ? new RateLimitExceeded(fields) : new ApiKeyBanned(fields)
}
