import { Effect } from "effect"
import { SqlClient } from "effect/sql"

export default Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  // Serves a page of keys, oldest first, without a sort. The order of ids is that of their bytes, whatever the locale.
  // The index has no column that the use of a key changes, so that `last_used_at` is still updated in place.
  yield* sql`CREATE INDEX api_keys_created ON api_keys (created_at, id COLLATE "C")`
  // Finds the expired secrets of rotated keys. The current secret of a key has no end, and no entry here.
  yield* sql`CREATE INDEX api_key_secrets_expires_at ON api_key_secrets (expires_at) WHERE expires_at IS NOT NULL`
})
