import { Duration, Effect, Layer, Metric, Redacted } from "effect"
import { HttpServerRequest } from "effect/http"
import { createHash, timingSafeEqual } from "node:crypto"
import { CurrentOperator } from "../api-keys/AuditLog.ts"
import { AdminAuth } from "../api/AdminApi.ts"
import { InvalidAdminToken, MissingAdminToken, ReadOnlyToken, TooManyAttempts } from "../api/Errors.ts"
import type { Limits } from "../api/Plans.ts"
import { redactAlso } from "../api/Secrets.ts"
import { Settings } from "../config/Settings.ts"
import { RequestContext } from "../http/RequestContext.ts"
import { clientAddress, clientNetwork, confusionOf } from "../http/RequestHead.ts"
import { byAttributes, counter, startAtZero } from "../observability/MetricConstructors.ts"
import { retryAfterSeconds } from "../rate-limit/LimitHeaders.ts"
import type { Decision } from "../rate-limit/Policy.ts"
import { RateLimiter } from "../rate-limit/RateLimiter.ts"
import { AdminToken } from "./AdminToken.ts"

/** Hashes a token before the comparison, because `timingSafeEqual` needs inputs of the same length. */
const digest = (token: Redacted.Redacted): Buffer => createHash("sha256").update(Redacted.value(token)).digest()

const failures = byAttributes(
  counter("admin_authentication_failures_total", "Requests to /admin without a valid admin token, by error code."),
  (code: string) => ({ code })
)

/**
 * Allowed failures per client address. `perDay` allows 60 in every minute of a day, so only `perMinute` has an effect.
 */
export const maxFailures: Limits = { perMinute: 60, perDay: 60 * 24 * 60 }

export const layer = Layer.effect(
  AdminAuth,
  Effect.gen(function*() {
    yield* startAtZero([MissingAdminToken, InvalidAdminToken].map((Failure) => failures(new Failure().code)))
    const limiter = yield* RateLimiter
    const admin = { name: "admin", mayChange: true, token: (yield* AdminToken).token }
    const tokens = [admin, ...yield* Settings.adminTokens.config]
    for (const { token } of tokens) redactAlso(Redacted.value(token))
    const operators = tokens.map(({ token, ...operator }) => ({ ...operator, hash: digest(token) }))

    /** Counts a failure against the client's address. Logs only the first failure of an address in each minute. */
    const countFailure = Effect.fnUntraced(function*(failure: MissingAdminToken | InvalidAdminToken) {
      yield* Metric.update(failures(failure.code), 1)
      const address = clientNetwork(yield* HttpServerRequest.HttpServerRequest)
      const decision = yield* Effect.orDie(limiter.charge(`address:${address}`, maxFailures))
      if (decision.windows[0].remaining === maxFailures.perMinute - 1) {
        yield* Effect.annotateLogs(Effect.logWarning("Admin authentication failed"), { address, code: failure.code })
      }
      return decision
    })

    return AdminAuth.of({
      adminToken: Effect.fnUntraced(function*(httpEffect, { credential, endpoint }) {
        const context = yield* RequestContext
        context.routed(endpoint)
        // Compare the token before counting failures, so that failures never block a request with a valid token.
        const hash = digest(credential)
        const operator = operators.find((each) => timingSafeEqual(each.hash, hash))
        if (operator !== undefined) {
          const { mayChange, name } = operator
          if (!mayChange && endpoint.method !== "GET") return yield* new ReadOnlyToken()
          const address = clientAddress(yield* HttpServerRequest.HttpServerRequest)
          return yield* Effect.provideService(httpEffect, CurrentOperator, { operator: name, mayChange, address })
        }
        const sent = Redacted.value(credential)
        const message = confusionOf(sent, "admin token")
        const failure = sent === ""
          ? new MissingAdminToken()
          : new InvalidAdminToken(message === undefined ? {} : { message })
        const decision = yield* countFailure(failure)
        return yield* (decision.allowed ? failure : tooManyAttempts(decision))
      })
    })
  })
).pipe(
  // Count failures in memory: in Redis, the 127.0.0.1 of all machines would be one client. `fresh` matters in tests:
  // without it, Effect would share one `layerMemory` between this port and the API port, and mix their counts.
  Layer.provide(Layer.fresh(RateLimiter.layerMemory))
)

const tooManyAttempts = (decision: Decision) => {
  const seconds = retryAfterSeconds(decision)
  const message = `Too many requests without a valid admin token came from this address. Retry in ${seconds} seconds.`
  return new TooManyAttempts({ message, retryAfter: Duration.seconds(seconds) })
}
