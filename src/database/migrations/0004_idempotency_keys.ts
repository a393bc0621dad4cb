import { Effect } from "effect"
import { SqlClient } from "effect/sql"

export default Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  yield* sql`
    CREATE TABLE idempotency_keys (
      owner text NOT NULL,
      key text NOT NULL,
      request bytea NOT NULL,
      pet_id bigint NOT NULL,
      expires_at timestamptz NOT NULL,
      PRIMARY KEY (owner, key)
    )`
  yield* sql`CREATE INDEX idempotency_keys_expires_at ON idempotency_keys (expires_at)`
})
