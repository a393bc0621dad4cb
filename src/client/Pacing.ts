/**
 * Paces requests by the rate-limit headers of responses (SPEC §8), so that loops do not get the API key banned. Calls
 * that wait are served first come, first served.
 */
import { Clock, DateTime, Deferred, Duration, Effect, Exit, Option, Random, Ref, Schema, SchemaGetter } from "effect"
import type { Headers, HttpClientResponse } from "effect/http"
import { retryAfterOf } from "./ClientError.ts"
import type { ClientMetrics } from "./ClientMetrics.ts"

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
  /** The requests that remain of the limit. */
  remaining: Schema.FiniteFromString,
  /** When the window ends, and all requests of the limit remain again. */
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

/** A call in line. `turn` ends its wait: it may send its request, or fails with an earlier response. */
interface Waiter {
  readonly deadline: number
  readonly turn: Deferred.Deferred<"send" | Response>
}

interface PacingState {
  readonly latest: Option.Option<RateLimitState>
  readonly pause: Pause | undefined
  /** Resolved when `pause` changes, so that waiting calls sleep until its new end. */
  readonly pauseChanged: Deferred.Deferred<void>
  /**
   * Starts at 1. A response with rate-limit headers sets this limit to `remaining`, but at least 1. A success without
   * those headers sets this limit to Infinity.
   */
  readonly maxInFlight: number
  /** In order of arrival. */
  readonly waiting: ReadonlyArray<Waiter>
  readonly inFlight: ReadonlySet<Waiter>
}

type Turns = ReadonlyArray<readonly [Waiter, "send" | Response]>

/**
 * Gives turns to the first calls in line while fewer than `maxInFlight` are in flight. During a pause that ends by a
 * call's deadline, the call waits. During a longer pause, it gets `rejection` until `probeAt`. Without a `rejection`, or
 * from `probeAt` on, it may send its request despite the pause.
 */
const takeTurns = (state: PacingState, now: number): readonly [Turns, PacingState] => {
  const pause = state.pause !== undefined && now < state.pause.endsAt ? state.pause : undefined
  const [turns, waiting]: [Array<Turns[number]>, Array<Waiter>] = [[], []]
  const inFlight = new Set(state.inFlight)
  for (const waiter of state.waiting) {
    const canWait = pause !== undefined && pause.endsAt <= waiter.deadline
    if (!canWait && pause?.rejection !== undefined && now < pause.probeAt) turns.push([waiter, pause.rejection])
    else if (canWait || inFlight.size >= state.maxInFlight) waiting.push(waiter)
    else {
      inFlight.add(waiter)
      turns.push([waiter, "send"])
    }
  }
  return [turns, { ...state, waiting, inFlight }]
}

const withWaiter = (before: PacingState, waiter: Waiter): PacingState => ({
  ...before,
  waiting: [...before.waiting, waiter]
})

const withoutEndedPause = (before: PacingState, now: number): PacingState =>
  before.pause !== undefined && now >= before.pause.endsAt ? { ...before, pause: undefined } : before

const withoutWaiter = (before: PacingState, waiter: Waiter): PacingState => ({
  ...before,
  waiting: before.waiting.filter((other) => other !== waiter),
  inFlight: before.inFlight.difference(new Set([waiter]))
})

export const makePacing = Effect.fnUntraced(function*(metrics: ClientMetrics) {
  const pacing = yield* Ref.make<PacingState>({
    latest: Option.none(),
    pause: undefined,
    pauseChanged: yield* Deferred.make<void>(),
    maxInFlight: 1,
    waiting: [],
    inFlight: new Set()
  })

  const update = Effect.fnUntraced(function*(change: (before: PacingState, now: number) => PacingState) {
    const now = yield* Clock.currentTimeMillis
    const pauseChanged = yield* Deferred.make<void>()
    const { former, turns } = yield* Ref.modify(pacing, (before) => {
      const changed = change(before, now)
      const [given, after] = takeTurns(changed, now)
      return changed.pause === before.pause
        ? [{ turns: given, former: undefined }, after]
        : [{ turns: given, former: before.pauseChanged }, { ...after, pauseChanged }]
    })
    for (const [{ turn }, outcome] of turns) yield* Deferred.succeed(turn, outcome)
    if (former !== undefined) yield* Deferred.succeed(former, undefined)
  })

  /** Raises `maxInFlight` by 1 if a response takes over a second, so that one slow request does not block others. */
  const raiseLimit = Effect.andThen(Effect.delay(update(withRaisedLimit), "1 second"), Effect.never)

  /** Each waiting call sleeps until the end of the pause. The first to wake ends the pause for all. */
  const passPauses = Effect.gen(function*() {
    for (;;) {
      const { pause, pauseChanged } = yield* Ref.get(pacing)
      const changed = Deferred.await(pauseChanged)
      if (pause === undefined) yield* changed
      else {
        const waitMs = Math.max(0, pause.endsAt - (yield* Clock.currentTimeMillis))
        yield* metrics.waits("limit", waitMs, "the limit is used up")
        yield* Effect.raceFirst(changed, Effect.sleep(Math.ceil(waitMs)))
        if ((yield* Ref.get(pacing)).pause === pause) yield* update(withoutEndedPause)
      }
    }
  })

  return {
    latest: Effect.map(Ref.get(pacing), ({ latest }) => latest),

    pauseEnd: (now: number) => Effect.map(Ref.get(pacing), ({ pause }) => Math.max(pause?.endsAt ?? now, now)),

    /** Sends the request in its turn, or returns the response that began a pause which ends after `deadline`. */
    attempt: <E, R>(send: Effect.Effect<Response, E, R>, deadline: number) =>
      Effect.gen(function*() {
        const waiter: Waiter = { deadline, turn: yield* Deferred.make<"send" | Response>() }
        const sendInTurn = Effect.gen(function*() {
          yield* update((before) => withWaiter(before, waiter))
          const turn = yield* Deferred.isDoneUnsafe(waiter.turn)
            ? Deferred.await(waiter.turn)
            : Effect.raceFirst(Deferred.await(waiter.turn), passPauses)
          if (turn !== "send") return turn
          const sentAt = yield* Clock.currentTimeMillis
          const response = yield* Effect.raceFirst(send, raiseLimit)
          const retryAfterMs = Duration.toMillis((yield* retryAfterOf(response.headers)) ?? 0)
          const jitterMs = yield* Random.nextBetween(0, 1000)
          yield* update((before, now) => withResponse(before, response, { sentAt, now, jitterMs, retryAfterMs }))
          const { latest } = yield* Ref.get(pacing)
          if (Option.isSome(latest)) yield* metrics.limited(latest.value)
          return response
        })
        const leave = update((before) => withoutWaiter(before, waiter))
        // If many calls are interrupted at once, let the interruption reach all of them before the next gets its turn.
        return yield* Effect.onExit(
          sendInTurn,
          (exit) => Exit.hasInterrupts(exit) ? Effect.andThen(Effect.yieldNow, leave) : leave
        )
      })
  }
})
export type Pacing = Effect.Success<ReturnType<typeof makePacing>>

const withRaisedLimit = (before: PacingState, now: number): PacingState => {
  const allowed = Option.match(before.latest, {
    onNone: () => Infinity,
    onSome: ({ limit, remaining, resetAt }) => now < DateTime.toEpochMillis(resetAt) ? remaining : limit
  })
  return { ...before, maxInFlight: Math.max(1, Math.min(before.maxInFlight + 1, allowed)) }
}

const withResponse = (
  state: PacingState,
  response: Response,
  { jitterMs, now, retryAfterMs, sentAt }: Readonly<Record<"sentAt" | "now" | "jitterMs" | "retryAfterMs", number>>
): PacingState => {
  const { latest, maxInFlight, pause: before } = state
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
    ...state,
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
