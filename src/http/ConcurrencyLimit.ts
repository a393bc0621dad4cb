/**
 * Limits how many operations run at once, to bound memory.
 *
 * Laws, whatever operations fail, die, hang or are interrupted, at whatever step:
 * - At most `maxRunning` operations of one limit run at once.
 * - An operation that ends, for whatever reason, gives its slot back exactly once. An operation that never got a slot
 *   gives none back.
 * - The wait of an operation for a slot times out after one second. Then the operation fails with `ServiceUnavailable`,
 *   and does not run.
 * - The gauge of queued requests is the number of operations that wait, on both ports together.
 */
import { Effect, Layer, Metric, Option, Scope, Semaphore } from "effect"
import { ServiceUnavailable } from "../api/Errors.ts"
import { ConcurrencyLimit } from "../api/OperationMiddleware.ts"
import { gauge } from "../observability/MetricConstructors.ts"

export const maxOperations = 2_500

const maxWait = "1 second"

const queued = gauge("http_server_requests_queued", "Requests waiting for a slot.")

export const overloaded = Effect.fail(new ServiceUnavailable({ message: "The service is overloaded. Retry shortly." }))

/** Returns a function that runs operations, at most `maxRunning` at once. */
export const make = Effect.fnUntraced(function*(maxRunning: number) {
  yield* Metric.modify(queued, 0)
  const slots = yield* Semaphore.make(maxRunning)
  const waitForSlot = Effect.acquireUseRelease(
    Metric.modify(queued, 1),
    () => Effect.timeoutOrElse(slots.takeScoped(1), { duration: maxWait, orElse: () => overloaded }),
    () => Metric.modify(queued, -1)
  )
  return <A, E, R>(operation: Effect.Effect<A, E, R>): Effect.Effect<A, E | ServiceUnavailable, R> =>
    Effect.flatMap(
      // Usually, a slot is free, and nothing waits.
      slots.withPermitsIfAvailable(1)(operation),
      Option.match({
        onNone: () => Effect.scopedWith((scope) => Effect.andThen(Scope.provide(waitForSlot, scope), operation)),
        onSome: Effect.succeed
      })
    )
})

/** The limit of the API port. Runs after `RequestBody`, so that slow uploads occupy no slots. */
export const layer = Layer.effect(
  ConcurrencyLimit,
  Effect.map(make(maxOperations), (limit) => ConcurrencyLimit.of((httpEffect) => limit(httpEffect)))
)
