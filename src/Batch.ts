/** Many calls made few: those that come while others are under way wait for them, and go together in the next. */
import { Deferred, Effect, Exit, Fiber, Scope } from "effect"

interface Call<B> {
  readonly answer: Deferred.Deferred<B | undefined>
  waiters: number
}

/**
 * What answers one item, where `run` answers many: what it has for that item. It begins after the call, so that an
 * answer is never older than the question; a fault of it is that of all its calls. `concurrency` of them run at once, with
 * `size` items each at most, for as long as the scope lasts. Calls with the same item (as a `Map` has it) share its
 * answer; one that nobody waits for any more is not begun.
 */
export const make = Effect.fnUntraced(function*<A, B>({ concurrency, run, size }: {
  readonly run: (items: ReadonlyArray<A>) => Effect.Effect<ReadonlyMap<A, B>>
  readonly concurrency: number
  readonly size: number
}) {
  const scope = yield* Scope.Scope
  // Not in the context of whoever happens to call first.
  const start = Effect.runForkWith(yield* Effect.context())
  const waiting = new Map<A, Call<B>>()
  let running = 0

  const answer = (calls: ReadonlyArray<[A, Call<B>]>) =>
    Effect.suspend(() => run(calls.map(([item]) => item))).pipe(
      Effect.onExit((answers) =>
        Effect.sync(() => {
          for (const [item, call] of calls) Deferred.doneUnsafe(call.answer, Exit.map(answers, (all) => all.get(item)))
        })
      ),
      Effect.exit
    )

  const answerWaiting = Effect.gen(function*() {
    while (waiting.size > 0) {
      // Who was read in the same turn of the event loop comes along, also where the answer needs none (the embedded database).
      yield* Effect.yieldNow
      const calls = waiting.entries().take(size).toArray()
      for (const [item] of calls) waiting.delete(item)
      yield* answer(calls)
    }
    // In one step with the last look at what is waiting: whoever comes later starts anew.
    running--
  })

  yield* Effect.addFinalizer(() =>
    Effect.sync(() => {
      running = Infinity
      for (const call of waiting.values()) Deferred.doneUnsafe(call.answer, Exit.interrupt())
    })
  )

  return (item: A): Effect.Effect<B | undefined> =>
    Effect.uninterruptibleMask((restore) => {
      if (running === Infinity) return Effect.interrupt
      const call = waiting.get(item) ?? { answer: Deferred.makeUnsafe<B | undefined>(), waiters: 0 }
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
