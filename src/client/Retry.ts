/**
 * When a request is sent again (SPEC §8: wait as `Retry-After` says, back off exponentially): after 429 and 503, which say
 * that nothing was done, and, where doing it twice does no harm, after an answer that did not come.
 */
import { Duration, Effect, Random } from "effect"
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

/** A client that sends again what `policy` lets it, and hands out the last answer. */
export const retrying = (policy: RetryPolicy) => (client: HttpClient.HttpClient): HttpClient.HttpClient =>
  HttpClient.transform(client, (attempt, request) => {
    const patience = Duration.toMillis(policy.maxWait)
    const harmless = request.method === "GET" || Headers.has(request.headers, "idempotency-key")

    const send = (left: number, waited: number): Attempt => {
      const nth = policy.times - left
      /** Sends again after `wait` milliseconds, or leaves it at `outcome`. */
      const again = (wait: number, outcome: Attempt): Attempt =>
        Effect.flatMap(Random.nextBetween(1, 1.25), (jitter) => {
          const delay = Math.ceil(wait * jitter)
          return left === 0 || waited + wait > patience
            ? outcome
            : Effect.andThen(Effect.sleep(delay), send(left - 1, waited + delay))
        })
      const backoff = firstWait * 2 ** nth
      return Effect.matchEffect(attempt, {
        onFailure: (error) =>
          harmless && error.reason._tag === "TransportError"
            ? again(backoff, Effect.fail(error))
            : Effect.fail(error),
        onSuccess: (response) =>
          response.status === 429 || response.status === 503
            ? again(Math.max(backoff, retryAfter(response)), Effect.succeed(response))
            : Effect.succeed(response)
      })
    }
    return send(policy.times, 0)
  })

const retryAfter = ({ headers }: HttpClientResponse.HttpClientResponse): number =>
  1000 * (Number(headers["retry-after"] ?? 0) || 0)
