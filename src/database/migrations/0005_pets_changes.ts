import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/**
 * Reports to every process, within a second, that an operator changed or deleted pets. The service never does either.
 */
export default Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  yield* sql`
    CREATE TABLE pets_changes (
      -- One row a transaction: no operator waits for another.
      transaction xid8 PRIMARY KEY DEFAULT pg_current_xact_id(),
      -- Every process has seen it by then.
      ends_at timestamptz NOT NULL DEFAULT now() + interval '3 hours'
    )`
  yield* sql`
    CREATE FUNCTION pets_changed() RETURNS trigger LANGUAGE plpgsql
    -- Whatever role changes animals, and whatever its search_path.
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    BEGIN
      EXECUTE format('INSERT INTO %I.pets_changes DEFAULT VALUES ON CONFLICT DO NOTHING', TG_TABLE_SCHEMA);
      RETURN NULL;
    END $$`
  yield* sql`
    CREATE TRIGGER pets_changed AFTER UPDATE OR DELETE OR TRUNCATE ON pets
    FOR EACH STATEMENT EXECUTE FUNCTION pets_changed()`
  yield* sql`ALTER TABLE pets ENABLE ALWAYS TRIGGER pets_changed`
})
