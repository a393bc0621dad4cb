import { Clock, Context, Duration, Effect, Exit, Fiber, Latch, Tracer } from "effect"
import type { ServiceUnavailable } from "../api/Errors.ts"
import { callTimeout, databaseSilent } from "./Deadline.ts"

interface Call<A, B, E> {
  readonly item: A
  readonly span: Tracer.AnySpan | undefined
  readonly deadlineMs: number
  /** Resumes the caller's fiber. Set to `undefined` on interruption, so that the queue does not retain the fiber. */
  complete: ((exit: Exit.Exit<B | undefined, E | ServiceUnavailable>) => void) | undefined
}

const tickMs = 50
/** The most that a tick adds to `elapsedMs`, so that a pause of this process does not time out all calls. */
const maxTickMs = 250

const unavailable = Exit.fail(databaseSilent)

/**
 * Turns `run`, which processes a batch of items, into a function for one item. While `concurrency` batches run, new
 * calls are queued. The next batch takes the newest items, at most `size`. Calls of a batch for the same item share one
 * result.
 *
 * A call fails with `ServiceUnavailable` after `timeout`, or when the scope closes. If all calls of a batch have timed
 * out, the batch is interrupted, and the next batch starts after the interruption.
 *
 * Effect's `RequestResolver` would keep each item in memory until a major garbage collection (measured:
 * docs/performance.md).
 */
export const make = Effect.fnUntraced(function*<A, B, E>({ concurrency, name, run, size, timeout = callTimeout }: {
  readonly name: string
  readonly run: (items: ReadonlyArray<A>) => Effect.Effect<ReadonlyMap<A, B>, E>
  readonly concurrency: number
  readonly size: number
  readonly timeout?: Duration.Duration
}) {
  const clock = yield* Clock.Clock
  // A call fails up to two ticks after its deadline, so set the deadline two ticks before `timeout` ends.
  const callMs = Duration.toMillis(timeout) - 2 * tickMs
  const running = new Map<Fiber.Fiber<void>, ReadonlyArray<Call<A, B, E>>>()
  let queued: Array<Call<A, B, E>> = []
  const hasQueued = yield* Latch.make()
  let isClosed = false

  const withSpan = <X, Y>(batch: Effect.Effect<X, Y>, calls: ReadonlyArray<Call<A, B, E>>) => {
    const [parent, ...others] = calls.flatMap(({ span }) => span?.sampled === true ? span : [])
    return parent === undefined
      ? Effect.withTracerEnabled(batch, false)
      : Effect.withSpan(batch, name, { parent, links: others.map((span) => ({ span, attributes: {} })) })
  }

  const runBatch = (calls: ReadonlyArray<Call<A, B, E>>) =>
    Effect.suspend(() => run([...new Set(calls.map(({ item }) => item))])).pipe(
      (batch) => withSpan(batch, calls),
      Effect.onExit((exit) =>
        Effect.sync(() => {
          for (const { complete, item } of calls) complete?.(Exit.map(exit, (results) => results.get(item)))
        })
      ),
      Effect.ignoreCause
    )

  /** Takes all calls for the newest `size` items: under overload, new calls do not wait behind old ones. */
  const takeCalls = (): ReadonlyArray<Call<A, B, E>> => {
    const calls = queued.filter(({ complete }) => complete !== undefined)
    const items = new Set(new Set(calls.map(({ item }) => item).toReversed()).values().take(size))
    queued = items.size < size ? [] : calls.filter(({ item }) => !items.has(item))
    return queued.length === 0 ? calls : calls.filter(({ item }) => items.has(item))
  }

  const runBatches = Effect.gen(function*() {
    yield* hasQueued.await
    // Let the other calls of this event-loop turn join the batch.
    yield* Effect.yieldNow
    const calls = takeCalls()
    if (queued.length === 0) hasQueued.closeUnsafe()
    if (calls.length === 0) return
    const batch = yield* Effect.forkChild(runBatch(calls), { startImmediately: true })
    running.set(batch, calls)
    yield* Fiber.await(batch)
    running.delete(batch)
  })

  // One timer for all calls. A tick updates `elapsedMs` last, so that replies that arrived during a pause of this
  // process are read before the next tick.
  let elapsedMs = 0
  const isLate = ({ deadlineMs }: Call<A, B, E>): boolean => isClosed || deadlineMs <= elapsedMs
  const failLateCalls = (): void => {
    for (const call of [queued, ...running.values()].flat()) if (isLate(call)) call.complete?.(unavailable)
    queued = queued.filter((call) => !isLate(call))
  }
  const tick = Effect.gen(function*() {
    if (queued.length + running.size === 0) yield* hasQueued.await
    const startedAt = clock.monotonicTimeNanosUnsafe()
    yield* Effect.sleep(tickMs)
    failLateCalls()
    for (const [batch] of Array.from(running).filter(([, calls]) => calls.every(isLate))) {
      running.delete(batch)
      batch.interruptUnsafe()
      yield* Effect.logError(`A database statement failed: ${name} took longer than ${Duration.format(timeout)}`)
    }
    elapsedMs += Math.min(Number(clock.monotonicTimeNanosUnsafe() - startedAt) / 1e6, maxTickMs)
  })

  yield* Effect.forkScoped(Effect.forever(tick))
  yield* Effect.replicateEffect(Effect.forkScoped(Effect.forever(runBatches)), concurrency)
  yield* Effect.addFinalizer(() =>
    Effect.sync(() => {
      isClosed = true
      failLateCalls()
    })
  )

  return (item: A): Effect.Effect<B | undefined, E | ServiceUnavailable> =>
    Effect.withFiber((fiber) =>
      Effect.callback((resume) => {
        if (isClosed) return resume(unavailable)
        const span = Context.getOrUndefined(fiber.context, Tracer.ParentSpan)
        const call: Call<A, B, E> = { item, span, deadlineMs: elapsedMs + callMs, complete: resume }
        queued.push(call)
        hasQueued.openUnsafe()
        return Effect.sync(() => {
          call.complete = undefined
        })
      })
    )
})
