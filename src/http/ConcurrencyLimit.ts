/** Bounds the operations that run at once, and with them the memory that they hold. */
import { Effect, Metric, Option, Semaphore } from "effect"
import { ServiceUnavailable } from "../api/Errors.ts"

const maxRunning = 2_500

const maxWait = "1 second"

const queued = Metric.gauge("http_server_requests_queued", { description: "Requests that wait for a slot." })

const overloaded = new ServiceUnavailable({ message: "The service is overloaded. Retry shortly." })

/** Returns a function that runs an operation in a slot, or fails with 503 if none gets free in time. */
export const make = Effect.gen(function*() {
  yield* Metric.update(queued, 0)
  const slots = yield* Semaphore.make(maxRunning)

  const runLater = <A, E, R>(operation: Effect.Effect<A, E, R>) =>
    Effect.suspend(() => {
      let isWaiting = true
      const stopWaiting = Effect.suspend(() => {
        const change = isWaiting ? -1 : 0
        isWaiting = false
        return Metric.modify(queued, change)
      })
      const timeout = Effect.delay(Effect.suspend(() => isWaiting ? Effect.fail(overloaded) : Effect.never), maxWait)
      // A timeout of `Semaphore.take` could lose a slot that it gets in the same moment.
      return Metric.modify(queued, 1).pipe(
        Effect.andThen(Effect.raceFirst(slots.withPermits(1)(Effect.andThen(stopWaiting, operation)), timeout)),
        Effect.ensuring(stopWaiting)
      )
    })

  return <A, E, R>(operation: Effect.Effect<A, E, R>): Effect.Effect<A, E | ServiceUnavailable, R> =>
    Effect.flatMap(
      slots.withPermitsIfAvailable(1)(operation),
      (done) => Option.isSome(done) ? Effect.succeed(done.value) : runLater(operation)
    )
})
