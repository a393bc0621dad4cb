import { Clock, Duration, Effect, Schedule } from "effect"
import { SqlClient, type Statement } from "effect/sql"
import { AdminShare } from "./AdminShare.ts"
import { BackgroundFailures } from "./BackgroundFailures.ts"

const maxRowsPerStatement = 5_000

const beginning = "-infinity"
/** One run in this many first deletes a batch from the beginning, for rows that were locked before or inserted late. */
const runsPerRestart = 6

/**
 * Deletes expired rows that match `where` at the start and every 10 minutes. A row expires when the time in `column` is
 * at least `keptFor` ago by both this process's and PostgreSQL's clock: one wrong clock cannot delete a row too early.
 * `key` names the columns of the primary key, which, unlike `ctid`, are unique in a partitioned table, too.
 *
 * Most batches start at the time in `column` at which the previous batch stopped. While a transaction, such as a
 * backup, keeps an old snapshot open, deleted rows stay in the index, and a batch from the beginning would read all of
 * them again.
 */
export const deleteExpired = Effect.fnUntraced(function*({ column, keptFor = Duration.zero, key, table, where }: {
  readonly table: string
  readonly key: ReadonlyArray<string>
  readonly column: string
  readonly keptFor?: Duration.Duration
  readonly where?: Statement.Fragment
}) {
  const warning = `Expired rows of the table ${table} cannot be deleted`
  const countFailure = yield* (yield* BackgroundFailures).makeCounter(`delete_${table}`)
  const sql = yield* SqlClient.SqlClient
  const withinShare = yield* AdminShare
  const keyColumns = sql.literal(key.map((name) => `"${name}"`).join())
  let position = beginning
  let runs = 0

  // `SKIP LOCKED` prevents deadlocks, and lets several processes delete at once. `FOR UPDATE` checks the expiry of a
  // row again once the row is locked, because another process may have extended it.
  const deleteBatch = Effect.fnUntraced(
    function*(from: string) {
      const now = new Date(yield* Clock.currentTimeMillis)
      const keptSeconds = Duration.toSeconds(keptFor)
      const isPast = sql`${sql(column)} <= LEAST(${now}::timestamptz, now()) - make_interval(secs => ${keptSeconds})`
      const isExpired = where === undefined ? isPast : sql`${isPast} AND ${where}`
      // The position is a text, because a JavaScript date would lose its microseconds.
      const [batch] = yield* sql<{ readonly deleted: number; readonly last: string | null }>`
      WITH expired AS MATERIALIZED (
        SELECT ${keyColumns} FROM ${sql(table)} WHERE ${isExpired} AND ${sql(column)} >= ${from}::text::timestamptz
        ORDER BY ${sql(column)} LIMIT ${maxRowsPerStatement} FOR UPDATE SKIP LOCKED
      ), deleted AS (
        DELETE FROM ${sql(table)} WHERE (${keyColumns}) IN (SELECT ${keyColumns} FROM expired) AND ${isExpired}
        RETURNING ${sql(column)} AS at
      )
      SELECT count(*)::integer AS deleted, max(at)::text AS last FROM deleted`
      return batch ?? { deleted: 0, last: null }
    },
    withinShare,
    Effect.timeout("5 seconds")
  )

  const restart = Effect.gen(function*() {
    const { deleted, last } = yield* deleteBatch(beginning)
    if (last !== null && deleted === maxRowsPerStatement) position = last
  })
  const deleteNext = Effect.gen(function*() {
    const { deleted, last } = yield* deleteBatch(position)
    position = last ?? position
    return deleted === maxRowsPerStatement
  })
  const deleteAll = Effect.gen(function*() {
    // If the batch from the beginning fails, for example because it takes too long, go on where the last batch stopped.
    if (runs++ % runsPerRestart === 0) yield* Effect.ignore(restart)
    yield* Effect.repeat(deleteNext, { while: (hasMore) => hasMore })
  }).pipe(Effect.catchCause((cause) => Effect.andThen(countFailure, Effect.logWarning(warning, cause))))
  yield* Effect.forkScoped(Effect.repeat(deleteAll, Schedule.spaced("10 minutes")))
})
