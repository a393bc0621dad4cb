/** Deletes expired rows in the background, in one process at a time. */
import { Clock, Effect, Schedule } from "effect"
import { SqlClient } from "effect/sql"

/** Rows deleted by one statement, so that no statement takes long. */
const batch = 5_000

/**
 * Every 10 minutes for as long as the scope lasts, deletes the rows of `table` whose `column` is in the past, by the
 * clocks of this process and of the server: what one of them deletes too early is lost.
 */
export const deleteExpired = Effect.fnUntraced(function*(options: {
  readonly table: string
  readonly column: string
  /** The warning to log when it fails. */
  readonly warning: string
}) {
  const sql = yield* SqlClient.SqlClient
  const [table, column] = [sql(options.table), sql(options.column)]
  /**
   * Returns how many rows it deleted: none while another process deletes. The statement itself takes the advisory lock,
   * which ends with its transaction, so that it works behind a pooler too. A row that got a later time stays.
   */
  const deleteBatch = Effect.gen(function*() {
    const now = new Date(yield* Clock.currentTimeMillis)
    const isExpired = sql`${column} <= LEAST(${now}::timestamptz, now())`
    const rows = yield* sql`
      WITH turn AS MATERIALIZED (
        SELECT pg_try_advisory_xact_lock(hashtextextended('petstore expiry', ${options.table}::regclass::oid::bigint))
          AS is_ours
      )
      DELETE FROM ${table} WHERE (SELECT is_ours FROM turn) AND ${isExpired} AND ctid = ANY (ARRAY(
        SELECT ctid FROM ${table} WHERE ${isExpired} LIMIT ${batch}
      ))
      RETURNING 1`
    return rows.length
  })
  const deleteAll = deleteBatch.pipe(
    Effect.timeout("5 seconds"),
    Effect.repeat({ while: (deleted) => deleted === batch }),
    Effect.catchCause((cause) => Effect.logWarning(options.warning, cause))
  )
  yield* Effect.forkScoped(Effect.repeat(deleteAll, Schedule.spaced("10 minutes")))
})
