/** Bounds the operations that run at once. More of them would take longer, and each holds memory. */
import { Effect, Metric, Option, Semaphore } from "effect"
import { ServiceUnavailable } from "../api/Errors.ts"

const maxRunning = 2_500

/** The time for which an operation beyond the maximum waits. */
const maxWait = "1 second"

const queued = Metric.gauge("http_server_requests_queued", { description: "Requests that wait for a slot." })

const overloaded = Effect.fail(new ServiceUnavailable({ message: "The service is overloaded. Retry shortly." }))

/**
 * Returns a function that runs an operation within the bound. It is for operations whose request is complete: a slow
 * body occupies a connection, and no slot. It fails with `ServiceUnavailable` after a second without a free slot.
 */
export const make = Effect.map(Effect.andThen(Metric.update(queued, 0), Semaphore.make(maxRunning)), (semaphore) => {
  const whenFree = <A, E, R>(operation: Effect.Effect<A, E, R>) =>
    Effect.suspend(() => {
      let isWaiting = true
      const endWait = Effect.suspend(() => {
        if (!isWaiting) return Effect.void
        isWaiting = false
        return Metric.modify(queued, -1)
      })
      const timeout = Effect.suspend(() => isWaiting ? overloaded : Effect.never)
      const waited = semaphore.withPermit(Effect.andThen(endWait, operation))
      return Effect.andThen(
        Metric.modify(queued, 1),
        Effect.ensuring(Effect.raceFirst(waited, Effect.delay(timeout, maxWait)), endWait)
      )
    })
  return <A, E, R>(operation: Effect.Effect<A, E, R>): Effect.Effect<A, E | ServiceUnavailable, R> =>
    Effect.flatMap(
      semaphore.withPermitsIfAvailable(1)(operation),
      (result) => Option.isSome(result) ? Effect.succeed(result.value) : whenFree(operation)
    )
})
