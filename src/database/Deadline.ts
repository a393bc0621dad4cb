/**
 * Bounds the time of effects that use the database.
 *
 * Laws, whatever the effect does and whenever it is interrupted:
 * 1. A call ends `timeout` after its start at the latest or, if the process is paused during the last 100 ms of that
 *    time, up to 100 ms after the pause. A call without a result fails with `late`. It does not wait for the
 *    interruption of its effect, because the driver may have to open a connection to cancel a statement.
 * 2. A call ends as interrupted only if its caller was. If the scope of `make` interrupts the effect, the call fails
 *    with `late`.
 * 3. An effect that has begun is interrupted when its call or the scope ends.
 * 4. All calls within `shared` end `callTimeout` after the start of `shared` at the latest, as in law 1, however many
 *    follow one another.
 */
import { Cause, Clock, Context, Duration, Effect, Exit, Fiber } from "effect"

/** The application's errors for statements that fail in an outage. */
export interface OutageErrors<U> {
  /**
   * The failure of a call that has no result in time, or that fails in an outage for another reason than `readOnly`.
   */
  readonly unavailable: U
  /** The failure of a write that a read-only session rejects. */
  readonly readOnly: U
}

export const callTimeout = Duration.seconds(3)

/**
 * After a pause of this process, overdue timers fire before replies are read. So each wait is two timers. The second,
 * of at most this length, starts only when the first fires, however late. Replies are read before the second fires,
 * unless a pause begins within it.
 */
const readTimeMs = 100

/** The monotonic time, in nanoseconds, at which all calls within `shared` end at the latest. */
const CurrentEnd = Context.Reference<bigint | undefined>("database/CurrentEnd", {
  defaultValue: () => undefined
})

/** Runs an effect. All calls within it end at most `callTimeout` after its start. */
export const shared = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.clockWith((clock) =>
    Effect.provideService(effect, CurrentEnd, clock.monotonicTimeNanosUnsafe() + Duration.toNanosUnsafe(callTimeout))
  )

const failAfter = <U>(late: U, timeout: Duration.Duration) =>
  Effect.withFiber((fiber) => {
    const end = Context.get(fiber.context, CurrentEnd)
    const now = fiber.getRef(Clock.Clock).monotonicTimeNanosUnsafe()
    const left = end === undefined ? Infinity : Number(end - now) / 1e6
    const waitMs = Math.max(Math.min(Duration.toMillis(timeout), left), 0)
    const readMs = Math.min(readTimeMs, waitMs)
    const reason = left < Duration.toMillis(timeout)
      ? `the statements of its operation took longer than ${Duration.format(callTimeout)} together`
      : `it took longer than ${Duration.format(timeout)}`
    const fail = Effect.andThen(Effect.logError(`A database statement failed: ${reason}`), Effect.fail(late))
    return Effect.delay(Effect.delay(fail, readMs), waitMs - readMs)
  })

/** Returns a function that runs an effect, and fails with `late` if it has no result after `timeout`. */
export const make = Effect.fnUntraced(function*<U>(late: U, timeout = callTimeout) {
  const scope = yield* Effect.scope
  return <A, E, R>(effect: Effect.Effect<A, E, R>) =>
    // Without the mask, an interruption between the fork and `ensuring` would leave the effect running.
    Effect.uninterruptibleMask((restore) =>
      Effect.flatMap(Effect.forkIn(effect, scope), (fiber) => {
        const ended = Effect.flatMap(
          Fiber.await(fiber),
          (exit): Exit.Exit<A, E | U> =>
            Exit.isFailure(exit) && Cause.hasInterruptsOnly(exit.cause) ? Exit.fail(late) : exit
        )
        const ending = Effect.raceFirst(ended, failAfter(late, timeout))
        return Effect.ensuring(restore(ending), Effect.sync(() => fiber.interruptUnsafe()))
      })
    )
})
