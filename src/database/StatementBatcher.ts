/**
 * Batches calls: the calls of a batch share statements or a transaction. All creates and changes of collections are
 * batched, and the reads that their caches cannot serve, except within a transaction (law 3).
 *
 * Laws, beside those of `Batcher`:
 * 1. A value that the server rejects (SQLSTATE classes 22 and 23) fails only the calls with this value, with a defect.
 * 2. An outage that ends a run fails the calls of this run with one of `errors`.
 * 3. A call within a transaction runs in that transaction: alone, at once, on its connection, and with `isShared`
 *    false. It has no deadline of its own. So a rollback undoes all of it, and it never waits for the connection that
 *    its own transaction holds.
 */
import { Cause, Context, Effect, type Fiber } from "effect"
import { SqlClient } from "effect/sql"
import * as Batcher from "./Batcher.ts"
import type { OutageErrors } from "./Deadline.ts"
import * as Outage from "./Outage.ts"

interface Options<A, B, E, U> {
  readonly name: string
  readonly size: number
  readonly errors: OutageErrors<U>
  /**
   * If `isShared` is false, `run` reads and writes within the caller's transaction. That transaction sees its own
   * uncommitted changes, and can roll back, so the results must not be cached.
   */
  readonly run: (items: ReadonlyArray<A>, isShared: boolean) => Effect.Effect<ReadonlyMap<A, B>, E>
}

/**
 * Whether a fiber runs within a transaction of `sql`. Such a fiber must not read a cache, because only its transaction
 * sees its own changes.
 */
export const isInTransaction = (sql: SqlClient.SqlClient, fiber: Fiber.Fiber<unknown, unknown>): boolean =>
  Context.getOrUndefined(fiber.context, sql.transactionService) !== undefined

const make = Effect.fnUntraced(function*<A, B, E, U>(
  concurrency: number,
  { errors, name, run, size }: Options<A, B, E, U>
) {
  const failWithErrors = Outage.failWith(errors)
  const sql = yield* SqlClient.SqlClient
  const call = yield* Batcher.make({
    name,
    size,
    concurrency,
    late: errors.unavailable,
    canSplit: (cause) =>
      cause.reasons.some((reason) => Cause.isDieReason(reason) && Outage.isRejectedValue(reason.defect)),
    run: (items: ReadonlyArray<A>) => failWithErrors(run(items, true))
  })
  const callAlone = (item: A) => Effect.map(failWithErrors(run([item], false)), (results) => results.get(item))
  return (item: A) => Effect.withFiber((fiber) => isInTransaction(sql, fiber) ? callAlone(item) : call(item))
})

/** Runs up to two batches at once: the database works on one while this process decodes the other. */
export const read = <A, B, E, U>(options: Options<A, B, E, U>) => make(2, options)

export const write = <A, B, E, U>(options: Options<A, B, E, U>) => make(1, options)
