/** Many calls made few: those that come while others are under way wait for them, and go together in the next. */
import { Cause, Clock, Deferred, Duration, Effect, Exit, Fiber, Scope } from "effect"

interface Call<B> {
  /** When it was made, by the monotonic clock: nanoseconds. */
  readonly at: bigint
  readonly answer: Deferred.Deferred<B | undefined>
  waiters: number
}

/**
 * Gives a function that answers one item, on top of `run`, which answers many. A run starts only after the calls that
 * it serves, so an answer is never older than its question; if it fails, all its calls die of that. At most
 * `concurrency` runs go on at once, with at most `size` items each, for as long as the scope lasts. Calls with the same
 * item (by the equality of a `Map`) share one answer, and the patience of the first of them. A call that nobody waits
 * for any more is not begun. A run that takes longer than `timeout`, and a call that waited that long before its run
 * began, die with a `TimeoutError`.
 */
export const make = Effect.fnUntraced(function*<A, B>({ concurrency, timeout, run, size }: {
  readonly run: (items: ReadonlyArray<A>) => Effect.Effect<ReadonlyMap<A, B>, unknown>
  readonly concurrency: number
  readonly size: number
  readonly timeout: Duration.Duration
}) {
  const clock = yield* Clock.Clock
  const longest = Duration.toNanosUnsafe(timeout)
  const scope = yield* Scope.Scope
  // Not in the context of whoever happens to call first.
  const start = Effect.runForkWith(yield* Effect.context())
  let waiting = new Map<A, Call<B>>()
  let running = 0
  let closed = false

  const answer = (calls: ReadonlyArray<[A, Call<B>]>) =>
    Effect.suspend(() => run(calls.map(([item]) => item))).pipe(
      Effect.timeout(timeout),
      Effect.orDie,
      Effect.onExit((answers) =>
        Effect.sync(() => {
          for (const [item, call] of calls) Deferred.doneUnsafe(call.answer, Exit.map(answers, (all) => all.get(item)))
        })
      ),
      Effect.exit
    )

  const answerWaiting = Effect.gen(function*() {
    while (waiting.size > 0) {
      // All calls of this turn of the event loop are to be in the batch, also where its answer comes within the turn
      // (as the embedded database's does).
      yield* Effect.yieldNow
      const now = clock.monotonicTimeNanosUnsafe()
      for (const [item, call] of waiting) {
        if (now - call.at < longest) break
        waiting.delete(item)
        Deferred.doneUnsafe(call.answer, Exit.die(new Cause.TimeoutError("No place in a statement in time")))
      }
      const all = [...waiting]
      const calls = all.slice(0, size)
      // Another map each time, for what Bag.ts says of one that changes all the time.
      waiting = new Map(all.slice(size))
      if (calls.length > 0) yield* answer(calls)
    }
    // In one step with the last look at what is waiting: whoever comes later starts anew.
    running--
  })

  yield* Effect.addFinalizer(() =>
    Effect.sync(() => {
      closed = true
      for (const call of waiting.values()) Deferred.doneUnsafe(call.answer, Exit.interrupt())
    })
  )

  return (item: A): Effect.Effect<B | undefined> =>
    Effect.uninterruptibleMask((restore) => {
      if (closed) return Effect.interrupt
      const call = waiting.get(item) ??
        { at: clock.monotonicTimeNanosUnsafe(), answer: Deferred.makeUnsafe<B | undefined>(), waiters: 0 }
      waiting.set(item, call)
      call.waiters++
      if (running < concurrency) {
        running++
        Fiber.runIn(start(answerWaiting), scope)
      }
      return Effect.onInterrupt(restore(Deferred.await(call.answer)), () =>
        Effect.sync(() => {
          if (--call.waiters === 0 && waiting.get(item) === call) waiting.delete(item)
        }))
    })
})
