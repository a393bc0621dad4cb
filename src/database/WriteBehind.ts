import { type Duration, Effect, Latch, Semaphore } from "effect"
import { evictOldest } from "../collections/evictOldest.ts"
import { makeCountFailure } from "../observability/MetricConstructors.ts"
import * as Deadline from "./Deadline.ts"

/** Limits how long the serialization of one write blocks the event loop. */
const maxValuesPerWrite = 1_000

/**
 * A write-behind buffer. Collects values by key, and writes them in the background `interval` after the first of them
 * and when the scope closes. If a write fails, its values stay pending, combined with newer values of their keys.
 */
export const make = Effect.fnUntraced(function*<K, A>({
  interval,
  maxPending = Infinity,
  combine = (_, newer) => newer,
  table,
  write
}: {
  readonly interval: Duration.Input
  readonly write: (values: ReadonlyMap<K, A>) => Effect.Effect<void, unknown>
  readonly combine?: (older: A, newer: A) => A
  readonly table: string
  readonly maxPending?: number
}) {
  const warning = `Values for the table ${table} cannot be written`
  const countFailure = yield* makeCountFailure(`write_${table}`)
  const withinDeadline = yield* Deadline.make()
  let pending = new Map<K, A>()
  const hasPending = yield* Latch.make()
  let evicted = 0
  const add = (key: K, value: A): void => {
    const older = pending.get(key)
    pending.set(key, older === undefined ? value : combine(older, value))
    hasPending.openUnsafe()
  }
  const reportEvicted = Effect.suspend(() => {
    if (evicted === 0) return Effect.void
    const report = Effect.logWarning(`${warning}: ${evicted} values were dropped because too many were pending`)
    evicted = 0
    return Effect.andThen(countFailure, report)
  })
  // Run one flush at a time. When the scope closes, the last flush waits for a running one. If the running flush were
  // interrupted, its statement could still commit, and the last flush would write the same values again.
  const lock = yield* Semaphore.make(1)
  const flush = Effect.suspend(() => {
    const rest = [...pending]
    pending = new Map()
    return Effect.whileLoop({
      while: () => rest.length > 0,
      body: () => {
        const values = rest.splice(0, maxValuesPerWrite)
        const written = Effect.suspend(() => write(new Map(values)))
        return Effect.onError(Effect.timeout(written, "5 seconds"), () =>
          Effect.sync(() => {
            const newer = pending
            pending = new Map([...values, ...rest])
            newer.forEach((value, key) => add(key, value))
          }))
      },
      step: () => {}
    }).pipe(Effect.catchCause((cause) => Effect.andThen(countFailure, Effect.logWarning(warning, cause))))
  }).pipe(Effect.andThen(reportEvicted), lock.withPermit)
  const flushPending = Effect.gen(function*() {
    yield* hasPending.await
    yield* Effect.sleep(interval)
    hasPending.closeUnsafe()
    yield* flush
    if (pending.size > 0) hasPending.openUnsafe()
  })
  yield* Effect.forkScoped(Effect.forever(flushPending))
  // Finalizers run in reverse order, so the last flush starts before the repeating fiber is interrupted.
  yield* Effect.addFinalizer(() => flush)
  return {
    set: (key: K, value: A): void => {
      add(key, value)
      const { size } = pending
      evictOldest(pending, maxPending)
      evicted += size - pending.size
    },
    /** Runs `read` while no flush runs, so each value is in the table or pending. The timeout includes waiting. */
    betweenFlushes: <B, E, R>(read: Effect.Effect<B, E, R>) => withinDeadline(lock.withPermit(read)),
    /** The pending values, oldest first, without those of a running flush. */
    values: (): ReadonlyArray<A> => [...pending.values()]
  }
})
