/**
 * The limits of one API key, as the responses to a client's calls show them (SPEC §8). With them a client sends as many
 * requests as the limits allow, and gets few rejections, and no ban, at any load.
 */
import { Clock, Data, DateTime, Duration, Effect, Option, Random, Ref, Schema, SchemaGetter, Semaphore } from "effect"
import type { Headers, HttpClientResponse } from "effect/http"
import { retryAfterOf } from "./ClientError.ts"

type Response = HttpClientResponse.HttpClientResponse

/** After this time the client checks whether a pause still holds: an operator may have lifted the ban. */
const maxPauseTrustMs = 60_000

/** An instant in the seconds of a header. */
const EpochSeconds = Schema.FiniteFromString.pipe(Schema.decodeTo(Schema.DateTimeUtcFromMillis, {
  decode: SchemaGetter.transform((seconds) => seconds * 1000),
  encode: SchemaGetter.transform((millis) => millis / 1000)
}))

/** The rate limit that most restricts an API key, from the `X-RateLimit-*` headers of a response (SPEC §8). */
export const RateLimitState = Schema.Struct({
  /** The requests that the window allows. */
  limit: Schema.FiniteFromString,
  /** The requests that remain in the window. */
  remaining: Schema.FiniteFromString,
  /** The end of the window. */
  resetAt: EpochSeconds
}).pipe(
  Schema.encodeKeys({ limit: "x-ratelimit-limit", remaining: "x-ratelimit-remaining", resetAt: "x-ratelimit-reset" })
)
export interface RateLimitState extends Schema.Schema.Type<typeof RateLimitState> {}

const readHeaders = Schema.decodeUnknownOption(RateLimitState)

/** Returns the limits of the API key that a response shows. A 401, 408, 431 or 503 can show those of the address. */
export const rateLimitOf = (headers: Headers.Headers): Option.Option<RateLimitState> =>
  headers["x-ratelimit-scope"] === "address" ? Option.none() : readHeaders(headers)

/** A time without requests. All waiting calls share its jitter, so that no later call overtakes an earlier one. */
interface Pause {
  readonly startedAt: number
  readonly endsAt: number
  /** The 429 that demands the pause. `undefined` if a response showed that the window is used up. */
  readonly rejection: Response | undefined
  /** Until this time the rejection is the outcome of calls that cannot wait. */
  readonly trustedUntil: number
}

/** The knowledge of one client about the limits of its key. All times are in epoch milliseconds. */
interface Knowledge {
  /** The limits from the most recent response that shows them. */
  readonly latest: Option.Option<RateLimitState>
  readonly pause: Pause | undefined
  /** The requests that may be in flight: the remaining ones of the latest response, or one while these are unknown. */
  readonly maxInFlight: number
}

/** An attempt sent nothing, because the call must wait for the end of a pause. */
export class MustWait extends Data.TaggedError("MustWait")<{ readonly waitMs: number }> {}

export const makeRateLimits = Effect.gen(function*() {
  const known = yield* Ref.make<Knowledge>({ latest: Option.none(), pause: undefined, maxInFlight: 1 })
  const slots = yield* Semaphore.make(1)

  const update = (learn: (before: Knowledge) => Knowledge) =>
    Effect.flatMap(Ref.updateAndGet(known, learn), ({ maxInFlight }) => slots.resize(maxInFlight))

  /** Allows one more request in flight: calls must not wait for each other's timeouts in turn. */
  const addSlot = Effect.flatMap(Clock.currentTimeMillis, (now) => update((before) => withSlot(before, now)))

  return {
    latest: Effect.map(Ref.get(known), ({ latest }) => latest),

    /** The end of the current pause, or `now` without one. */
    pauseEnd: (now: number) => Effect.map(Ref.get(known), ({ pause }) => Math.max(pause?.endsAt ?? now, now)),

    /**
     * Waits for a slot and sends the request. During a pause it sends nothing if the pause ends before `deadline`, or
     * if the service would reject the request as it rejected the last one.
     */
    attempt: <E>(send: Effect.Effect<Response, E>, deadline: number) =>
      Effect.gen(function*() {
        const { pause } = yield* Ref.get(known)
        const now = yield* Clock.currentTimeMillis
        if (pause !== undefined && now < pause.endsAt) {
          if (pause.endsAt <= deadline) return yield* new MustWait({ waitMs: pause.endsAt - now })
          if (pause.rejection !== undefined && now < pause.trustedUntil) return pause.rejection
        }
        const response = yield* Effect.tapError(send, () => addSlot)
        const retryAfterMs = Duration.toMillis((yield* retryAfterOf(response.headers)) ?? 0)
        const [receivedAt, jitterMs] = [yield* Clock.currentTimeMillis, yield* Random.nextBetween(0, 1000)]
        const times = { sentAt: now, now: receivedAt, jitterMs, retryAfterMs }
        yield* update((before) => withResponse(before, response, times))
        return response
      }).pipe(slots.withPermit, Effect.onInterrupt(() => addSlot))
  }
})
export type RateLimits = Effect.Success<typeof makeRateLimits>

const withSlot = (before: Knowledge, now: number): Knowledge => {
  const allowed = Option.match(before.latest, {
    onNone: () => Infinity,
    onSome: ({ limit, remaining, resetAt }) => now < DateTime.toEpochMillis(resetAt) ? remaining : limit
  })
  return { ...before, maxInFlight: Math.max(1, Math.min(before.maxInFlight + 1, allowed)) }
}

const withResponse = (
  { latest, maxInFlight, pause: before }: Knowledge,
  response: Response,
  { jitterMs, now, retryAfterMs, sentAt }: Readonly<Record<"sentAt" | "now" | "jitterMs" | "retryAfterMs", number>>
): Knowledge => {
  const { headers, status } = response
  const shown = rateLimitOf(headers)
  // A request that was sent during a pause and succeeded shows that the pause is over.
  const pause = status < 400 && before !== undefined && before.startedAt < sentAt ? undefined : before
  const pauseFor = (ms: number, rejection?: Response): Pause => {
    const endsAt = now + jitterMs + ms
    const trustedUntil = rejection === undefined ? now : Math.min(endsAt, now + maxPauseTrustMs)
    return { startedAt: now, endsAt, rejection, trustedUntil }
  }
  const isUsedUp = Option.isSome(shown) && shown.value.remaining === 0
  return {
    latest: Option.orElse(shown, () => latest),
    maxInFlight: Option.match(shown, {
      // The management port has no limits.
      onNone: () => headers["x-ratelimit-limit"] === undefined && status < 400 ? Infinity : maxInFlight,
      onSome: ({ remaining }) => Math.max(1, remaining)
    }),
    pause: status === 429 && now >= (pause?.trustedUntil ?? now)
      ? pauseFor(retryAfterMs, response)
      : isUsedUp && now >= (pause?.endsAt ?? now)
      ? pauseFor(resetMs(headers, shown.value, now))
      : pause
  }
}

/** The milliseconds until the used up window ends. `RateLimit` does not depend on this machine's clock. */
const resetMs = (headers: Headers.Headers, { resetAt }: RateLimitState, now: number): number => {
  const seconds = [...(headers["ratelimit"] ?? "").matchAll(/;r=0;t=(\d+)/g)].map(([, t]) => Number(t))
  return seconds.length > 0 ? Math.max(...seconds) * 1000 : Math.max(0, DateTime.toEpochMillis(resetAt) - now)
}
