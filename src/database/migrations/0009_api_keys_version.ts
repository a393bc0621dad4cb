import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/**
 * Adds the version of a key, which each change of the key increments. An operator can make the change in SQL, or a
 * process of an earlier version. Adds the last four characters of the current secret.
 */
export default Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  // Constant defaults rewrite no row.
  yield* sql`ALTER TABLE api_keys ADD COLUMN version integer NOT NULL DEFAULT 1, ADD COLUMN hint text`
  yield* sql`
    CREATE OR REPLACE FUNCTION api_keys_set_changed() RETURNS trigger LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    BEGIN
      NEW.changed := pg_current_xact_id();
      NEW.version := OLD.version + 1;
      RETURN NEW;
    END $$`
  yield* sql`DROP TRIGGER api_keys_set_changed ON api_keys`
  yield* sql`
    CREATE TRIGGER api_keys_set_changed BEFORE UPDATE ON api_keys FOR EACH ROW
    WHEN (
      (OLD.id, OLD.name, OLD.plan, OLD.per_minute, OLD.per_day, OLD.created_at, OLD.expires_at, OLD.revoked_at,
        OLD.version, OLD.hint)
      IS DISTINCT FROM
      (NEW.id, NEW.name, NEW.plan, NEW.per_minute, NEW.per_day, NEW.created_at, NEW.expires_at, NEW.revoked_at,
        NEW.version, NEW.hint)
    )
    EXECUTE FUNCTION api_keys_set_changed()`
  yield* sql`ALTER TABLE api_keys ENABLE ALWAYS TRIGGER api_keys_set_changed`
})
