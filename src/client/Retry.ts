/**
 * When a request is sent, and sent again (SPEC §8: wait as `Retry-After` says, back off exponentially): after 429,
 * which says that nothing was done, and, where doing it twice does no harm, after a fault (503 too: it may have been
 * done) or no answer at all.
 */
import { Clock, Deferred, Duration, Effect, Random } from "effect"
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
/** Milliseconds after which it is looked whether a refusal still stands: an operator may have lifted it. */
const refusalKept = 60_000

type Attempt = Effect.Effect<HttpClientResponse.HttpClientResponse, HttpClientError.HttpClientError>

/** The last refusal: when it ends, and until when nothing is sent to see whether it does before. */
interface Refusal {
  readonly response: HttpClientResponse.HttpClientResponse
  readonly ends: number
  readonly keptUntil: number
}

/**
 * A client that retries as `policy` allows and returns the last answer. While it knows that the service would refuse,
 * it sends nothing; a call that is not to wait for so long gets the last refusal as its answer. Of many calls at once,
 * only as many are under way as the last answer said remain. So callers collect few refusals, and no ban, at any load.
 */
export const withRetries = (policy: RetryPolicy) => (client: HttpClient.HttpClient): HttpClient.HttpClient => {
  const timeout = Duration.toMillis(policy.maxWait)
  let refusal: Refusal | undefined
  let underWay = 0
  let remaining = 0
  let changed = Deferred.makeUnsafe<void>()

  const stands = (now: number): Refusal | undefined =>
    refusal !== undefined && now < refusal.keptUntil ? refusal : undefined

  const leave = Effect.suspend(() => {
    underWay--
    Deferred.doneUnsafe(changed, Effect.void)
    changed = Deferred.makeUnsafe<void>()
    // Who waits comes before whoever left and comes again.
    return Effect.yieldNow
  })
  /** Runs `use` when it is its turn; who waits for that can be interrupted. */
  const inTurn = (use: Attempt): Attempt =>
    Effect.uninterruptibleMask((restore) => {
      const enter: Attempt = Effect.suspend(() => {
        // One goes ahead where nothing is known.
        if (underWay > 0 && underWay >= remaining) return Effect.andThen(restore(Deferred.await(changed)), enter)
        underWay++
        return Effect.ensuring(restore(use), leave)
      })
      return enter
    })

  /** Where nobody answers, nothing is known to remain, and calls are not to wait for each other's timeouts. */
  const widen = () => {
    remaining = Math.max(remaining, 2 * underWay)
  }

  return HttpClient.transform(client, (answer, request) => {
    const harmless = request.method === "GET" || Headers.has(request.headers, "idempotency-key")

    const attempt: Attempt = inTurn(
      Effect.tap(
        // While it waited for its turn, another may have been refused.
        Effect.flatMap(Clock.currentTimeMillis, (now) => {
          const standing = stands(now)
          return standing === undefined
            ? Effect.tapError(answer, () => Effect.sync(widen))
            : Effect.succeed(standing.response)
        }),
        Effect.fnUntraced(function*(response) {
          // A 503 may come before it is known whose request it was.
          if (response.status !== 503) remaining = Number(response.headers["x-ratelimit-remaining"] ?? Infinity)
          const now = yield* Clock.currentTimeMillis
          if (response.status !== 429 || stands(now) !== undefined) return
          // One jitter for all that wait: who waits longest is not overtaken.
          const wait = retryAfter(response, now) + (yield* Random.nextBetween(0, 1000))
          refusal = { response, ends: now + wait, keptUntil: now + Math.min(wait, refusalKept) }
        })
      )
    )

    const send = (left: number, waited: number): Attempt => {
      /** Goes on after `wait` milliseconds, or leaves it at `outcome`. */
      const after = (wait: number, outcome: Attempt, next: (waited: number) => Attempt): Attempt =>
        waited + wait > timeout ? outcome : Effect.andThen(Effect.sleep(Math.ceil(wait)), next(waited + wait))
      const again = (wait: number, outcome: Attempt): Attempt =>
        left === 0 ? outcome : after(wait, outcome, (soFar) => send(left - 1, soFar))

      const sent = Effect.matchEffect(attempt, {
        onFailure: (error) =>
          harmless && error.reason._tag === "TransportError"
            ? Effect.flatMap(backoff(policy.times - left), (wait) => again(wait, Effect.fail(error)))
            : Effect.fail(error),
        onSuccess: Effect.fnUntraced(function*(response) {
          const outcome = Effect.succeed(response)
          if (response.status !== 429 && !(harmless && isFault(response))) return response
          const now = yield* Clock.currentTimeMillis
          const wait = Math.max(yield* backoff(policy.times - left), retryAfter(response, now))
          return yield* again(response.status === 429 ? Math.max(wait, (refusal?.ends ?? now) - now) : wait, outcome)
        })
      })
      return Effect.flatMap(Clock.currentTimeMillis, (now) => {
        const standing = stands(now)
        return standing === undefined
          ? sent
          : after(standing.ends - now, Effect.succeed(standing.response), (soFar) => send(left, soFar))
      })
    }
    return send(policy.times, 0)
  })
}

/** Milliseconds of the wait after so many attempts. */
const backoff = (attempts: number): Effect.Effect<number> =>
  Effect.map(Random.nextBetween(1, 1.25), (jitter) => firstWait * 2 ** attempts * jitter)

const isFault = ({ status }: HttpClientResponse.HttpClientResponse): boolean => status >= 500 || status === 408

/** Milliseconds to wait: `Retry-After` is seconds or a date (RFC 9110 §10.2.3). */
const retryAfter = ({ headers }: HttpClientResponse.HttpClientResponse, now: number): number => {
  const given = headers["retry-after"] ?? "0"
  const wait = /^\d+$/.test(given) ? Number(given) * 1000 : Date.parse(given) - now
  return Math.max(0, wait || 0)
}
