/** Many calls made few: those that come while others are under way wait for them, and go together in the next. */
import { Deferred, Effect, Exit, Scope } from "effect"

/**
 * What answers one item, where `run` answers many: what it has for that item. It begins after the call, so that an answer is never
 * older than the question; a fault of it is that of all its calls. `concurrency` of them run at once, with `size`
 * items each at most, for as long as the scope lasts. Calls with the same item (as a `Map` has it) share its answer.
 */
export const make = Effect.fnUntraced(function*<A, B>({ concurrency, run, size }: {
  readonly run: (items: ReadonlyArray<A>) => Effect.Effect<ReadonlyMap<A, B>>
  readonly concurrency: number
  readonly size: number
}) {
  const scope = yield* Scope.Scope
  const waiting = new Map<A, Deferred.Deferred<B | undefined>>()
  let running = 0

  const answerWaiting = Effect.gen(function*() {
    while (waiting.size > 0) {
      const calls = waiting.entries().take(size).toArray()
      for (const [item] of calls) waiting.delete(item)
      const answers = yield* Effect.exit(run(calls.map(([item]) => item)))
      for (const [item, call] of calls) Deferred.doneUnsafe(call, Exit.map(answers, (all) => all.get(item)))
    }
    // In one step with the last look at what is waiting: whoever comes later starts anew.
    running--
  })

  return (item: A): Effect.Effect<B | undefined> =>
    Effect.suspend(() => {
      let call = waiting.get(item)
      if (call === undefined) {
        call = Deferred.makeUnsafe<B | undefined>()
        waiting.set(item, call)
      }
      if (running === concurrency) return Deferred.await(call)
      running++
      return Effect.andThen(Effect.forkIn(answerWaiting, scope), Deferred.await(call))
    })
})
