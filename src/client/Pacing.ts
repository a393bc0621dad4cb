/** Paces requests by the rate-limit headers of responses (SPEC §8), so that loops do not get the API key banned. */
import { Clock, Data, DateTime, Duration, Effect, Option, Random, Ref, Schema, SchemaGetter, Semaphore } from "effect"
import type { Headers, HttpClientResponse } from "effect/http"
import { retryAfterOf } from "./ClientError.ts"

type Response = HttpClientResponse.HttpClientResponse

/**
 * For at most this time after a 429, a call that cannot wait fails at once. Later calls are sent, because an operator
 * may have lifted the ban.
 */
const maxProbeDelayMs = 60_000

const EpochSeconds = Schema.FiniteFromString.pipe(Schema.decodeTo(Schema.DateTimeUtcFromMillis, {
  decode: SchemaGetter.transform((seconds) => seconds * 1000),
  encode: SchemaGetter.transform((millis) => millis / 1000)
}))

/** The API key's most restrictive limit, from the `X-RateLimit-*` headers of a response (SPEC §8). */
export const RateLimitState = Schema.Struct({
  /** Requests per window. */
  limit: Schema.FiniteFromString,
  remaining: Schema.FiniteFromString,
  resetAt: EpochSeconds
}).pipe(
  Schema.encodeKeys({ limit: "x-ratelimit-limit", remaining: "x-ratelimit-remaining", resetAt: "x-ratelimit-reset" })
)
export interface RateLimitState extends Schema.Schema.Type<typeof RateLimitState> {}

const readHeaders = Schema.decodeUnknownOption(RateLimitState)

export const rateLimitOf = (headers: Headers.Headers): Option.Option<RateLimitState> =>
  headers["x-ratelimit-scope"] === "address" ? Option.none() : readHeaders(headers)

/** The client pauses after a 429, stored as `rejection`, or when a limit has 0 remaining. Times are in epoch ms. */
interface Pause {
  readonly startedAt: number
  readonly endsAt: number
  readonly rejection: Response | undefined
  readonly probeAt: number
}

interface PacingState {
  readonly latest: Option.Option<RateLimitState>
  readonly pause: Pause | undefined
  /**
   * Starts at 1. A response with rate-limit headers sets this limit to `remaining`, but at least 1. A success without
   * those headers sets this limit to Infinity.
   */
  readonly maxInFlight: number
}

export class MustWait extends Data.TaggedError("MustWait")<{ readonly waitMs: number }> {}

export const makePacing = Effect.gen(function*() {
  const pacing = yield* Ref.make<PacingState>({ latest: Option.none(), pause: undefined, maxInFlight: 1 })
  const slots = yield* Semaphore.make(1)

  const update = (change: (before: PacingState) => PacingState) =>
    Effect.flatMap(Ref.updateAndGet(pacing, change), ({ maxInFlight }) => slots.resize(maxInFlight))

  /** Raises `maxInFlight` by 1 if a response takes over a second, so that one slow request does not block others. */
  const raiseLimit = Effect.flatMap(Clock.currentTimeMillis, (now) => update((before) => withRaisedLimit(before, now)))
    .pipe(Effect.delay("1 second"), Effect.andThen(Effect.never))

  return {
    latest: Effect.map(Ref.get(pacing), ({ latest }) => latest),

    pauseEnd: (now: number) => Effect.map(Ref.get(pacing), ({ pause }) => Math.max(pause?.endsAt ?? now, now)),

    /**
     * Sends the request when fewer than `maxInFlight` are in flight. During a pause that ends by `deadline`, fails with
     * `MustWait`. During a longer pause, returns `rejection` until `probeAt`. Without a `rejection`, or from `probeAt`
     * on, sends the request despite the pause.
     */
    attempt: <E>(send: Effect.Effect<Response, E>, deadline: number) =>
      Effect.gen(function*() {
        const { pause } = yield* Ref.get(pacing)
        const now = yield* Clock.currentTimeMillis
        if (pause !== undefined && now < pause.endsAt) {
          if (pause.endsAt <= deadline) return yield* new MustWait({ waitMs: pause.endsAt - now })
          if (pause.rejection !== undefined && now < pause.probeAt) return pause.rejection
        }
        const response = yield* Effect.raceFirst(send, raiseLimit)
        const retryAfterMs = Duration.toMillis((yield* retryAfterOf(response.headers)) ?? 0)
        const [receivedAt, jitterMs] = [yield* Clock.currentTimeMillis, yield* Random.nextBetween(0, 1000)]
        const times = { sentAt: now, now: receivedAt, jitterMs, retryAfterMs }
        yield* update((before) => withResponse(before, response, times))
        return response
      }).pipe(slots.withPermit)
  }
})
export type Pacing = Effect.Success<typeof makePacing>

const withRaisedLimit = (before: PacingState, now: number): PacingState => {
  const allowed = Option.match(before.latest, {
    onNone: () => Infinity,
    onSome: ({ limit, remaining, resetAt }) => now < DateTime.toEpochMillis(resetAt) ? remaining : limit
  })
  return { ...before, maxInFlight: Math.max(1, Math.min(before.maxInFlight + 1, allowed)) }
}

const withResponse = (
  { latest, maxInFlight, pause: before }: PacingState,
  response: Response,
  { jitterMs, now, retryAfterMs, sentAt }: Readonly<Record<"sentAt" | "now" | "jitterMs" | "retryAfterMs", number>>
): PacingState => {
  const { headers, status } = response
  const shown = rateLimitOf(headers)
  // If a request sent after the pause began has succeeded, end the pause: an operator may have lifted the ban.
  const pause = status < 400 && before !== undefined && before.startedAt < sentAt ? undefined : before
  const pauseFor = (ms: number, rejection?: Response): Pause => {
    // Delay all calls by the same jitter, so that they keep their order.
    const endsAt = now + jitterMs + ms
    const probeAt = rejection === undefined ? now : Math.min(endsAt, now + maxProbeDelayMs)
    return { startedAt: now, endsAt, rejection, probeAt }
  }
  const isUsedUp = Option.isSome(shown) && shown.value.remaining === 0
  return {
    latest: Option.orElse(shown, () => latest),
    maxInFlight: Option.match(shown, {
      // Without rate-limit headers, as from the management port, do not limit the requests in flight.
      onNone: () => headers["x-ratelimit-limit"] === undefined && status < 400 ? Infinity : maxInFlight,
      onSome: ({ remaining }) => Math.max(1, remaining)
    }),
    pause: status === 429 && now >= (pause?.probeAt ?? now)
      ? pauseFor(retryAfterMs, response)
      : isUsedUp && now >= (pause?.endsAt ?? now)
      ? pauseFor(resetMs(headers, shown.value, now))
      : pause
  }
}

/** Prefers the seconds in `RateLimit` to the time in `X-RateLimit-Reset`, because this machine's clock may be wrong. */
const resetMs = (headers: Headers.Headers, { resetAt }: RateLimitState, now: number): number => {
  const seconds = [...(headers["ratelimit"] ?? "").matchAll(/;r=0;t=(\d+)/g)].map(([, t]) => Number(t))
  return seconds.length > 0 ? Math.max(...seconds) * 1000 : Math.max(0, DateTime.toEpochMillis(resetAt) - now)
}
