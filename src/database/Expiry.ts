/** What has ended goes from the database, behind the requests. */
import { Clock, Effect, Schedule } from "effect"
import { SqlClient } from "effect/sql"

/** A few thousand rows at a time, so that no statement takes long. */
const batch = 5_000

/** Removes, every 10 minutes for as long as the scope lasts, the rows of `table` whose `column` has come. */
export const sweep = Effect.fnUntraced(function*(options: {
  readonly table: string
  readonly column: string
  /** What the log says when it fails. */
  readonly warning: string
}) {
  const sql = yield* SqlClient.SqlClient
  const [table, column] = [sql(options.table), sql(options.column)]
  /** How many it removed. A row that was given another end meanwhile stays. */
  const removeSome = Effect.gen(function*() {
    const now = new Date(yield* Clock.currentTimeMillis)
    const rows = yield* sql`
      DELETE FROM ${table} WHERE ${column} <= ${now}
      AND ctid = ANY (ARRAY(SELECT ctid FROM ${table} WHERE ${column} <= ${now} LIMIT ${batch}))
      RETURNING 1`
    return rows.length
  })
  const removeEnded = removeSome.pipe(
    Effect.timeout("5 seconds"),
    Effect.repeat({ while: (removed) => removed === batch }),
    Effect.catchCause((cause) => Effect.logWarning(options.warning, cause))
  )
  yield* Effect.forkScoped(Effect.repeat(removeEnded, Schedule.spaced("10 minutes")))
})
