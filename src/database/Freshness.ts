/**
 * What is remembered of the database is trusted only if a poll for changes that began less than a second ago has
 * succeeded. So it is never older than that, even when polls fail, and processes need not send each other messages.
 */
import { Clock, Duration, Effect, Latch } from "effect"

/**
 * While somebody asks, polls start this often, also while one before is under way: a slow database is asked in time,
 * too.
 */
const interval = Duration.millis(250)

/** How long after the start of a poll its word counts: less than a second, by the time a request takes to pass here. */
const confirmedFor = Duration.millis(900)

/**
 * Runs `poll`, which forgets what has changed since it last ran, for as long as the scope lasts. What it gives tells
 * whether what was not forgotten counts now.
 */
export const make = Effect.fnUntraced(function*<E>(poll: Effect.Effect<void, E>, warning: string) {
  const clock = yield* Clock.Clock
  const lifetime = Duration.toNanosUnsafe(confirmedFor)
  const asked = yield* Latch.make()
  // Of the monotonic clock: a step of the wall clock makes nothing count for longer.
  let confirmedAt: bigint | undefined

  const confirm = Effect.gen(function*() {
    const startedAt = clock.monotonicTimeNanosUnsafe()
    yield* poll
    if (confirmedAt === undefined || startedAt > confirmedAt) confirmedAt = startedAt
  }).pipe(
    Effect.timeout(confirmedFor),
    Effect.catchCause((cause) => Effect.logWarning(warning, cause)),
    // Four traces a second that tell nothing.
    Effect.withTracerEnabled(false)
  )
  const confirmWhenAsked = Effect.gen(function*() {
    yield* Effect.forkScoped(confirm)
    asked.closeUnsafe()
    yield* Effect.sleep(interval)
    yield* asked.await
  })
  yield* confirm
  yield* Effect.forkScoped(Effect.forever(confirmWhenAsked))

  return (): boolean => {
    asked.openUnsafe()
    return confirmedAt !== undefined && clock.monotonicTimeNanosUnsafe() - confirmedAt < lifetime
  }
})
