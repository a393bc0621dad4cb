/**
 * The limits of one API key, as the responses to a client's calls show them (SPEC §8). With them a client sends as many
 * requests as the limits allow, and gets few rejections, and no ban, at any load.
 */
import { Clock, Data, DateTime, Duration, Effect, Random, Semaphore } from "effect"
import type { Headers, HttpClientResponse } from "effect/http"
import { retryAfterOf } from "./ClientError.ts"

/** After this time the client checks whether a pause still holds: an operator may have lifted the ban. */
const maxPauseTrustMs = 60_000

/** The rate limit that most restricts an API key, from the `X-RateLimit-*` headers of a response (SPEC §8). */
export interface RateLimitState {
  /** The requests that the window allows. */
  readonly limit: number
  /** The requests that remain in the window. */
  readonly remaining: number
  /** The end of the window. */
  readonly resetAt: DateTime.Utc
}

/**
 * Returns the limits of the API key that a response shows. Returns `undefined` if a header is missing, or if they are
 * the limits of the client's address. The service can send a 401, 408, 431 or 503 before it knows the key.
 */
export const rateLimitOf = (headers: Headers.Headers): RateLimitState | undefined => {
  const [limit = NaN, remaining = NaN, reset = NaN] = ["limit", "remaining", "reset"].map((name) =>
    Number(headers[`x-ratelimit-${name}`] ?? NaN)
  )
  const isOfKey = headers["x-ratelimit-scope"] !== "address" && !Number.isNaN(limit + remaining + reset)
  return isOfKey ? { limit, remaining, resetAt: DateTime.makeUnsafe(reset * 1000) } : undefined
}

/** A time without requests. All waiting calls share its jitter, so that no later call overtakes an earlier one. */
interface Pause {
  /** The end, in epoch milliseconds. */
  readonly endsAt: number
  /** The 429 that demands the pause. `undefined` if a response showed that the window is used up. */
  readonly rejection: HttpClientResponse.HttpClientResponse | undefined
  /** Until this time, in epoch milliseconds, the rejection is the outcome of calls that cannot wait. */
  readonly trustedUntil: number
}

/** An attempt sent nothing, because the call must wait for the end of a pause. */
export class MustWait extends Data.TaggedError("MustWait")<{ readonly waitMs: number }> {}

/** The knowledge of one client about the limits of its key. */
export class RateLimits {
  /** The limits from the most recent response that shows them. */
  latest: RateLimitState | undefined
  #pause: Pause | undefined
  /** The requests that may be in flight: the remaining ones of the latest response, or one while these are unknown. */
  #maxInFlight = 1
  readonly #slots = Semaphore.makeUnsafe(1)

  /** The end of the current pause, or `now` without one, in epoch milliseconds. */
  pauseEnd(now: number): number {
    return Math.max(this.#pause?.endsAt ?? now, now)
  }

  /**
   * Waits for a slot and sends the request. During a pause it sends nothing if the pause ends before `deadline`, or if
   * the service would reject the request as it rejected the last one.
   */
  attempt<E>(
    send: Effect.Effect<HttpClientResponse.HttpClientResponse, E>,
    deadline: number
  ): Effect.Effect<HttpClientResponse.HttpClientResponse, E | MustWait> {
    const sendUnlessPaused = Effect.flatMap(
      Clock.currentTimeMillis,
      (now): Effect.Effect<HttpClientResponse.HttpClientResponse, E | MustWait> => {
        const pause = this.#pause
        if (pause !== undefined && now < pause.endsAt) {
          if (pause.endsAt <= deadline) return Effect.fail(new MustWait({ waitMs: pause.endsAt - now }))
          if (pause.rejection !== undefined && now < pause.trustedUntil) return Effect.succeed(pause.rejection)
        }
        return send.pipe(
          // Calls must not wait for each other's timeouts in turn.
          Effect.tapError(() => this.#resize(Math.min(this.#maxInFlight * 2, this.#allowedAt(now)))),
          Effect.tap((response) => this.#learn(response, pause))
        )
      }
    )
    return this.#slots.withPermit(sendUnlessPaused)
  }

  /** The requests that the latest response shows to be allowed at `now`. */
  #allowedAt(now: number): number {
    if (this.latest === undefined) return Infinity
    const { limit, remaining, resetAt } = this.latest
    return now < DateTime.toEpochMillis(resetAt) ? remaining : limit
  }

  #resize(maxInFlight: number): Effect.Effect<void> {
    this.#maxInFlight = Math.max(1, maxInFlight)
    return this.#slots.resize(this.#maxInFlight)
  }

  /** Learns from the response to a request that was sent during `pause`, to check it, or without one. */
  #learn(response: HttpClientResponse.HttpClientResponse, pause: Pause | undefined): Effect.Effect<void> {
    return Effect.gen({ self: this }, function*() {
      const { headers, status } = response
      const now = yield* Clock.currentTimeMillis
      const jitterMs = yield* Random.nextBetween(0, 1000)
      const shown = rateLimitOf(headers)
      if (shown !== undefined) {
        this.latest = shown
        yield* this.#resize(shown.remaining)
      } else if (headers["x-ratelimit-limit"] === undefined && status < 400) {
        // The management port has no limits.
        yield* this.#resize(Infinity)
      }
      if (status < 400 && this.#pause === pause) this.#pause = undefined
      if (status === 429 && now >= (this.#pause?.trustedUntil ?? now)) {
        const endsAt = now + jitterMs + Duration.toMillis(retryAfterOf(headers, now) ?? 0)
        this.#pause = { endsAt, rejection: response, trustedUntil: Math.min(endsAt, now + maxPauseTrustMs) }
      } else if (shown?.remaining === 0 && this.pauseEnd(now) === now) {
        const endsAt = now + jitterMs + resetMs(headers, shown, now)
        this.#pause = { endsAt, rejection: undefined, trustedUntil: now }
      }
    })
  }
}

/** The milliseconds until the used up window ends. `RateLimit` does not depend on this machine's clock. */
const resetMs = (headers: Headers.Headers, { resetAt }: RateLimitState, now: number): number => {
  const seconds = [...(headers["ratelimit"] ?? "").matchAll(/;r=0;t=(\d+)/g)].map(([, t]) => Number(t))
  return seconds.length > 0 ? Math.max(...seconds) * 1000 : Math.max(0, DateTime.toEpochMillis(resetAt) - now)
}
