/**
 * Retries requests, by default with exponential backoff, but not before `Retry-After` (SPEC §8). After a 429, or if the
 * secret was unavailable, retries any request, because the service did not process it. After a 408, a 5xx other than
 * 505, or no response, retries only idempotent requests. After a 429, `Pacing.ts` also delays the client's other calls.
 */
import { Clock, Duration, Effect, Pull, Result, Schedule } from "effect"
import type { HttpClientRequest, HttpClientResponse } from "effect/http"
import { isRetryable, isRetryableStatus, type PetstoreClientError, retryAfterOf, withTimeout } from "./ClientError.ts"
import type { ClientMetrics } from "./ClientMetrics.ts"
import type { Pacing } from "./Pacing.ts"

/** When to retry, and how long to wait for a retry or for a limit. */
export interface RetryOptions {
  /** The maximum number of retries. The default is 5. */
  readonly times?: number | undefined
  /** The minimum delays between attempts. By default 200, 400, 800 ms and so on, each up to 20 % shorter or longer. */
  readonly schedule?: Schedule.Schedule<unknown> | undefined
  /** The timeout of one attempt. The default is 30 seconds. */
  readonly attemptTimeout?: Duration.Input | undefined
  /**
   * The wait budget, from the start of the call. If backoff or `Retry-After` would delay a retry beyond it, the call
   * fails at once. A call waits for the end of a used-up limit or a ban only if that end comes within the budget.
   * Otherwise, the request is sent without this wait, or the call fails with the 429 that began the pause, if that is
   * less than a minute old. The default and the maximum are the call's `timeout`.
   */
  readonly maxWait?: Duration.Input | undefined
}

const backoff = Schedule.jittered(Schedule.exponential("200 millis"))

type Attempt = Effect.Effect<HttpClientResponse.HttpClientResponse, PetstoreClientError>

export const sendWithRetries = Effect.fnUntraced(function*(
  send: Attempt,
  request: HttpClientRequest.HttpClientRequest,
  isIdempotent: boolean,
  { attemptTimeout = "30 seconds", maxWait, schedule = backoff, times = 5 }: RetryOptions,
  timeout: Duration.Duration,
  pacing: Pacing,
  metrics: ClientMetrics
) {
  const nextDelay = yield* Schedule.toStep(Schedule.upTo(schedule, { times }))
  const waitBudget = Duration.min(timeout, Duration.fromInputUnsafe(maxWait ?? timeout))
  const deadline = (yield* Clock.currentTimeMillis) + Duration.toMillis(waitBudget)
  const attempt = pacing.attempt(withTimeout(send, attemptTimeout, request), deadline)
  for (let resends = 0;; resends++) {
    const annotations = resends === 0 ? {} : { "http.request.resend_count": resends }
    const outcome = yield* Effect.result(Effect.annotateSpans(attempt, annotations))
    const now = yield* Clock.currentTimeMillis
    const response = Result.isSuccess(outcome) ? outcome.success : undefined
    const isRejection = response?.status === 429
    const mayHelp = Result.isSuccess(outcome) ? isRetryableStatus(outcome.success.status) : isRetryable(outcome.failure)
    const isUnsent = Result.isFailure(outcome) && outcome.failure.reason._tag === "SecretUnavailable"
    if (!mayHelp || !isIdempotent && !isRejection && !isUnsent) return yield* Effect.fromResult(outcome)
    const delayMs = yield* nextDelay(now, undefined).pipe(
      Effect.map(([, delay]) => Duration.toMillis(delay)),
      Pull.catchDone(() => Effect.succeed(Infinity))
    )
    const retryAfter = response === undefined ? undefined : yield* retryAfterOf(response.headers)
    const waitMs = Math.max(delayMs, Duration.toMillis(retryAfter ?? 0))
    if (now + waitMs > deadline) return yield* Effect.fromResult(outcome)
    const reason = isUnsent ? "no secret" : response === undefined ? "no response" : `status ${response.status}`
    yield* metrics.wait("retry", waitMs, reason)
  }
})
