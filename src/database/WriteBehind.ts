/**
 * Values on their way to the database: the last of each key, written every now and then, never while a request waits.
 */
import { type Duration, Effect, Schedule } from "effect"

/** Values written in one go: writing them as JSON blocks the event loop for some milliseconds. */
const batch = 1_000

/**
 * Takes values for as long as the scope lasts and hands them to `write` every `interval`, and once more at the end.
 * What could not be written waits for the next time, unless there is something newer by then.
 */
export const make = Effect.fnUntraced(function*<K, A>(options: {
  readonly interval: Duration.Input
  readonly write: (values: ReadonlyMap<K, A>) => Effect.Effect<void>
  /** What the log says when a write fails. */
  readonly warning: string
}) {
  let pending = new Map<K, A>()
  const flush = Effect.suspend(() => {
    const writing = [...pending]
    pending = new Map()
    return Effect.whileLoop({
      while: () => writing.length > 0,
      body: () => Effect.timeout(options.write(new Map(writing.slice(0, batch))), "5 seconds"),
      step: () => writing.splice(0, batch)
    }).pipe(
      Effect.onError(() =>
        Effect.sync(() => {
          pending = new Map([...writing, ...pending])
        })
      ),
      Effect.catchCause((cause) => Effect.logWarning(options.warning, cause))
    )
  })
  yield* Effect.addFinalizer(() => flush)
  yield* Effect.forkScoped(Effect.repeat(flush, Schedule.spaced(options.interval)))
  return {
    set: (key: K, value: A): void => {
      pending.set(key, value)
    }
  }
})
