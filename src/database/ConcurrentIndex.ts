/** Indexes of tables that requests write to. */
import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/**
 * Creates the index `name` on `definition`, as `pets (status, id)`, while other processes write to the table. A
 * migration that uses it must export `transactional = false`. An attempt that failed leaves an invalid index, which is
 * dropped first; a valid one is kept.
 */
export const create = Effect.fnUntraced(function*(name: string, definition: string) {
  const sql = yield* SqlClient.SqlClient
  const [index] = yield* sql<{ readonly isValid: boolean }>`
    SELECT indisvalid AS "isValid" FROM pg_index WHERE indexrelid = to_regclass(${name})`
  if (index?.isValid === true) return
  if (index !== undefined) yield* sql`DROP INDEX CONCURRENTLY ${sql(name)}`
  yield* sql`CREATE INDEX CONCURRENTLY ${sql(name)} ON ${sql.literal(definition)}`
})
