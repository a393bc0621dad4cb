import { Array, Context, Duration, Effect, Exit, Queue, Tracer } from "effect"
import { ServiceUnavailable } from "../api/Errors.ts"

interface Call<A, B, E> {
  readonly item: A
  readonly span: Tracer.AnySpan | undefined
  readonly complete: (exit: Exit.Exit<B | undefined, E | ServiceUnavailable>) => void
  isInterrupted: boolean
}

/** Longer than the statement timeout, for a network that loses packets. */
export const callTimeout = Duration.seconds(4)

/**
 * Turns `run`, which processes many items, into a function for one item. While `concurrency` batches are in flight,
 * calls collect for the next one. A result is never older than its call.
 *
 * A batch has one run for every `size` items. Calls with an equal item share a result, and calls of a failed run its
 * error. A batch fails with `ServiceUnavailable` after `timeout`, so a call waits for at most twice the timeout.
 *
 * Not Effect's `RequestResolver`: it reuses its sets, and V8 then keeps each entry alive until a major collection,
 * which costs a create 8 % of its CPU (measured: docs/performance.md).
 */
export const make = Effect.fnUntraced(function*<A, B, E>({ concurrency, name, run, size, timeout }: {
  /** The name of the span of a batch, whose parent is its first call, with links to the others. */
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
            for (const call of callsByItem.get(item) ?? []) call.complete(Exit.succeed(results.get(item)))
          }
        }),
      { discard: true }
    )
    return Effect.timeoutOrElse(runs, { duration: timeout, orElse: () => timedOut }).pipe(
      (batch) => withSpan(batch, calls),
      Effect.onError((cause) =>
        Effect.sync(() => {
          for (const call of calls) call.complete(Exit.failCause(cause))
        })
      ),
      Effect.ignoreCause
    )
  }

  const runBatches = Effect.gen(function*() {
    yield* Queue.peek(queue)
    // The batch holds all calls of this turn of the event loop.
    yield* Effect.yieldNow
    const calls = yield* Queue.takeAll(queue)
    yield* runBatch(calls.filter(({ isInterrupted }) => !isInterrupted))
  })
  yield* Effect.replicateEffect(Effect.forkScoped(Effect.forever(runBatches)), concurrency)

  return (item: A): Effect.Effect<B | undefined, E | ServiceUnavailable> =>
    Effect.withFiber((fiber) =>
      Effect.callback((resume) => {
        const span = Context.getOrUndefined(fiber.context, Tracer.ParentSpan)
        const call: Call<A, B, E> = { item, span, complete: resume, isInterrupted: false }
        Queue.offerUnsafe(queue, call)
        return Effect.sync(() => {
          call.isInterrupted = true
        })
      })
    )
})
