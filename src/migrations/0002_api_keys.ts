import { Effect } from "effect"
import { SqlClient } from "effect/sql"

export default Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  yield* sql`
    CREATE TABLE api_keys (
      id text PRIMARY KEY,
      name text NOT NULL,
      hash bytea NOT NULL UNIQUE,
      plan text NOT NULL CHECK (plan IN ('free', 'pro', 'business', 'enterprise')),
      per_minute integer CHECK (per_minute > 0),
      per_day integer CHECK (per_day > 0),
      created_at timestamptz NOT NULL,
      expires_at timestamptz,
      revoked_at timestamptz,
      CHECK (num_nonnulls(per_minute, per_day) = CASE plan WHEN 'enterprise' THEN 2 ELSE 0 END)
    )`
})
