import { Duration, Effect, Fiber } from "effect"
import { ServiceUnavailable } from "../api/Errors.ts"

export const databaseSilent = new ServiceUnavailable({ message: "The database does not respond. Retry shortly." })

export const callTimeout = Duration.seconds(3)

/** After a pause of this process, overdue timers fire before replies are read, so wait this much longer for replies. */
const readTime = Duration.millis(100)

/**
 * Returns a function that runs an effect, and fails with `ServiceUnavailable` after `timeout`. The failure does not
 * wait for the effect's interruption, because the driver may have to open a connection to cancel a statement.
 */
export const make = Effect.fnUntraced(function*(timeout = callTimeout) {
  const scope = yield* Effect.scope
  const fail = Effect.andThen(
    Effect.logError(`A database statement failed: it took longer than ${Duration.format(timeout)}`),
    Effect.fail(databaseSilent)
  )
  const late = Effect.delay(Effect.delay(fail, readTime), Duration.subtract(timeout, readTime))
  return <A, E, R>(effect: Effect.Effect<A, E, R>) =>
    Effect.flatMap(
      Effect.forkIn(effect, scope),
      (fiber) => Effect.ensuring(Effect.raceFirst(Fiber.join(fiber), late), Effect.sync(() => fiber.interruptUnsafe()))
    )
})
