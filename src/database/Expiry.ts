import { Clock, Duration, Effect, Schedule } from "effect"
import { SqlClient, type Statement } from "effect/sql"
import { makeCountFailure } from "../observability/MetricConstructors.ts"
import * as AdminShare from "./AdminShare.ts"

const maxRowsPerStatement = 5_000

/**
 * Deletes expired rows every 10 minutes. A row expires when the time in `column` is more than `keptFor` ago by both
 * this process's and PostgreSQL's clock, so that one wrong clock cannot delete a row too early.
 */
export const deleteExpired = Effect.fnUntraced(function*({ column, keptFor = Duration.zero, table, where }: {
  readonly table: string
  readonly column: string
  readonly keptFor?: Duration.Duration
  readonly where?: Statement.Fragment
}) {
  const warning = `Expired rows of the table ${table} cannot be deleted`
  const countFailure = yield* makeCountFailure(`delete_${table}`)
  const sql = yield* SqlClient.SqlClient
  // `SKIP LOCKED` prevents deadlocks, and lets several processes delete at once. `FOR UPDATE` checks the expiry again
  // after it has locked a row, because another process may have extended it.
  const deleteBatch = Effect.gen(function*() {
    const now = new Date(yield* Clock.currentTimeMillis)
    const keptSeconds = Duration.toSeconds(keptFor)
    const isPast = sql`${sql(column)} <= LEAST(${now}::timestamptz, now()) - make_interval(secs => ${keptSeconds})`
    const isExpired = where === undefined ? isPast : sql`${isPast} AND ${where}`
    const rows = yield* sql`
      DELETE FROM ${sql(table)} WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM ${sql(table)} WHERE ${isExpired} LIMIT ${maxRowsPerStatement} FOR UPDATE SKIP LOCKED
      ))
      RETURNING 1`
    return rows.length
  })
  const share = yield* AdminShare.AdminShare
  const deleteAll = AdminShare.within(deleteBatch).pipe(
    Effect.provideService(AdminShare.AdminShare, share),
    Effect.timeout("5 seconds"),
    Effect.repeat({ while: (deleted) => deleted === maxRowsPerStatement }),
    Effect.catchCause((cause) => Effect.andThen(countFailure, Effect.logWarning(warning, cause)))
  )
  yield* Effect.forkScoped(Effect.repeat(deleteAll, Schedule.spaced("10 minutes")))
})
