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

export const sqlStore = Effect.map(SqlClient.SqlClient, (sql): StateStore => ({
  load: (now) =>
    sql<{ readonly caller: Caller; readonly state: Rule.State }>`
      SELECT caller, state FROM rate_limits WHERE ends_at > ${new Date(now)}
    `.pipe(
      Effect.map((rows) => rows.map(({ caller, state }) => [caller, state] as const)),
      Effect.orDie
    ),
  save: (states) => {
    const rows = [...states].map(([caller, state]) => ({ caller, state, ends_at: new Date(Rule.endOf(state)) }))
    return sql`
      INSERT INTO rate_limits (caller, state, ends_at)
      SELECT caller, state, ends_at
      FROM jsonb_to_recordset(${JSON.stringify(rows)}::text::jsonb) AS t (caller text, state jsonb, ends_at timestamptz)
      ON CONFLICT (caller) DO UPDATE SET state = excluded.state, ends_at = excluded.ends_at
    `.pipe(Effect.asVoid, Effect.orDie)
  }
}))
