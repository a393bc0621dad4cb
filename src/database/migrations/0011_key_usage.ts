import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/** Adds the usage of keys over time, in minutes and in hours. */
export default Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  yield* sql`
    CREATE TABLE key_usage (
      key_id text NOT NULL,
      -- The length of the interval: 60 or 3600.
      seconds integer NOT NULL,
      starts_at timestamptz NOT NULL,
      allowed bigint NOT NULL,
      rejected bigint NOT NULL,
      banned bigint NOT NULL,
      ends_at timestamptz NOT NULL,
      PRIMARY KEY (key_id, seconds, starts_at)
    )
    -- Updates of the counts find space in their page, so they change no index.
    WITH (fillfactor = 70)`
  yield* sql`CREATE INDEX key_usage_ends_at ON key_usage (ends_at)`
})
