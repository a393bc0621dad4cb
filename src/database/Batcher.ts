/**
 * Turns `run`, which processes a batch of items, into a function for one item.
 *
 * Laws, in any order of calls, ends of `run`, interruptions and the end of the scope:
 * 1. A call ends once: `timeout` after its start at the latest, and at once when the scope closes. Both fail with
 *    `ServiceUnavailable`. It ends as interrupted only if its own fiber was interrupted.
 * 2. A result is from a run that began after the call, or that had begun when `mayJoin` allowed the call to join it.
 * 3. A failure for which `canSplit` holds is of one item at least. The batch runs again in halves, one after the other.
 *    Each call gets the end of its own half as soon as that half ends, whatever happens to the others.
 * 4. At most `concurrency` runs with at most `size` items each run at once. A run that is interrupted counts until it
 *    has ended.
 * 5. No run outlives its calls: it is interrupted once all of them are late, and no half begins without a waiting call.
 */
import { Cause, Clock, Context, Duration, Effect, Exit, Fiber, Latch, Tracer } from "effect"
import type { ServiceUnavailable } from "../api/Errors.ts"
import { callTimeout, databaseUnavailable } from "./Deadline.ts"

interface Call<A, B, E> {
  readonly item: A
  readonly span: Tracer.AnySpan | undefined
  readonly deadlineMs: number
  /** Resumes the caller's fiber. `undefined` once the call has ended, so that the queue does not retain the fiber. */
  complete: ((exit: Exit.Exit<B | undefined, E | ServiceUnavailable>) => void) | undefined
}

interface Batch<A, B, E> {
  readonly startedAt: bigint
  /** The items without a result yet, with their calls. */
  readonly calls: Map<A, Array<Call<A, B, E>>>
  fiber: Fiber.Fiber<void> | undefined
}

interface Options<A, B, E> {
  readonly name: string
  readonly run: (items: ReadonlyArray<A>) => Effect.Effect<ReadonlyMap<A, B>, E>
  readonly concurrency: number
  readonly size: number
  readonly timeout?: Duration.Duration
  /** Whether a failed batch of several items must run again in halves. By default, all of its calls fail. */
  readonly canSplit?: (cause: Cause.Cause<E>) => boolean
  /**
   * Whether a new call may share the result of a running batch with its item that started at this monotonic time. By
   * default it may not, and waits for the next batch.
   */
  readonly mayJoin?: (startedAt: bigint) => boolean
}

const tickMs = 50
/** The most that a tick adds to `elapsedMs`, so that a pause of this process does not time out all calls. */
const maxTickMs = 250

const unavailable = Exit.fail(databaseUnavailable)

/**
 * While `concurrency` batches run, new calls are queued. The next batch takes the newest items, at most `size`. Calls
 * of a batch for the same item share one result.
 *
 * Effect's `RequestResolver` would keep each item in memory until a major garbage collection (measured:
 * docs/performance.md).
 */
export const make = Effect.fnUntraced(function*<A, B, E>({
  canSplit = () => false,
  concurrency,
  mayJoin,
  name,
  run,
  size,
  timeout = callTimeout
}: Options<A, B, E>) {
  const clock = yield* Clock.Clock
  // A call fails up to two ticks after its deadline, so set the deadline two ticks before `timeout` ends.
  const callMs = Duration.toMillis(timeout) - 2 * tickMs
  const running = new Set<Batch<A, B, E>>()
  let queued: Array<Call<A, B, E>> = []
  const hasQueued = yield* Latch.make()
  let isClosed = false
  let elapsedMs = 0

  const end = (call: Call<A, B, E>, exit: Exit.Exit<B | undefined, E | ServiceUnavailable>): void => {
    call.complete?.(exit)
    call.complete = undefined
  }
  const isLate = ({ deadlineMs }: Call<A, B, E>): boolean => isClosed || deadlineMs <= elapsedMs
  const callsOf = ({ calls }: Batch<A, B, E>) => [...calls.values()].flat()

  const withSpan = <X, Y>(effect: Effect.Effect<X, Y>, calls: ReadonlyArray<Call<A, B, E>>) => {
    const [parent, ...others] = calls.flatMap(({ span }) => span?.sampled === true ? span : [])
    return parent === undefined
      ? Effect.withTracerEnabled(effect, false)
      : Effect.withSpan(effect, name, { parent, links: others.map((span) => ({ span, attributes: {} })) })
  }

  const endItems = (
    batch: Batch<A, B, E>,
    items: ReadonlyArray<A>,
    exitOf: (item: A) => Exit.Exit<B | undefined, E | ServiceUnavailable>
  ): void => {
    for (const item of items) {
      const exit = exitOf(item)
      for (const call of batch.calls.get(item) ?? []) end(call, exit)
      batch.calls.delete(item)
    }
  }

  const runItems = (batch: Batch<A, B, E>, items: ReadonlyArray<A>): Effect.Effect<void> =>
    Effect.matchCauseEffect(Effect.suspend(() => run(items)), {
      onSuccess: (results) => Effect.sync(() => endItems(batch, items, (item) => Exit.succeed(results.get(item)))),
      onFailure: (cause) => {
        if (items.length > 1 && canSplit(cause)) {
          const middle = items.length >> 1
          return Effect.andThen(runHalf(batch, items.slice(0, middle)), runHalf(batch, items.slice(middle)))
        }
        // If `run` was interrupted by something else than this batcher, the caller's own fiber was not.
        const exit = Cause.hasInterruptsOnly(cause) ? unavailable : Exit.failCause(cause)
        return Effect.sync(() => endItems(batch, items, () => exit))
      }
    })

  /** Runs those of `items` that a call still waits for. */
  const runHalf = (batch: Batch<A, B, E>, items: ReadonlyArray<A>): Effect.Effect<void> =>
    Effect.suspend(() => {
      const wanted = items.filter((item) =>
        batch.calls.get(item)?.some((call) => call.complete !== undefined && !isLate(call))
      )
      return wanted.length === 0 ? Effect.void : runItems(batch, wanted)
    })

  /**
   * Moves all calls for the newest `size` items from the queue to a batch: under overload, new calls do not wait behind
   * old ones. One step without a yield, so that each call is queued or running at any time.
   */
  const takeBatch = (): Batch<A, B, E> => {
    const waiting = queued.filter(({ complete }) => complete !== undefined)
    const items = new Set(new Set(waiting.map(({ item }) => item).toReversed()).values().take(size))
    queued = items.size < size ? [] : waiting.filter(({ item }) => !items.has(item))
    const taken = queued.length === 0 ? waiting : waiting.filter(({ item }) => items.has(item))
    const calls = Map.groupBy(taken, ({ item }) => item)
    const batch: Batch<A, B, E> = { startedAt: clock.monotonicTimeNanosUnsafe(), calls, fiber: undefined }
    if (taken.length > 0) running.add(batch)
    if (queued.length === 0) hasQueued.closeUnsafe()
    return batch
  }

  const runBatches = Effect.gen(function*() {
    yield* hasQueued.await
    // Let the other calls of this event-loop turn join the batch.
    yield* Effect.yieldNow
    const batch = takeBatch()
    if (batch.calls.size === 0) return
    const results = withSpan(runItems(batch, [...batch.calls.keys()]), callsOf(batch))
    batch.fiber = yield* Effect.forkChild(Effect.ignoreCause(results), { startImmediately: true })
    yield* Fiber.await(batch.fiber)
    running.delete(batch)
    // The calls of halves that did not begin, because these calls were late.
    endItems(batch, [...batch.calls.keys()], () => unavailable)
  })

  // One timer for all calls. A tick updates `elapsedMs` last, so that replies that arrived during a pause of this
  // process are read before the next tick.
  const failLateCalls = (): void => {
    for (const call of [...queued, ...[...running].flatMap(callsOf)]) if (isLate(call)) end(call, unavailable)
    queued = queued.filter((call) => !isLate(call))
  }
  const tick = Effect.gen(function*() {
    if (queued.length + running.size === 0) yield* hasQueued.await
    const startedAt = clock.monotonicTimeNanosUnsafe()
    yield* Effect.sleep(tickMs)
    failLateCalls()
    for (const batch of running) {
      if (batch.fiber === undefined || batch.calls.size === 0 || !callsOf(batch).every(isLate)) continue
      running.delete(batch)
      batch.fiber.interruptUnsafe()
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

  const findBatchToJoin = (item: A): Array<Call<A, B, E>> | undefined => {
    if (mayJoin === undefined) return undefined
    for (const { calls, startedAt } of running) {
      const others = calls.get(item)
      if (others !== undefined && mayJoin(startedAt)) return others
    }
    return undefined
  }

  return (item: A): Effect.Effect<B | undefined, E | ServiceUnavailable> =>
    Effect.withFiber((fiber) =>
      Effect.callback((resume) => {
        if (isClosed) return resume(unavailable)
        const span = Context.getOrUndefined(fiber.context, Tracer.ParentSpan)
        const deadlineMs = elapsedMs + callMs
        const call: Call<A, B, E> = { item, span, deadlineMs, complete: resume }
        const joined = findBatchToJoin(item)
        if (joined === undefined) {
          queued.push(call)
          hasQueued.openUnsafe()
        } else joined.push(call)
        return Effect.sync(() => {
          call.complete = undefined
        })
      })
    )
})
