import { Effect, Layer, Metric, Option, Scope, Semaphore } from "effect"
import { ServiceUnavailable } from "../api/Errors.ts"
import { ConcurrencyLimit } from "../api/OperationMiddleware.ts"
import { gauge } from "../observability/MetricConstructors.ts"

const maxRunning = 2_500

const maxWait = "1 second"

const queued = gauge("http_server_requests_queued", "Requests waiting for a slot.")

const overloaded = Effect.fail(new ServiceUnavailable({ message: "The service is overloaded. Retry shortly." }))

/** Returns a function that limits how many operations run at once, to bound memory. */
export const make = Effect.gen(function*() {
  yield* Metric.update(queued, 0)
  const slots = yield* Semaphore.make(maxRunning)
  const waitForSlot = Effect.acquireUseRelease(
    Metric.modify(queued, 1),
    () => Effect.timeoutOrElse(slots.takeScoped(1), { duration: maxWait, orElse: () => overloaded }),
    () => Metric.modify(queued, -1)
  )
  return <A, E, R>(operation: Effect.Effect<A, E, R>): Effect.Effect<A, E | ServiceUnavailable, R> =>
    Effect.flatMap(
      slots.withPermitsIfAvailable(1)(operation),
      Option.match({
        onNone: () => Effect.scopedWith((scope) => Effect.andThen(Scope.provide(waitForSlot, scope), operation)),
        onSome: Effect.succeed
      })
    )
})

/** Runs after `RequestBody`, so slow uploads occupy no slots. */
export const layer = Layer.effect(
  ConcurrencyLimit,
  Effect.map(make, (limit) => ConcurrencyLimit.of((httpEffect) => limit(httpEffect)))
)
