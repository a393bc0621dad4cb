/**
 * Writes values to the database in the background: the last value of each key, at intervals, without delaying a
 * request.
 */
import { type Duration, Effect, Schedule, Semaphore } from "effect"
import { evictOldest } from "../collections/evictOldest.ts"
import * as BackgroundTask from "./BackgroundTask.ts"

/** The maximum of values in one write. Serializing them as JSON blocks the event loop for some milliseconds. */
const batch = 1_000

/**
 * Returns a function that takes values until the scope closes. `write` gets them every `interval`, and once more at the
 * end. After a failed write the values wait for the next one, combined with newer values.
 */
export const make = Effect.fnUntraced(function*<K, A>({
  interval,
  maxPending = Infinity,
  maxPerFlush = Infinity,
  combine = (_, newer) => newer,
  table,
  warning,
  write
}: {
  readonly interval: Duration.Input
  readonly write: (values: ReadonlyMap<K, A>) => Effect.Effect<void, unknown>
  /** Combines a value with a newer one of the same key. By default the newer one replaces it. */
  readonly combine?: (older: A, newer: A) => A
  /** The table that `write` writes to, for the metric of failures. */
  readonly table: string
  /** The warning to log after a failed write. */
  readonly warning: string
  /** The maximum of values that wait. Beyond it the oldest are lost. */
  readonly maxPending?: number
  /** The maximum of values that one interval writes, oldest first. The end writes all of them. */
  readonly maxPerFlush?: number
}) {
  const countFailure = yield* BackgroundTask.makeCountFailure(`write_${table}`)
  let pending = new Map<K, A>()
  /** The values of the current flush whose write has not begun. */
  let writing: Array<[K, A]> = []
  /** The values that were evicted since the last flush. */
  let evicted = 0
  const add = (key: K, value: A): void => {
    const older = pending.get(key)
    pending.set(key, older === undefined ? value : combine(older, value))
  }
  const reportEvicted = Effect.suspend(() => {
    if (evicted === 0) return Effect.void
    const lost = evicted
    evicted = 0
    return Effect.andThen(
      countFailure,
      Effect.logWarning(`${warning}: ${lost} values were lost, because too many wait`)
    )
  })
  // One flush at a time. The end waits for the flush that runs: an interrupted statement can still commit, and its
  // values would be written twice.
  const turn = yield* Semaphore.make(1)
  const flush = (limit: number) =>
    Effect.suspend(() => {
      writing = [...pending]
      pending = new Map(writing.splice(limit))
      return Effect.whileLoop({
        while: () => writing.length > 0,
        body: () => {
          const values = writing.splice(0, batch)
          return Effect.onError(Effect.timeout(write(new Map(values)), "5 seconds"), () =>
            Effect.sync(() => {
              const newer = pending
              pending = new Map([...values, ...writing])
              newer.forEach((value, key) => add(key, value))
              writing = []
            }))
        },
        step: () => {}
      }).pipe(Effect.catchCause((cause) => Effect.andThen(countFailure, Effect.logWarning(warning, cause))))
    }).pipe(Effect.andThen(reportEvicted), turn.withPermits(1))
  yield* Effect.forkScoped(Effect.repeat(flush(maxPerFlush), Schedule.spaced(interval)))
  // A scope closes in reverse order, so this runs before the interruption of the fiber above.
  yield* Effect.addFinalizer(() => flush(Infinity))
  return {
    set: (key: K, value: A): void => {
      add(key, value)
      if (pending.size > maxPending) {
        evictOldest(pending, maxPending)
        evicted += maxPending + 1 - pending.size
      }
    },
    /** The values whose write has not begun, oldest first. A value can occur twice. */
    values: (): ReadonlyArray<A> => [...writing.map(([, value]) => value), ...pending.values()]
  }
})
