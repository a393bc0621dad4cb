/**
 * What the clients of one API key know about its limits (SPEC §8). All clients of a key in a process share it, so that
 * they get few rejections, and no ban, at any load.
 */
import { Clock, Deferred, Effect, Random } from "effect"
import type { HttpClientError, HttpClientResponse } from "effect/http"

/** After this time the client checks whether a rejection still holds: an operator may have lifted the ban. */
const maxRejectionTrustMs = 60_000

type Response = HttpClientResponse.HttpClientResponse
type Attempt = Effect.Effect<Response, HttpClientError.HttpClientError>

/**
 * The most recent 429 response. The rejection ends at `endsAtMs`. The client sends nothing before `trustedUntilMs`, and
 * then checks whether the rejection has ended early. Both are Unix times in milliseconds.
 */
interface Rejection {
  readonly response: Response
  readonly endsAtMs: number
  readonly trustedUntilMs: number
}

/**
 * The rate limit from the `X-RateLimit-*` headers of a response (SPEC §8). `limit` and `remaining` count requests;
 * `resetAt` is the end of the window in Unix seconds.
 */
export interface RateLimitState {
  readonly limit: number
  readonly remaining: number
  readonly resetAt: number
}

/**
 * Returns the limits of the API key that a response shows. Returns `undefined` if a header is missing, or if they are
 * the limits of the client's address: the service can send a 401, 408, 431 or 503 before it knows the key.
 */
const limitsOfKey = ({ headers }: Response): RateLimitState | undefined => {
  const [limit = NaN, remaining = NaN, resetAt = NaN] = ["limit", "remaining", "reset"].map((name) =>
    Number(headers[`x-ratelimit-${name}`] ?? NaN)
  )
  const isOfKey = headers["x-ratelimit-scope"] !== "address" && !Number.isNaN(limit + remaining + resetAt)
  return isOfKey ? { limit, remaining, resetAt } : undefined
}

/** The limits of one API key, from the responses to all of its calls. */
export class KnownLimits {
  /** The limits from the most recent response that shows them. */
  latest: RateLimitState | undefined
  #rejection: Rejection | undefined
  #inFlight = 0
  /** The requests that may be in flight: what the most recent response said remains. */
  #remaining = 0
  #slotFreed = Deferred.makeUnsafe<void>()

  /** The rejection with which the service would respond at `now`, a Unix time in milliseconds. */
  trustedRejection(now: number): Rejection | undefined {
    return this.#rejection !== undefined && now < this.#rejection.trustedUntilMs ? this.#rejection : undefined
  }

  /** The end of the most recent rejection, or `now` before the first. */
  rejectionEnd(now: number): number {
    return this.#rejection?.endsAtMs ?? now
  }

  /**
   * Waits for a slot, and sends the request in it: a request starts only while fewer are in flight than remain. Returns
   * the known rejection instead if another call was rejected meanwhile. The wait can be interrupted.
   */
  attempt(sendOnce: Attempt): Attempt {
    const sendOrReject = Effect.flatMap(Clock.currentTimeMillis, (now) => {
      const rejection = this.trustedRejection(now)
      return rejection === undefined
        ? Effect.tapError(sendOnce, () => Effect.sync(() => this.#raise()))
        : Effect.succeed(rejection.response)
    })
    return this.#withSlot(Effect.tap(sendOrReject, (response) => this.#learn(response)))
  }

  #withSlot(attempt: Attempt): Attempt {
    return Effect.uninterruptibleMask((restore) => {
      const acquireSlot: Attempt = Effect.suspend(() => {
        // One request may always be in flight: without a response the remaining quota is unknown.
        if (this.#inFlight > 0 && this.#inFlight >= this.#remaining) {
          return Effect.andThen(restore(Deferred.await(this.#slotFreed)), acquireSlot)
        }
        this.#inFlight++
        return Effect.ensuring(restore(attempt), this.#releaseSlot)
      })
      return acquireSlot
    })
  }

  readonly #releaseSlot = Effect.suspend(() => {
    this.#inFlight--
    Deferred.doneUnsafe(this.#slotFreed, Effect.void)
    this.#slotFreed = Deferred.makeUnsafe<void>()
    // The yield lets queued calls take the slot before the call that released it sends its next request.
    return Effect.yieldNow
  })

  /**
   * Allows twice the requests in flight, after an attempt without a response. Such an attempt leaves the quota unknown,
   * and queued calls must not wait for each other's timeouts in turn.
   */
  #raise(): void {
    this.#remaining = Math.max(this.#remaining, 2 * this.#inFlight)
  }

  #learn(response: Response): Effect.Effect<void> {
    return Effect.gen({ self: this }, function*() {
      const shown = limitsOfKey(response)
      this.latest = shown ?? this.latest
      if (shown !== undefined) this.#remaining = shown.remaining
      // The management port has no limits.
      else if (response.headers["x-ratelimit-limit"] === undefined && response.status !== 503) {
        this.#remaining = Infinity
      }
      const now = yield* Clock.currentTimeMillis
      if (response.status !== 429 || this.trustedRejection(now) !== undefined) return
      // All waiting calls share one jitter, so that no later call overtakes the one that waits longest.
      const waitMs = retryAfterMs(response, now) + (yield* Random.nextBetween(0, 1000))
      this.#rejection = {
        response,
        endsAtMs: now + waitMs,
        trustedUntilMs: now + Math.min(waitMs, maxRejectionTrustMs)
      }
    })
  }
}

/** The wait in milliseconds that `Retry-After` names: it holds seconds or a date (RFC 9110 §10.2.3). */
export const retryAfterMs = ({ headers }: Response, now: number): number => {
  const value = headers["retry-after"] ?? "0"
  const waitMs = /^\d+$/.test(value) ? Number(value) * 1000 : Date.parse(value) - now
  return Math.max(0, waitMs || 0)
}

/** The limits that clients know, by the way in which they send requests, and by service and key. */
const known = new WeakMap<object, Map<string, { readonly limits: KnownLimits; clients: number }>>()

/**
 * Returns the limits that all clients with the same `transport`, service and key share, for as long as one of them is
 * in use. Clients with another transport, such as a test's, know nothing of these.
 */
export const shared = (transport: object, serviceAndKey: string) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const byKey = known.get(transport) ?? new Map<string, { readonly limits: KnownLimits; clients: number }>()
      known.set(transport, byKey)
      const entry = byKey.get(serviceAndKey) ?? { limits: new KnownLimits(), clients: 0 }
      byKey.set(serviceAndKey, entry)
      entry.clients++
      return entry.limits
    }),
    () =>
      Effect.sync(() => {
        const byKey = known.get(transport)
        const entry = byKey?.get(serviceAndKey)
        if (entry !== undefined && --entry.clients === 0) byKey?.delete(serviceAndKey)
      })
  )
