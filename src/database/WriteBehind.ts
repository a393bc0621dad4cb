/**
 * Writes values to the database in the background: the last value of each key, at intervals, without delaying a
 * request.
 */
import { type Duration, Effect, Schedule } from "effect"
import { IsReplica } from "./IsReplica.ts"

/** The maximum of values in one write. Serializing them as JSON blocks the event loop for some milliseconds. */
const batch = 1_000

/**
 * Returns a function that takes values until the scope closes. `write` gets them every `interval`, and once more at the
 * end. After a failed write the values wait for the next one, unless newer values replace them. On a replica nothing is
 * written.
 */
export const make = Effect.fnUntraced(function*<K, A>(options: {
  readonly interval: Duration.Input
  readonly write: (values: ReadonlyMap<K, A>) => Effect.Effect<void>
  /** The warning to log after a failed write. */
  readonly warning: string
}) {
  if (yield* IsReplica) return { set: (_key: K, _value: A): void => {} }
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
