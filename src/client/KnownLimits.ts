/**
 * The knowledge of the clients of one API key about its limits (SPEC §8). All clients of a key in a process share it,
 * so that they get few rejections, and no ban, at any load.
 */
import { Clock, Deferred, Effect, Random } from "effect"
import type { HttpClientError, HttpClientResponse } from "effect/http"

/** After this time the client checks whether a pause still holds: an operator may have lifted the ban. */
const maxPauseTrustMs = 60_000

type Response = HttpClientResponse.HttpClientResponse
type Attempt = Effect.Effect<Response, HttpClientError.HttpClientError>

/**
 * A time without requests, which ends at `endsAtMs`. The client sends nothing before `trustedUntilMs`, and then checks
 * whether it has ended early. Both are Unix times in milliseconds.
 */
interface Pause {
  readonly endsAtMs: number
  readonly trustedUntilMs: number
}

/** The most recent 429 response, and the pause that it demands. */
interface Rejection extends Pause {
  readonly response: Response
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
 * the limits of the client's address. The service can send a 401, 408, 431 or 503 before it knows the key.
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
  /** The rest of a window that a response showed as used up. */
  #usedUp: Pause | undefined
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

  /** The milliseconds until a window ends that is used up. 0 if the service may allow a request. */
  usedUpMs(now: number): number {
    return this.#usedUp !== undefined && now < this.#usedUp.trustedUntilMs ? this.#usedUp.endsAtMs - now : 0
  }

  /**
   * Waits for a slot, and sends the request in it: a request starts only while fewer are in flight than remain. Returns
   * the known rejection instead if another call was rejected meanwhile. Returns `undefined` if the limit was used up
   * meanwhile and the call can wait for `maxWaitMs`. The wait for a slot can be interrupted.
   */
  attempt(sendOnce: Attempt, maxWaitMs: number): Effect.Effect<Response | undefined, HttpClientError.HttpClientError> {
    const sendOrReject = Effect.flatMap(Clock.currentTimeMillis, (now) => {
      const rejection = this.trustedRejection(now)
      if (rejection !== undefined) return Effect.succeed(rejection.response)
      const waitMs = this.usedUpMs(now)
      if (waitMs > 0 && waitMs <= maxWaitMs) return Effect.undefined
      return sendOnce.pipe(
        Effect.tapError(() => Effect.sync(() => this.#raise())),
        Effect.tap((response) => this.#learn(response))
      )
    })
    return this.#withSlot(sendOrReject)
  }

  #withSlot<A, E>(attempt: Effect.Effect<A, E>): Effect.Effect<A, E> {
    return Effect.uninterruptibleMask((restore) => {
      const acquireSlot: Effect.Effect<A, E> = Effect.suspend(() => {
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
      if (shown?.remaining === 0 && this.usedUpMs(now) === 0) {
        this.#usedUp = yield* makePause(resetMs(response, shown, now), now)
      }
      if (response.status === 429 && this.trustedRejection(now) === undefined) {
        this.#rejection = { response, ...yield* makePause(retryAfterMs(response, now), now) }
      }
    })
  }
}

/** Makes a pause. All waiting calls share its jitter, so that no later call overtakes the one that waits longest. */
const makePause = (ms: number, now: number): Effect.Effect<Pause> =>
  Effect.map(Random.nextBetween(0, 1000), (jitter) => ({
    endsAtMs: now + ms + jitter,
    trustedUntilMs: now + Math.min(ms + jitter, maxPauseTrustMs)
  }))

/**
 * The milliseconds until the window that a response shows as used up ends. The `RateLimit` field counts from the
 * response on, so it does not depend on this machine's clock.
 */
const resetMs = ({ headers }: Response, { resetAt }: RateLimitState, now: number): number => {
  const seconds = [...(headers["ratelimit"] ?? "").matchAll(/;r=0;t=(\d+)/g)].map(([, t]) => Number(t))
  return seconds.length > 0 ? Math.max(...seconds) * 1000 : Math.max(0, resetAt * 1000 - now)
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
