/**
 * Turns `run`, which processes a batch of items, into a function for one item. An item without a result gets undefined.
 *
 * Laws, in any order of calls, ends of `run`, interruptions and the end of the scope:
 * 1. A call ends once. It fails with `late` if it has no result when `timeout` ends, or up to 300 ms earlier, or when
 *    the scope closes. A pause of the process counts as at most `maxTickMs`. A call ends as interrupted only if its own
 *    fiber was interrupted.
 * 2. A result is from a run that began after the call, or from a batch that `mayJoin` allowed the call to join.
 * 3. If `canSplit` holds for the failure of a batch of several items, the batch runs again in halves, one after the
 *    other. Each call gets the result of its own half as soon as that half ends, whatever happens to the other half.
 * 4. At most `concurrency` runs with at most `size` items each run at once. A run that is interrupted counts until it
 *    has ended.
 * 5. A run is interrupted once all of its calls without a result are late. No half begins without a waiting call.
 */
import { Cause, Clock, Context, Duration, Effect, Exit, Fiber, Latch, Tracer } from "effect"
import { callTimeout } from "./Deadline.ts"

interface Call<A, B, E, U> {
  readonly item: A
  readonly span: Tracer.AnySpan | undefined
  readonly deadlineMs: number
  /** Resumes the caller's fiber. `undefined` once the call has ended, so that the queue does not retain the fiber. */
  complete: ((exit: Exit.Exit<B | undefined, E | U>) => void) | undefined
}

interface Batch<A, B, E, U> {
  readonly startedAt: bigint
  /** The items without a result yet, with their calls. */
  readonly calls: Map<A, Array<Call<A, B, E, U>>>
  fiber: Fiber.Fiber<void> | undefined
}

interface Options<A, B, E, U> {
  readonly name: string
  readonly run: (items: ReadonlyArray<A>) => Effect.Effect<ReadonlyMap<A, B>, E>
  readonly concurrency: number
  readonly size: number
  readonly timeout?: Duration.Duration
  /** The failure of a call that has no result in time, whose `run` is interrupted, or whose batcher's scope closes. */
  readonly late: U
  /**
   * Whether one item can have caused this failure, so that a batch of several items runs again in halves. By default,
   * all calls of a failed batch fail.
   */
  readonly canSplit?: (cause: Cause.Cause<E>) => boolean
  /**
   * Whether a new call may join a running batch that has its item and began at `startedAt`, in monotonic nanoseconds.
   * By default, the call waits for a later batch.
   */
  readonly mayJoin?: (startedAt: bigint) => boolean
}

const tickMs = 50
/** The maximum that a tick adds to `elapsedMs`, so that a pause of this process does not time out all calls. */
const maxTickMs = 250

/**
 * New calls are queued while `concurrency` batches run, else until the event-loop turn ends. The next batch takes the
 * newest items, at most `size`. Calls of a batch for the same item share one result.
 *
 * Effect's `RequestResolver` reuses the sets of its batches, and V8 keeps their former entries alive. With this batcher
 * instead, a create or a get takes 0.85 times the CPU (docs/performance.md).
 */
export const make = Effect.fnUntraced(function*<A, B, E, U>({
  canSplit = () => false,
  concurrency,
  late,
  mayJoin,
  name,
  run,
  size,
  timeout = callTimeout
}: Options<A, B, E, U>) {
  const unavailable = Exit.fail(late)
  const clock = yield* Clock.Clock
  // A call fails up to two ticks after its deadline, so set the deadline two ticks before `timeout` ends.
  const callMs = Duration.toMillis(timeout) - 2 * tickMs
  const running = new Set<Batch<A, B, E, U>>()
  let queued: Array<Call<A, B, E, U>> = []
  const hasQueued = yield* Latch.make()
  let isClosed = false
  /** A clock for deadlines, which nearly stands still during a pause of this process, and while there are no calls. */
  let elapsedMs = 0

  const end = (call: Call<A, B, E, U>, exit: Exit.Exit<B | undefined, E | U>): void => {
    call.complete?.(exit)
    call.complete = undefined
  }
  const isLate = ({ deadlineMs }: Call<A, B, E, U>): boolean => isClosed || deadlineMs <= elapsedMs
  const callsOf = ({ calls }: Batch<A, B, E, U>) => [...calls.values()].flat()

  const withSpan = <X, Y>(effect: Effect.Effect<X, Y>, calls: ReadonlyArray<Call<A, B, E, U>>) => {
    const [parent, ...others] = calls.flatMap(({ span }) => span?.sampled === true ? span : [])
    return parent === undefined
      ? Effect.withTracerEnabled(effect, false)
      : Effect.withSpan(effect, name, { parent, links: others.map((span) => ({ span, attributes: {} })) })
  }

  const endItems = (
    batch: Batch<A, B, E, U>,
    items: ReadonlyArray<A>,
    exitOf: (item: A) => Exit.Exit<B | undefined, E | U>
  ): void => {
    for (const item of items) {
      const exit = exitOf(item)
      for (const call of batch.calls.get(item) ?? []) end(call, exit)
      batch.calls.delete(item)
    }
  }

  const runItems = (batch: Batch<A, B, E, U>, items: ReadonlyArray<A>): Effect.Effect<void> =>
    Effect.matchCauseEffect(Effect.suspend(() => run(items)), {
      onSuccess: (results) => Effect.sync(() => endItems(batch, items, (item) => Exit.succeed(results.get(item)))),
      onFailure: (cause) => {
        if (items.length > 1 && canSplit(cause)) {
          const middle = items.length >> 1
          return Effect.andThen(runHalf(batch, items.slice(0, middle)), runHalf(batch, items.slice(middle)))
        }
        // `run` can end as interrupted although no caller is, for example if it awaits a fiber that is interrupted. The
        // calls then fail with `late`.
        const exit = Cause.hasInterruptsOnly(cause) ? unavailable : Exit.failCause(cause)
        return Effect.sync(() => endItems(batch, items, () => exit))
      }
    })

  /** Runs those of `items` that a call still waits for. */
  const runHalf = (batch: Batch<A, B, E, U>, items: ReadonlyArray<A>): Effect.Effect<void> =>
    Effect.suspend(() => {
      const wanted = items.filter((item) =>
        batch.calls.get(item)?.some((call) => call.complete !== undefined && !isLate(call))
      )
      return wanted.length === 0 ? Effect.void : runItems(batch, wanted)
    })

  /**
   * Moves all calls for the newest `size` items from the queue to a batch: under overload, new calls do not wait behind
   * old ones. It is synchronous, so that each waiting call is either queued or in a running batch at any time.
   */
  const takeBatch = (): Batch<A, B, E, U> => {
    const waiting = queued.filter(({ complete }) => complete !== undefined)
    // The inner set has each item once, the newest first.
    const items = new Set(new Set(waiting.map(({ item }) => item).toReversed()).values().take(size))
    // Most batches have fewer than `size` items. Such a batch takes all waiting calls, and skips these two filters.
    queued = items.size < size ? [] : waiting.filter(({ item }) => !items.has(item))
    const taken = queued.length === 0 ? waiting : waiting.filter(({ item }) => items.has(item))
    const calls = Map.groupBy(taken, ({ item }) => item)
    const batch: Batch<A, B, E, U> = { startedAt: clock.monotonicTimeNanosUnsafe(), calls, fiber: undefined }
    if (taken.length > 0) running.add(batch)
    if (queued.length === 0) hasQueued.closeUnsafe()
    return batch
  }

  const runBatches = Effect.gen(function*() {
    yield* hasQueued.await
    // Wait until this event-loop turn ends, so that the batch takes all calls of the turn.
    yield* Effect.yieldNow
    const batch = takeBatch()
    if (batch.calls.size === 0) return
    const results = withSpan(runItems(batch, [...batch.calls.keys()]), callsOf(batch))
    batch.fiber = yield* Effect.forkChild(Effect.ignoreCause(results), { startImmediately: true })
    yield* Fiber.await(batch.fiber)
    running.delete(batch)
    // Calls are left if the batch was interrupted, or if `runHalf` skipped their item because none of them waited.
    endItems(batch, [...batch.calls.keys()], () => unavailable)
  })

  // One timer for all calls. A tick updates `elapsedMs` last: replies that arrived during a pause of this process are
  // then read before the next tick fails any call.
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

  const findBatchToJoin = (item: A): Array<Call<A, B, E, U>> | undefined => {
    if (mayJoin === undefined) return undefined
    for (const { calls, startedAt } of running) {
      const others = calls.get(item)
      if (others !== undefined && mayJoin(startedAt)) return others
    }
    return undefined
  }

  return (item: A): Effect.Effect<B | undefined, E | U> =>
    Effect.withFiber((fiber) =>
      Effect.callback((resume) => {
        if (isClosed) return resume(unavailable)
        const span = Context.getOrUndefined(fiber.context, Tracer.ParentSpan)
        const deadlineMs = elapsedMs + callMs
        const call: Call<A, B, E, U> = { item, span, deadlineMs, complete: resume }
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
