import { Array, Context, Duration, Effect, Exit, Queue, Tracer } from "effect"
import { ServiceUnavailable } from "../api/Errors.ts"

interface Call<A, B, E> {
  readonly item: A
  readonly span: Tracer.AnySpan | undefined
  /** Resumes the fiber of the call. Absent once the call is interrupted, so that the queue does not hold its fiber. */
  complete: ((exit: Exit.Exit<B | undefined, E | ServiceUnavailable>) => void) | undefined
}

/** Without a pooler, PostgreSQL ends a statement after 3.5 s, so this ends batches of several, or network delays. */
export const callTimeout = Duration.seconds(4)

/**
 * Turns `run`, which processes many items, into a function for one item. While `concurrency` batches run, new calls
 * wait for the next batch. A batch that takes longer than `timeout` fails with `ServiceUnavailable`. Calls of a batch
 * with the same item share one result.
 *
 * Does not use Effect's `RequestResolver`, which would keep each item in memory until a major garbage collection
 * (measured: docs/performance.md).
 */
export const make = Effect.fnUntraced(function*<A, B, E>({ concurrency, name, run, size, timeout }: {
  readonly name: string
  readonly run: (items: ReadonlyArray<A>) => Effect.Effect<ReadonlyMap<A, B>, E>
  readonly concurrency: number
  readonly size: number
  readonly timeout: Duration.Duration
}) {
  const queue = yield* Queue.unbounded<Call<A, B, E>>()
  const timedOut = Effect.andThen(
    Effect.logError(`${name} took longer than ${Duration.format(timeout)}`),
    Effect.fail(new ServiceUnavailable())
  )

  const withSpan = <X, Y>(batch: Effect.Effect<X, Y>, calls: ReadonlyArray<Call<A, B, E>>) => {
    const [parent, ...others] = calls.flatMap(({ span }) => span?.sampled === true ? span : [])
    return parent === undefined
      ? Effect.withTracerEnabled(batch, false)
      : Effect.withSpan(batch, name, { parent, links: others.map((span) => ({ span, attributes: {} })) })
  }

  const runBatch = (calls: ReadonlyArray<Call<A, B, E>>) => {
    const callsByItem = Map.groupBy(calls, ({ item }) => item)
    const runs = Effect.forEach(
      Array.chunksOf(callsByItem.keys(), size),
      (items) =>
        Effect.map(run(items), (results) => {
          for (const item of items) {
            for (const call of callsByItem.get(item) ?? []) {
              call.complete?.(Exit.succeed(results.get(item)))
              // Release its fiber, which holds the body of its response, while later chunks of the batch run.
              call.complete = undefined
            }
          }
        }),
      { discard: true }
    )
    return Effect.timeoutOrElse(runs, { duration: timeout, orElse: () => timedOut }).pipe(
      (batch) => withSpan(batch, calls),
      Effect.onError((cause) =>
        Effect.sync(() => {
          for (const call of calls) call.complete?.(Exit.failCause(cause))
        })
      ),
      Effect.ignoreCause
    )
  }

  const runBatches = Effect.gen(function*() {
    yield* Queue.peek(queue)
    // Let the other calls of this event-loop turn join the batch.
    yield* Effect.yieldNow
    const calls = yield* Queue.takeAll(queue)
    yield* runBatch(calls.filter(({ complete }) => complete !== undefined))
  })
  yield* Effect.replicateEffect(Effect.forkScoped(Effect.forever(runBatches)), concurrency)

  return (item: A): Effect.Effect<B | undefined, E | ServiceUnavailable> =>
    Effect.withFiber((fiber) =>
      Effect.callback((resume) => {
        const span = Context.getOrUndefined(fiber.context, Tracer.ParentSpan)
        const call: Call<A, B, E> = { item, span, complete: resume }
        Queue.offerUnsafe(queue, call)
        return Effect.sync(() => {
          call.complete = undefined
        })
      })
    )
})
