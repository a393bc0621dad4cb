import { Effect } from "effect"
import { SqlClient } from "effect/sql"

export default Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  yield* sql`
    CREATE TABLE api_keys (
      id text PRIMARY KEY,
      name text NOT NULL,
      plan text NOT NULL CHECK (plan IN ('free', 'pro', 'business', 'enterprise')),
      per_minute integer NOT NULL CHECK (per_minute > 0),
      per_day integer NOT NULL CHECK (per_day > 0),
      created_at timestamptz NOT NULL,
      expires_at timestamptz,
      revoked_at timestamptz,
      last_used_at timestamptz,
      -- The transaction that last changed who may call with the key: processes poll it to forget what they remember.
      changed xid8 NOT NULL DEFAULT pg_current_xact_id()
    )`
  yield* sql`CREATE INDEX api_keys_changed ON api_keys (changed)`
  // A key has more than one secret while a rotated one still works.
  yield* sql`
    CREATE TABLE api_key_secrets (
      hash bytea PRIMARY KEY,
      key_id text NOT NULL REFERENCES api_keys ON DELETE CASCADE,
      expires_at timestamptz
    )`
  yield* sql`CREATE INDEX api_key_secrets_key_id ON api_key_secrets (key_id)`
})
