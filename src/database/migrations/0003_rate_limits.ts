import { Effect } from "effect"
import { SqlClient } from "effect/sql"

export default Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  yield* sql`
    CREATE TABLE rate_limits (
      caller text PRIMARY KEY,
      -- What rate-limit/Rule.ts keeps of a caller, in milliseconds since the Unix epoch.
      state jsonb NOT NULL,
      -- From then on nothing of it counts.
      ends_at timestamptz NOT NULL
    )`
  yield* sql`CREATE INDEX rate_limits_ends_at ON rate_limits (ends_at)`
})
