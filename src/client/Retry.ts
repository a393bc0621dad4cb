/**
 * When a request is sent again (SPEC §8: wait as `Retry-After` says, back off exponentially): after 429 and 503, which say
 * that nothing was done, and, where doing it twice does no harm, after an answer that did not come.
 */
import { Clock, Duration, Effect, Random } from "effect"
import { Headers, HttpClient, type HttpClientError, type HttpClientResponse } from "effect/http"

export interface RetryPolicy {
  /** How often a request is sent again at most. */
  readonly times: number
  /** How long all waiting for one answer may take: a longer `Retry-After` is not waited for. */
  readonly maxWait: Duration.Input
}

export const defaultPolicy: RetryPolicy = { times: 5, maxWait: "2 minutes" }

/** Milliseconds of the first wait where the service names none; each further one is twice as long. */
const firstWait = 200

type Attempt = Effect.Effect<HttpClientResponse.HttpClientResponse, HttpClientError.HttpClientError>

/**
 * A client that sends again what `policy` lets it, and hands out the last answer. While it is known that the service would
 * refuse, it sends nothing: what it need not wait for has the last refusal as its answer. So a caller in a tight loop
 * collects no refusals, and is not banned.
 */
export const retrying = (policy: RetryPolicy) => (client: HttpClient.HttpClient): HttpClient.HttpClient => {
  const patience = Duration.toMillis(policy.maxWait)
  let refusal: { readonly until: number; readonly response: HttpClientResponse.HttpClientResponse } | undefined

  return HttpClient.transform(client, (answer, request) => {
    const harmless = request.method === "GET" || Headers.has(request.headers, "idempotency-key")

    const attempt: Attempt = Effect.tap(answer, (response) =>
      response.status === 429
        ? Effect.map(Clock.currentTimeMillis, (now) => {
          refusal = { until: now + retryAfter(response), response }
        })
        : Effect.void)

    const send = (left: number, waited: number): Attempt => {
      /** Goes on after `wait` milliseconds and a bit, or leaves it at `outcome`. */
      const after = (wait: number, outcome: Attempt, next: (waited: number) => Attempt): Attempt =>
        waited + wait > patience
          ? outcome
          : Effect.flatMap(Random.nextBetween(1, 1.25), (jitter) => {
            const delay = Math.ceil(wait * jitter)
            return Effect.andThen(Effect.sleep(delay), next(waited + delay))
          })
      const again = (wait: number, outcome: Attempt): Attempt =>
        left === 0 ? outcome : after(wait, outcome, (soFar) => send(left - 1, soFar))
      const backoff = firstWait * 2 ** (policy.times - left)

      const sent = Effect.matchEffect(attempt, {
        onFailure: (error) =>
          harmless && error.reason._tag === "TransportError"
            ? again(backoff, Effect.fail(error))
            : Effect.fail(error),
        onSuccess: (response) =>
          response.status === 429 || response.status === 503
            ? again(Math.max(backoff, retryAfter(response)), Effect.succeed(response))
            : Effect.succeed(response)
      })
      return Effect.flatMap(Clock.currentTimeMillis, (now) =>
        refusal !== undefined && now < refusal.until
          ? after(refusal.until - now, Effect.succeed(refusal.response), (soFar) => send(left, soFar))
          : sent)
    }
    return send(policy.times, 0)
  })
}

/** Milliseconds. */
const retryAfter = ({ headers }: HttpClientResponse.HttpClientResponse): number =>
  1000 * (Number(headers["retry-after"] ?? 0) || 0)
