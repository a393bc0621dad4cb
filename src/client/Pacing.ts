/**
 * Paces the requests of a client by the rate-limit headers of responses (SPEC §8), so that a program that calls in a
 * loop does not get its API key banned. Waiting calls are sent in order of arrival. But a call whose deadline comes
 * before the end of a pause does not stay in line behind calls that wait for that end. It gets the 429 that began the
 * pause, or is sent.
 */
import { Clock, DateTime, Deferred, Duration, Effect, Exit, Option, Random, Ref } from "effect"
import type { HttpClientResponse } from "effect/http"
import { millisUntilReset, rateLimitOf, type RateLimitState } from "../api/RateLimitState.ts"
import { retryAfterOf } from "./ClientError.ts"
import type { ClientMetrics } from "./ClientMetrics.ts"

type Response = HttpClientResponse.HttpClientResponse

/**
 * During the first `maxProbeDelayMs` of a pause that a 429 began, a call whose `deadline` comes before the end of the
 * pause gets that 429 at once. Later, such a call is sent: if the 429 was of a ban, an operator may have lifted it.
 */
const maxProbeDelayMs = 60_000

/**
 * A time in which the client sends no request that can wait: after a 429 (`rejection`), or while a limit has 0
 * remaining. From `probeAt` on, requests that cannot wait are sent. Times are in epoch milliseconds.
 */
interface Pause {
  readonly startedAt: number
  readonly endsAt: number
  readonly rejection: Response | undefined
  readonly probeAt: number
}

/**
 * A call in line or in flight. `released` ends its wait in line: with "send", or with an earlier 429 as its response.
 * `deadline` is in epoch milliseconds.
 */
interface Waiter {
  readonly deadline: number
  readonly released: Deferred.Deferred<"send" | Response>
}

interface PacingState {
  readonly latest: Option.Option<RateLimitState>
  readonly pause: Pause | undefined
  /** Resolved when `pause` changes. */
  readonly pauseChanged: Deferred.Deferred<void>
  /**
   * The maximum number of requests in flight. A response with the API key's rate-limit headers sets it to `remaining`,
   * but at least 1. A success without rate-limit headers sets it to Infinity. A slow response raises it by 1
   * (`raiseLimit`).
   */
  readonly maxInFlight: number
  readonly inFlight: ReadonlySet<Waiter>
  readonly waiting: ReadonlyArray<Waiter>
}

export const makePacing = Effect.fnUntraced(function*(metrics: ClientMetrics) {
  const pacing = yield* Ref.make<PacingState>({
    latest: Option.none(),
    pause: undefined,
    pauseChanged: yield* Deferred.make<void>(),
    maxInFlight: 1,
    inFlight: new Set(),
    waiting: []
  })

  // Uninterruptible: an interruption between the change and `Deferred.succeed` would leave a call in line forever.
  const update = Effect.fnUntraced(function*(change: (before: PacingState, now: number) => PacingState) {
    const now = yield* Clock.currentTimeMillis
    const pauseChanged = yield* Deferred.make<void>()
    const [releases, former] = yield* Ref.modify(pacing, (before) => {
      const changed = change(before, now)
      const isSame = changed.pause === before.pause
      const [due, after] = releaseFirst(isSame ? changed : { ...changed, pauseChanged }, now)
      return [[due, isSame ? undefined : before.pauseChanged] as const, after]
    })
    for (const [{ released }, outcome] of releases) yield* Deferred.succeed(released, outcome)
    if (former !== undefined) yield* Deferred.succeed(former, undefined)
  }, Effect.uninterruptible)

  /**
   * Raises `maxInFlight` by 1 if a response takes more than a second, but at most to the remaining requests or, after
   * their reset, to the limit. So a slow request does not block calls that the limit allows.
   */
  const raiseLimit = Effect.andThen(Effect.delay(update(withRaisedLimit), "1 second"), Effect.never)

  const sleepUntilEnd = Effect.fnUntraced(function*(pause: Pause) {
    const waitMs = pause.endsAt - (yield* Clock.currentTimeMillis)
    if (waitMs > 0) yield* metrics.wait("limit", waitMs, "the limit is used up")
    if ((yield* Ref.get(pacing)).pause === pause) yield* update((before) => ({ ...before, pause: undefined }))
  })

  /**
   * Sleeps until the pause ends or changes. Each waiting call runs this, and the first to wake ends the pause for all.
   */
  const endPauses = Effect.flatMap(
    Ref.get(pacing),
    ({ pause, pauseChanged }) =>
      Effect.raceFirst(Deferred.await(pauseChanged), pause === undefined ? Effect.never : sleepUntilEnd(pause))
  )

  return {
    latest: Effect.map(Ref.get(pacing), ({ latest }) => latest),

    /**
     * Sends the request when `releaseFirst` releases its call from the line. But if a 429 began a pause that ends after
     * `deadline` (epoch ms), returns that 429 at once, until the pause's `probeAt`.
     */
    attempt: Effect.fnUntraced(function*<E, R>(send: Effect.Effect<Response, E, R>, deadline: number) {
      const waiter: Waiter = { deadline, released: yield* Deferred.make<"send" | Response>() }
      const sendInLine = Effect.gen(function*() {
        yield* update((before) => ({ ...before, waiting: [...before.waiting, waiter] }))
        const outcome = yield* Effect.raceFirst(Deferred.await(waiter.released), Effect.forever(endPauses))
        if (outcome !== "send") return outcome
        const sentAt = yield* Clock.currentTimeMillis
        const response = yield* Effect.raceFirst(send, raiseLimit)
        const retryAfterMs = Duration.toMillis((yield* retryAfterOf(response.headers)) ?? 0)
        const jitterMs = yield* Random.nextBetween(0, 1000)
        yield* update((before, now) => withResponse(before, response, { sentAt, now, jitterMs, retryAfterMs }))
        yield* metrics.limited(rateLimitOf(response.headers))
        return response
      })
      const leave = update((before) => ({
        ...before,
        inFlight: before.inFlight.difference(new Set([waiter])),
        waiting: before.waiting.filter((other) => other !== waiter)
      }))
      // Many calls can be interrupted at once. Let each notice it first: a call that leaves the line sends the next
      // one.
      return yield* Effect.onExit(
        sendInLine,
        (exit) => Exit.hasInterrupts(exit) ? Effect.andThen(Effect.yieldNow, leave) : leave
      )
    })
  }
})
export type Pacing = Effect.Success<ReturnType<typeof makePacing>>

/**
 * Releases the first calls in line while fewer than `maxInFlight` are in flight. If a pause ends by a call's deadline,
 * the call waits. If the pause ends later, the call gets the pause's `rejection` at once, until `probeAt`. From
 * `probeAt` on, or in a pause without a `rejection`, such a call is sent as if there were no pause.
 */
const releaseFirst = (state: PacingState, now: number) => {
  const pause = state.pause !== undefined && now < state.pause.endsAt ? state.pause : undefined
  const releases: Array<readonly [Waiter, "send" | Response]> = []
  const waiting: Array<Waiter> = []
  const inFlight = new Set(state.inFlight)
  for (const waiter of state.waiting) {
    const canWait = pause !== undefined && pause.endsAt <= waiter.deadline
    if (!canWait && pause?.rejection !== undefined && now < pause.probeAt) releases.push([waiter, pause.rejection])
    else if (canWait || inFlight.size >= state.maxInFlight) waiting.push(waiter)
    else {
      inFlight.add(waiter)
      releases.push([waiter, "send"])
    }
  }
  return [releases, { ...state, waiting, inFlight }] as const
}

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
    // The jitter keeps the clients of a key from sending at the same instant when the limit resets.
    const endsAt = now + jitterMs + ms
    const probeAt = rejection === undefined ? now : Math.min(endsAt, now + maxProbeDelayMs)
    return { startedAt: now, endsAt, rejection, probeAt }
  }
  const isUsedUp = Option.isSome(shown) && shown.value.remaining === 0
  return {
    ...state,
    latest: Option.orElse(shown, () => latest),
    maxInFlight: Option.match(shown, {
      // After a success without rate-limit headers, as from the management port, do not limit the requests in flight.
      onNone: () => headers["x-ratelimit-limit"] === undefined && status < 400 ? Infinity : maxInFlight,
      onSome: ({ remaining }) => Math.max(1, remaining)
    }),
    pause: status === 429 && now >= (pause?.probeAt ?? now)
      ? pauseFor(retryAfterMs, response)
      : isUsedUp && now >= (pause?.endsAt ?? now)
      ? pauseFor(millisUntilReset(headers, shown.value, now))
      : pause
  }
}
