/**
 * Decides when the client sends a request and when it retries one (SPEC §8: wait as `Retry-After` says, back off
 * exponentially).
 *
 * The client retries every request after a 429, because a 429 says that the service did nothing. After a 408, a 5xx or
 * a missing response, the service may have done the work (after a 503 too). Then the client retries only requests that
 * are safe to repeat: those with the method GET or with an `Idempotency-Key`.
 */
import { Clock, Deferred, Duration, Effect, Random } from "effect"
import { Headers, HttpClient, type HttpClientError, type HttpClientResponse } from "effect/http"

/** Limits on the retries of one call. */
export interface RetryPolicy {
  /** The max number of retries, after the first attempt. */
  readonly times: number
  /** The max total wait of one call. The client does not wait for a `Retry-After` that exceeds the rest of it. */
  readonly maxWait: Duration.Input
}

/** At most 5 retries and 2 minutes of waiting. */
export const defaultPolicy: RetryPolicy = { times: 5, maxWait: "2 minutes" }

/** The first backoff. Each further backoff is twice as long. A longer `Retry-After` takes precedence. */
const firstBackoffMs = 200
/** After this time the client checks whether a rejection still holds: an operator may have lifted the ban. */
const maxRejectionTrustMs = 60_000

type Attempt = Effect.Effect<HttpClientResponse.HttpClientResponse, HttpClientError.HttpClientError>

/**
 * The most recent 429 response. The rejection ends at `endsAtMs`. The client sends nothing before `trustedUntilMs`, and
 * then checks whether the rejection has ended early. Both are Unix times in milliseconds.
 */
interface Rejection {
  readonly response: HttpClientResponse.HttpClientResponse
  readonly endsAtMs: number
  readonly trustedUntilMs: number
}

/**
 * Wraps `client` so that it retries as `policy` allows and returns the last response.
 *
 * While the client knows that the service would reject a request, it sends none. A call whose wait would exceed
 * `policy.maxWait` returns the last rejection. Concurrent calls share a limit: a request starts only while fewer are in
 * flight than the most recent response said remain. So a caller gets few rejections, and no ban, at any load.
 */
export const withRetries = (policy: RetryPolicy) => (client: HttpClient.HttpClient): HttpClient.HttpClient => {
  const maxWaitMs = Duration.toMillis(policy.maxWait)
  let rejection: Rejection | undefined
  let inFlight = 0
  let remaining = 0
  let slotFreed = Deferred.makeUnsafe<void>()

  const trustedRejection = (now: number): Rejection | undefined =>
    rejection !== undefined && now < rejection.trustedUntilMs ? rejection : undefined

  const releaseSlot = Effect.suspend(() => {
    inFlight--
    Deferred.doneUnsafe(slotFreed, Effect.void)
    slotFreed = Deferred.makeUnsafe<void>()
    // The yield lets queued calls take the slot before the call that released it sends its next request.
    return Effect.yieldNow
  })
  /** Waits for a slot, then runs `attempt` in it. A queued call can be interrupted. */
  const withSlot = (attempt: Attempt): Attempt =>
    Effect.uninterruptibleMask((restore) => {
      const acquireSlot: Attempt = Effect.suspend(() => {
        // One request may always be in flight: without a response the remaining quota is unknown.
        if (inFlight > 0 && inFlight >= remaining) {
          return Effect.andThen(restore(Deferred.await(slotFreed)), acquireSlot)
        }
        inFlight++
        return Effect.ensuring(restore(attempt), releaseSlot)
      })
      return acquireSlot
    })

  /**
   * Raises the limit to twice the requests in flight, after an attempt without a response. Such an attempt leaves the
   * quota unknown, and queued calls must not wait for each other's timeouts in turn.
   */
  const raiseLimit = () => {
    remaining = Math.max(remaining, 2 * inFlight)
  }

  return HttpClient.transform(client, (sendOnce, request) => {
    const isRepeatable = request.method === "GET" || Headers.has(request.headers, "idempotency-key")

    const attempt: Attempt = withSlot(
      Effect.tap(
        // The service may have rejected another call while this one was queued.
        Effect.flatMap(Clock.currentTimeMillis, (now) => {
          const trusted = trustedRejection(now)
          return trusted === undefined
            ? Effect.tapError(sendOnce, () => Effect.sync(raiseLimit))
            : Effect.succeed(trusted.response)
        }),
        Effect.fnUntraced(function*(response) {
          // A 503 says nothing about the quota: the service can send it before it identifies the caller.
          if (response.status !== 503) remaining = Number(response.headers["x-ratelimit-remaining"] ?? Infinity)
          const now = yield* Clock.currentTimeMillis
          if (response.status !== 429 || trustedRejection(now) !== undefined) return
          // All waiting calls share one jitter, so that no later call overtakes the one that waits longest.
          const waitMs = retryAfterMs(response, now) + (yield* Random.nextBetween(0, 1000))
          rejection = { response, endsAtMs: now + waitMs, trustedUntilMs: now + Math.min(waitMs, maxRejectionTrustMs) }
        })
      )
    )

    const sendWithRetries = (retriesLeft: number, waitedMs: number): Attempt => {
      /** Waits `waitMs` and runs `next`. Returns `outcome` instead if the total wait would exceed the max. */
      const afterWait = (waitMs: number, outcome: Attempt, next: (waitedMs: number) => Attempt): Attempt =>
        waitedMs + waitMs > maxWaitMs
          ? outcome
          : Effect.andThen(Effect.sleep(Math.ceil(waitMs)), next(waitedMs + waitMs))
      const retry = (waitMs: number, outcome: Attempt): Attempt =>
        retriesLeft === 0
          ? outcome
          : afterWait(waitMs, outcome, (totalWaitMs) => sendWithRetries(retriesLeft - 1, totalWaitMs))

      const attemptThenRetry = Effect.matchEffect(attempt, {
        onFailure: (error) =>
          isRepeatable && error.reason._tag === "TransportError"
            ? Effect.flatMap(backoffMs(policy.times - retriesLeft), (waitMs) => retry(waitMs, Effect.fail(error)))
            : Effect.fail(error),
        onSuccess: Effect.fnUntraced(function*(response) {
          const outcome = Effect.succeed(response)
          if (response.status !== 429 && !(isRepeatable && isFault(response))) return response
          const now = yield* Clock.currentTimeMillis
          const waitMs = Math.max(yield* backoffMs(policy.times - retriesLeft), retryAfterMs(response, now))
          return yield* retry(
            response.status === 429 ? Math.max(waitMs, (rejection?.endsAtMs ?? now) - now) : waitMs,
            outcome
          )
        })
      })
      return Effect.flatMap(Clock.currentTimeMillis, (now) => {
        const trusted = trustedRejection(now)
        return trusted === undefined
          ? attemptThenRetry
          : afterWait(
            trusted.endsAtMs - now,
            Effect.succeed(trusted.response),
            (totalWaitMs) => sendWithRetries(retriesLeft, totalWaitMs)
          )
      })
    }
    return sendWithRetries(policy.times, 0)
  })
}

/** The backoff after this number of retries, in milliseconds, with up to 25 % jitter. */
const backoffMs = (retries: number): Effect.Effect<number> =>
  Effect.map(Random.nextBetween(1, 1.25), (jitter) => firstBackoffMs * 2 ** retries * jitter)

/** Whether the response leaves open if the service did the work: 408 and every 5xx. */
const isFault = ({ status }: HttpClientResponse.HttpClientResponse): boolean => status >= 500 || status === 408

/** The wait in milliseconds that `Retry-After` names: it holds seconds or a date (RFC 9110 §10.2.3). */
const retryAfterMs = ({ headers }: HttpClientResponse.HttpClientResponse, now: number): number => {
  const value = headers["retry-after"] ?? "0"
  const waitMs = /^\d+$/.test(value) ? Number(value) * 1000 : Date.parse(value) - now
  return Math.max(0, waitMs || 0)
}
