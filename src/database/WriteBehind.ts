/**
 * A write-behind buffer: collects values by key, and writes them in the background, `interval` after the first of them,
 * and when the scope closes. It keeps these laws, whatever the order of adds, flushes, failures, interruptions and the
 * end of its scope:
 *
 * 1. A value, or its combination with newer values of its key (`combine`), stays in the buffer until a write with it
 *    succeeds, and is not written again after that. Only laws 4 and 5 lose values.
 * 2. One write runs at a time, and the next starts after it has ended. So the values of a key are written in order,
 *    unless the database commits the statement of a failed write late.
 * 3. The values of a failed write are written again, combined with newer values of their keys. If the failed write had
 *    committed nevertheless, for example after the timeout of five seconds, its values count twice, unless `write`
 *    replaces stored values, or recognises values that are stored already.
 * 4. At most `maxPending` keys are pending, and as many in a running flush. Beyond that, the oldest pending ones are
 *    dropped until 90 % of `maxPending` are left, and the number of dropped values is logged.
 * 5. When the scope closes, one last flush starts after the running one has ended. Values that it cannot write are
 *    lost: their number is logged, and `BackgroundFailures.onLostValues` runs. Values added later are lost too.
 * 6. An effect within `betweenFlushes` sees each value exactly once, either in the table or among `values`, unless law
 *    3, 4 or 5 applies to the value.
 */
import { type Duration, Effect, Exit, Latch, Semaphore } from "effect"
import { evictOldest } from "../eviction/evictOldest.ts"
import { BackgroundFailures } from "./BackgroundFailures.ts"

/** Limits how long the serialization of one write blocks the event loop. */
const maxValuesPerWrite = 1_000

const writeTimeout = "5 seconds"

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
  const failures = yield* BackgroundFailures
  const countFailure = yield* failures.makeCounter(`write_${table}`)
  /** The values that the running flush has taken and not yet written. */
  let taken: Array<readonly [K, A]> = []
  let pending = new Map<K, A>()
  const hasPending = yield* Latch.make()
  let evicted = 0

  const add = (key: K, value: A): void => {
    const older = pending.get(key)
    pending.set(key, older === undefined ? value : combine(older, value))
    hasPending.openUnsafe()
  }
  const evict = (): void => {
    const { size } = pending
    evictOldest(pending, maxPending)
    evicted += size - pending.size
  }
  const take = Effect.sync(() => {
    taken = [...pending]
    pending = new Map()
  })
  /** Puts the unwritten values back into `pending`, as the older values of their keys. */
  const giveBack = Effect.sync(() => {
    const newer = pending
    pending = new Map(taken)
    taken = []
    newer.forEach((value, key) => add(key, value))
    evict()
  })
  const reportEvicted = Effect.suspend(() => {
    if (evicted === 0) return Effect.void
    const report = Effect.logWarning(`${warning}: ${evicted} values were dropped because too many were pending`)
    evicted = 0
    return Effect.andThen(countFailure, report)
  })

  const writeNext = Effect.suspend(() => {
    const values = taken.slice(0, maxValuesPerWrite)
    const written = Effect.onExit(Effect.suspend(() => write(new Map(values))), (exit) =>
      Effect.sync(() => {
        if (Exit.isSuccess(exit)) taken.splice(0, values.length)
      }))
    // `Effect.timeout` interrupts the write, and waits until it has ended. So no two writes overlap.
    return Effect.timeout(written, writeTimeout)
  })
  const writeTaken = Effect.whileLoop({ while: () => taken.length > 0, body: () => writeNext, step: () => {} }).pipe(
    Effect.catchCause((cause) => Effect.andThen(countFailure, Effect.logWarning(warning, cause)))
  )
  const lock = yield* Semaphore.make(1)
  // Uninterruptible, so that only `writeTimeout` can interrupt a write: after any interruption, its statement could
  // still commit.
  const flush = take.pipe(
    Effect.andThen(writeTaken),
    Effect.andThen(giveBack),
    Effect.andThen(reportEvicted),
    lock.withPermit,
    Effect.uninterruptible
  )
  const flushPending = Effect.gen(function*() {
    yield* hasPending.await
    yield* Effect.sleep(interval)
    hasPending.closeUnsafe()
    yield* flush
    if (pending.size > 0) hasPending.openUnsafe()
  })
  const reportLost = Effect.suspend(() =>
    pending.size === 0 ? Effect.void : Effect.andThen(
      Effect.logError(`${pending.size} values for the table ${table} are lost, because the last write failed`),
      Effect.sync(() => failures.onLostValues())
    )
  )
  // Finalizers run in reverse order, so the last flush starts once the fiber of `flushPending` has ended. No later
  // flush can then write values that were reported as lost.
  yield* Effect.addFinalizer(() => Effect.andThen(flush, reportLost))
  yield* Effect.forkScoped(Effect.forever(flushPending))
  return {
    add: (key: K, value: A): void => {
      add(key, value)
      evict()
    },
    /**
     * Runs `read` while no flush runs, so that each value is either in the table or pending. Waits for a running flush,
     * and for earlier calls.
     */
    betweenFlushes: <B, E, R>(read: Effect.Effect<B, E, R>) => lock.withPermit(read),
    /** The number of pending values, plus those that a running flush has not yet written. */
    size: (): number => pending.size + taken.length,
    /** The pending values, oldest first, excluding those of a running flush. */
    values: (): ReadonlyArray<A> => [...pending.values()]
  }
})
