/** Where the states of callers outlive the process. */
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import type { Caller } from "./Callers.ts"
import * as Rule from "./Rule.ts"

export interface StateStore {
  /** All states that still count at `now`, in milliseconds since the Unix epoch. */
  load(now: number): Effect.Effect<ReadonlyArray<readonly [caller: Caller, state: Rule.State]>>
  save(states: ReadonlyMap<Caller, Rule.State>): Effect.Effect<void>
}

const rowsAtOnce = 50_000

export const sqlStore = Effect.map(SqlClient.SqlClient, (sql): StateStore => ({
  load: Effect.fnUntraced(function*(now) {
    const states: Array<readonly [Caller, Rule.State]> = []
    let rows: ReadonlyArray<{ readonly caller: Caller; readonly state: Rule.State }>
    do {
      // In parts, each of which a statement has the time for.
      rows = yield* sql<typeof rows[number]>`
        SELECT caller, state FROM rate_limits
        WHERE caller > ${states.at(-1)?.[0] ?? ""} AND ends_at > ${new Date(now)}
        ORDER BY caller LIMIT ${sql.literal(String(rowsAtOnce))}`
      for (const { caller, state } of rows) states.push([caller, state])
    } while (rows.length === rowsAtOnce)
    return states
  }, Effect.orDie),
  save: (states) => {
    // The end as a number, exact to the millisecond: with a text this process takes twice as long to write the rows.
    const rows = [...states].map(([caller, state]) => ({ caller, state, ends_at: Rule.endOf(state) }))
    return sql`
      INSERT INTO rate_limits (caller, state, ends_at)
      SELECT caller, state, to_timestamp(ends_at / 1000)
      FROM jsonb_to_recordset(${JSON.stringify(rows)}::text::jsonb) AS t (caller text, state jsonb, ends_at float8)
      ON CONFLICT (caller) DO UPDATE SET state = excluded.state, ends_at = excluded.ends_at
    `.pipe(Effect.asVoid, Effect.orDie)
  }
}))
