import { type Duration, Effect, Schedule, Semaphore } from "effect"
import { evictOldest } from "../collections/evictOldest.ts"
import { makeCountFailure } from "../observability/MetricConstructors.ts"
import * as Deadline from "./Deadline.ts"

/**
 * A write-behind buffer. Collects values by key, and writes them in the background every `interval` and when the scope
 * closes. If a write fails, its values stay pending and are combined with newer values of their keys. `maxValuesPerWrite`
 * limits how long the serialization of one write blocks the event loop.
 */
export const make = Effect.fnUntraced(function*<K, A>({
  interval,
  maxPending = Infinity,
  maxValuesPerWrite = 1_000,
  beforeFlush = () => Effect.void,
  afterFlush,
  combine = (_, newer) => newer,
  table,
  write
}: {
  readonly interval: Duration.Input
  readonly write: (values: ReadonlyMap<K, A>) => Effect.Effect<void, unknown>
  readonly combine?: (older: A, newer: A) => A
  readonly table: string
  readonly maxPending?: number
  readonly maxValuesPerWrite?: number
  /** Runs before each flush. It can set values that this flush writes. */
  readonly beforeFlush?: (isLast: boolean) => Effect.Effect<void>
  /** Runs after each periodic flush, before a read that waits, and not when the scope closes. */
  readonly afterFlush?: Readonly<{ task: string; run: Effect.Effect<void, unknown> }>
}) {
  const warning = `Values for the table ${table} cannot be written`
  const countFailure = yield* makeCountFailure(`write_${table}`)
  const withinDeadline = yield* Deadline.make()
  let pending = new Map<K, A>()
  let evicted = 0
  const add = (key: K, value: A): void => {
    const older = pending.get(key)
    pending.set(key, older === undefined ? value : combine(older, value))
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
  const flushAll = Effect.suspend(() => {
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
  }).pipe(Effect.andThen(reportEvicted))
  const countTaskFailure = yield* makeCountFailure(afterFlush?.task ?? `write_${table}`)
  const after = (afterFlush?.run ?? Effect.void).pipe(
    Effect.catchCause((cause) =>
      Effect.andThen(countTaskFailure, Effect.logWarning(`Values of the table ${table} cannot be added up`, cause))
    )
  )
  const flush = lock.withPermit(beforeFlush(false).pipe(Effect.andThen(flushAll), Effect.andThen(after)))
  yield* Effect.forkScoped(Effect.repeat(flush, Schedule.fixed(interval)))
  // Finalizers run in reverse order, so the last flush starts before the repeating fiber is interrupted.
  yield* Effect.addFinalizer(() => lock.withPermit(Effect.andThen(beforeFlush(true), flushAll)))
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
