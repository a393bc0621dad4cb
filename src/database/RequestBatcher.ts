import { Array, Context, Duration, Effect, Exit, Request, RequestResolver, Semaphore, Tracer } from "effect"
import { ServiceUnavailable } from "../api/Errors.ts"

interface Call<A, B, E> extends Request.Request<B | undefined, E | ServiceUnavailable> {
  readonly item: A
}

/** Longer than the statement timeout, for a network that loses packets. */
export const callTimeout = Duration.seconds(4)

/**
 * Turns `run`, which processes many items, into a function for one item. While `concurrency` batches are in flight,
 * calls collect for the next one. A result is never older than its call.
 *
 * A batch has one run for every `size` items. Calls with an equal item share a result, and calls of a failed run its
 * error. A batch fails with `ServiceUnavailable` after `timeout`, so a call waits for at most twice the timeout.
 */
export const make = Effect.fnUntraced(function*<A, B, E>({ concurrency, name, run, size, timeout }: {
  /** The name of the span of a batch, whose parent is its first call, with links to the others. */
  readonly name: string
  readonly run: (items: ReadonlyArray<A>) => Effect.Effect<ReadonlyMap<A, B>, E>
  readonly concurrency: number
  readonly size: number
  readonly timeout: Duration.Duration
}) {
  const context = yield* Effect.context()
  const slots = yield* Semaphore.make(concurrency)
  const timedOut = Effect.andThen(
    Effect.logError(`${name} took longer than ${Duration.format(timeout)}`),
    Effect.fail(new ServiceUnavailable())
  )

  const withSpan = <X, Y>(batch: Effect.Effect<X, Y>, entries: ReadonlyArray<Request.Entry<unknown>>) => {
    const spans = entries.flatMap((entry) => Context.getOrUndefined(entry.context, Tracer.ParentSpan) ?? [])
    const [parent, ...others] = spans.filter(({ sampled }) => sampled)
    return parent === undefined
      ? Effect.withTracerEnabled(batch, false)
      : Effect.withSpan(batch, name, { parent, links: others.map((span) => ({ span, attributes: {} })) })
  }

  const resolver = RequestResolver.make<Call<A, B, E>>((entries) => {
    const entriesByItem = Map.groupBy(entries, ({ request }) => request.item)
    const runs = Effect.forEach(
      Array.chunksOf(entriesByItem.keys(), size),
      (items) =>
        Effect.map(run(items), (results) => {
          for (const item of items) {
            for (const entry of entriesByItem.get(item) ?? []) entry.completeUnsafe(Exit.succeed(results.get(item)))
          }
        }),
      { discard: true }
    )
    return Effect.timeoutOrElse(runs, { duration: timeout, orElse: () => timedOut }).pipe(
      (batch) => withSpan(batch, entries),
      slots.withPermit,
      // A batch must not inherit the context of its first caller.
      Effect.updateContext(() => context)
    )
  }).pipe(RequestResolver.setDelayEffect(Effect.andThen(Effect.yieldNow, slots.withPermit(Effect.void))))

  const makeCall = Request.of<Call<A, B, E>>()
  return (item: A): Effect.Effect<B | undefined, E | ServiceUnavailable> => Effect.request(makeCall({ item }), resolver)
})
