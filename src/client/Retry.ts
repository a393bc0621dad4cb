/**
 * Decides when the client sends a request and when it retries one (SPEC §8: wait as `Retry-After` says, back off
 * exponentially).
 *
 * The client retries every request after a 429, because a 429 says that the service did nothing. After a 408, a 5xx or
 * a missing response, the service may have done the work (after a 503 too). Then the client retries only requests that
 * are safe to repeat: those with the method GET or with an `Idempotency-Key`.
 */
import { Clock, Duration, Effect, Random } from "effect"
import { Headers, HttpClient, type HttpClientError, type HttpClientResponse } from "effect/http"
import { type KnownLimits, retryAfterMs } from "./KnownLimits.ts"

/** Limits on the retries of one call. */
export interface RetryPolicy {
  /** The max number of retries, after the first attempt. */
  readonly times: number
  /**
   * The max total wait of one call before its attempts. The client does not wait for a `Retry-After` that exceeds the
   * rest of it. The wait for a slot while other calls are in flight does not count.
   */
  readonly maxWait: Duration.Input
}

/** At most 5 retries and 2 minutes of waiting. */
export const defaultPolicy: RetryPolicy = { times: 5, maxWait: "2 minutes" }

/** The first backoff. Each further backoff is twice as long. A longer `Retry-After` takes precedence. */
const firstBackoffMs = 200

type Attempt = Effect.Effect<HttpClientResponse.HttpClientResponse, HttpClientError.HttpClientError>

/** Shows a wait in the log, at level debug, and as an event of the current span. */
const announceWait = (waitMs: number, cause: string) =>
  Effect.gen(function*() {
    const clock = yield* Clock.Clock
    const attributes = { "petstore.wait.ms": Math.ceil(waitMs), "petstore.wait.cause": cause }
    yield* Effect.currentSpan.pipe(
      Effect.tap((span) => Effect.sync(() => span.event("wait", clock.monotonicTimeNanosUnsafe(), attributes))),
      Effect.ignore
    )
    yield* Effect.logDebug(`Waiting ${Math.ceil(waitMs)} ms: ${cause}.`)
  })

/**
 * Wraps `client` so that it retries as `policy` allows and returns the last response. While the limits say that the
 * service would reject a request, it sends none. A call whose wait would exceed `policy.maxWait` returns the last
 * rejection.
 */
export const withRetries = (policy: RetryPolicy, limits: KnownLimits) => (client: HttpClient.HttpClient) =>
  HttpClient.transform(client, (sendOnce, request) => {
    const isRepeatable = request.method === "GET" || Headers.has(request.headers, "idempotency-key")
    const call: Call = { sendOnce, isRepeatable, limits, policy }
    return send(call, { retries: 0, waitedMs: 0 })
  })

/** One call: its request, and what allows and limits its retries. */
interface Call {
  readonly sendOnce: Attempt
  readonly isRepeatable: boolean
  readonly limits: KnownLimits
  readonly policy: RetryPolicy
}

/** The part of its policy that a call has used. */
interface Used {
  readonly retries: number
  readonly waitedMs: number
}

/**
 * Sends the request once the known rejection, or the window that is used up, has ended, and retries. A call that cannot
 * wait for the end of the window asks the service, whose rejection all calls then know.
 */
const send = (call: Call, used: Used): Attempt =>
  Effect.flatMap(Clock.currentTimeMillis, (now) => {
    const rejection = call.limits.trustedRejection(now)
    const waitMs = rejection === undefined ? call.limits.usedUpMs(now) : rejection.endsAtMs - now
    const ask = sendAndRetry(call, used)
    return waitMs === 0 ? ask : afterWait(call, used, waitMs, "the limit is used up", {
      outcome: rejection === undefined ? ask : Effect.succeed(rejection.response),
      next: (waited) => send(call, waited)
    })
  })

const sendAndRetry = (call: Call, used: Used): Attempt => {
  const maxWaitMs = Duration.toMillis(call.policy.maxWait) - used.waitedMs
  return Effect.matchEffect(call.limits.attempt(call.sendOnce, maxWaitMs), {
    onFailure: (error) =>
      call.isRepeatable && error.reason._tag === "TransportError"
        ? Effect.flatMap(backoffMs(used.retries), (waitMs) =>
          retry(call, used, waitMs, "no response", Effect.fail(error)))
        : Effect.fail(error),
    onSuccess: Effect.fnUntraced(function*(response) {
      if (response === undefined) return yield* send(call, used)
      const isRejection = response.status === 429
      if (!isRejection && !(call.isRepeatable && isFault(response))) {
        return response
      }
      const now = yield* Clock.currentTimeMillis
      const waitMs = Math.max(
        yield* backoffMs(used.retries),
        retryAfterMs(response, now),
        isRejection ? call.limits.rejectionEnd(now) - now : 0
      )
      return yield* retry(call, used, waitMs, `status ${response.status}`, Effect.succeed(response))
    })
  })
}

/** Waits and retries. Returns `outcome` instead if no retry is left, or if the total wait would exceed the max. */
const retry = (call: Call, used: Used, waitMs: number, cause: string, outcome: Attempt): Attempt =>
  used.retries === call.policy.times
    ? outcome
    : afterWait(call, used, waitMs, cause, {
      outcome,
      next: (waited) => send(call, { ...waited, retries: used.retries + 1 })
    })

const afterWait = (
  { policy }: Call,
  used: Used,
  waitMs: number,
  cause: string,
  { next, outcome }: { readonly outcome: Attempt; readonly next: (used: Used) => Attempt }
): Attempt => {
  const waitedMs = used.waitedMs + waitMs
  return waitedMs > Duration.toMillis(policy.maxWait)
    ? outcome
    : Effect.andThen(announceWait(waitMs, cause), Effect.sleep(Math.ceil(waitMs))).pipe(
      Effect.andThen(next({ ...used, waitedMs }))
    )
}

/** The backoff after this number of retries, in milliseconds, with up to 25 % jitter. */
const backoffMs = (retries: number): Effect.Effect<number> =>
  Effect.map(Random.nextBetween(1, 1.25), (jitter) => firstBackoffMs * 2 ** retries * jitter)

/** Whether the response leaves open if the service did the work: 408 and every 5xx. */
const isFault = ({ status }: HttpClientResponse.HttpClientResponse): boolean => status >= 500 || status === 408
