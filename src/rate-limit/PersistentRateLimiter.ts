import { Clock, Duration, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import * as Expiry from "../database/Expiry.ts"
import * as Rows from "../database/Rows.ts"
import * as WriteBehind from "../database/WriteBehind.ts"
import { histogramOfSeconds } from "../observability/MetricConstructors.ts"
import * as Policy from "./Policy.ts"
import * as RateLimiter from "./RateLimiter.ts"

const writes = histogramOfSeconds("rate_limit_write_duration", "Duration of writes of request counts to the database.")

const Row = Schema.Struct({ caller: Schema.TemplateLiteral(["key:", Schema.String]), state: Policy.State })

const maxRowsPerQuery = 50_000

const make = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  const callers = yield* RateLimiter.makeStates
  let [last, count] = ["", 0]
  do {
    const page = sql`
      SELECT caller, state FROM rate_limits
      WHERE caller > ${last} ORDER BY caller LIMIT ${sql.literal(String(maxRowsPerQuery))}`
    const rows = yield* Effect.orDie(Rows.decode("rate_limits", Row, page))
    for (const { caller, state } of rows) callers.set(last = caller, state)
    count = rows.length
  } while (count === maxRowsPerQuery)

  const save = (states: ReadonlyMap<RateLimiter.Caller, Policy.State>) => {
    const rows = Array.from(states, ([caller, state]) => ({ caller, state, ends_at: Policy.endOf(state) }))
    return sql`
      INSERT INTO rate_limits (caller, state, ends_at)
      SELECT caller, state, to_timestamp(ends_at / 1000)
      FROM jsonb_to_recordset(${JSON.stringify(rows)}::text::jsonb) AS t (caller text, state jsonb, ends_at float8)
      ON CONFLICT (caller) DO UPDATE SET state = excluded.state, ends_at = excluded.ends_at
    `.pipe(Effect.asVoid, Effect.trackDuration(writes, Duration.toSeconds))
  }
  const changed = yield* WriteBehind.make({
    table: "rate_limits",
    // If a flush takes at most 500 ms, a crash loses at most one second of counts: this interval plus a flush.
    interval: "500 millis",
    write: save
  })
  yield* Expiry.deleteExpired({ table: "rate_limits", key: ["caller"], column: "ends_at" })
  return RateLimiter.make(callers, yield* Clock.Clock, changed.add)
})

export const layer = Layer.effect(RateLimiter.RateLimiter, make)
