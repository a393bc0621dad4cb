/** Limits how many operations run at once, to bound memory. An operation that waits one second for a slot gets 503. */
import { Effect, Metric, Option, Semaphore } from "effect"
import { ServiceUnavailable } from "../api/Errors.ts"

const maxRunning = 2_500

const maxWait = "1 second"

const queued = Metric.gauge("http_server_requests_queued", { description: "Requests waiting for a concurrency slot." })

const overloaded = new ServiceUnavailable({ message: "The service is overloaded. Retry shortly." })

export const make = Effect.gen(function*() {
  yield* Metric.update(queued, 0)
  const slots = yield* Semaphore.make(maxRunning)

  const queue = <A, E, R>(operation: Effect.Effect<A, E, R>) =>
    Effect.suspend(() => {
      let isWaiting = true
      const stopWaiting = Effect.suspend(() => {
        const change = isWaiting ? -1 : 0
        isWaiting = false
        return Metric.modify(queued, change)
      })
      const timeout = Effect.delay(Effect.suspend(() => isWaiting ? Effect.fail(overloaded) : Effect.never), maxWait)
      // `Effect.timeout` around `withPermits` would also limit the time of the running operation.
      return Metric.modify(queued, 1).pipe(
        Effect.andThen(Effect.raceFirst(slots.withPermits(1)(Effect.andThen(stopWaiting, operation)), timeout)),
        Effect.ensuring(stopWaiting)
      )
    })

  return <A, E, R>(operation: Effect.Effect<A, E, R>): Effect.Effect<A, E | ServiceUnavailable, R> =>
    Effect.flatMap(
      slots.withPermitsIfAvailable(1)(operation),
      (done) => Option.isSome(done) ? Effect.succeed(done.value) : queue(operation)
    )
})
