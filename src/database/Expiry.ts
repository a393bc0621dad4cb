/** Deletes expired rows in the background, in one process at a time. */
import { Clock, Duration, Effect, Schedule } from "effect"
import { SqlClient, type Statement } from "effect/sql"
import * as BackgroundTask from "./BackgroundTask.ts"

/** The maximum of rows that one statement deletes, which bounds its time. */
const batch = 5_000

/**
 * Deletes, every 10 minutes until the scope closes, the rows of `table` whose `column` is `keptFor` in the past. Both
 * the process's and the server's clock must agree, because a row that one wrong clock deletes too early is lost.
 */
export const deleteExpired = Effect.fnUntraced(function*(options: {
  readonly table: string
  readonly column: string
  /** By default nothing is kept. */
  readonly keptFor?: Duration.Duration
  /** A condition that the rows must also meet. */
  readonly where?: Statement.Fragment
  /** The warning to log after a failure. */
  readonly warning: string
}) {
  const countFailure = yield* BackgroundTask.makeCountFailure(`delete_${options.table}`)
  const sql = yield* SqlClient.SqlClient
  const [table, column] = [sql(options.table), sql(options.column)]
  /**
   * Deletes one batch and returns the number of its rows: 0 while another process deletes. The statement takes an
   * advisory lock that ends with its transaction, so it works behind a pooler. A row that got a later time meanwhile
   * stays. Rows that another statement has locked wait for the next run, so that no two statements wait for each other.
   */
  const deleteBatch = Effect.gen(function*() {
    const now = new Date(yield* Clock.currentTimeMillis)
    const keptSeconds = Duration.toSeconds(options.keptFor ?? Duration.zero)
    const isPast = sql`${column} <= LEAST(${now}::timestamptz, now()) - make_interval(secs => ${keptSeconds})`
    const isExpired = options.where === undefined ? isPast : sql`${isPast} AND ${options.where}`
    const rows = yield* sql`
      WITH turn AS MATERIALIZED (
        SELECT pg_try_advisory_xact_lock(hashtextextended('petstore expiry', ${options.table}::regclass::oid::bigint))
          AS is_ours
      )
      DELETE FROM ${table} WHERE (SELECT is_ours FROM turn) AND ${isExpired} AND ctid = ANY (ARRAY(
        SELECT ctid FROM ${table} WHERE ${isExpired} LIMIT ${batch} FOR UPDATE SKIP LOCKED
      ))
      RETURNING 1`
    return rows.length
  })
  const deleteAll = deleteBatch.pipe(
    Effect.timeout("5 seconds"),
    Effect.repeat({ while: (deleted) => deleted === batch }),
    Effect.catchCause((cause) => Effect.andThen(countFailure, Effect.logWarning(options.warning, cause)))
  )
  yield* Effect.forkScoped(Effect.repeat(deleteAll, Schedule.spaced("10 minutes")))
})
