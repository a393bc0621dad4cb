import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/**
 * Every change of a key reaches every process within a second, also one that an operator makes in SQL. So does a pet
 * whose id an operator sets below 1, which comes before the first page of the others. A TRUNCATE needs no trigger: it
 * replaces the table's file.
 */
export default Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient

  yield* sql`
    CREATE FUNCTION api_keys_set_changed() RETURNS trigger LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    BEGIN
      NEW.changed := pg_current_xact_id();
      RETURN NEW;
    END $$`
  // The condition leaves out last_used_at, which the service writes all the time. It is part of the trigger, since a
  // call of the function costs more than the update of a row.
  yield* sql`
    CREATE TRIGGER api_keys_set_changed BEFORE UPDATE ON api_keys FOR EACH ROW
    WHEN (
      (OLD.id, OLD.name, OLD.plan, OLD.per_minute, OLD.per_day, OLD.created_at, OLD.expires_at, OLD.revoked_at)
      IS DISTINCT FROM
      (NEW.id, NEW.name, NEW.plan, NEW.per_minute, NEW.per_day, NEW.created_at, NEW.expires_at, NEW.revoked_at)
    )
    EXECUTE FUNCTION api_keys_set_changed()`

  yield* sql`
    CREATE TABLE api_keys_changes (
      transaction xid8 DEFAULT pg_current_xact_id(),
      -- The key that was deleted, or whose secrets were changed.
      key_id text,
      -- Every process has read the row by then.
      ends_at timestamptz NOT NULL DEFAULT clock_timestamp() + interval '3 hours',
      PRIMARY KEY (transaction, key_id)
    )`
  yield* sql`
    CREATE FUNCTION api_keys_changed() RETURNS trigger LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    BEGIN
      -- The argument is the column that has the id of the key.
      EXECUTE format(
        'INSERT INTO %I.api_keys_changes (key_id) VALUES ($1) ON CONFLICT DO NOTHING', TG_TABLE_SCHEMA
      ) USING CASE TG_OP WHEN 'INSERT' THEN to_jsonb(NEW) ELSE to_jsonb(OLD) END ->> TG_ARGV[0];
      RETURN NULL;
    END $$`
  yield* sql`
    CREATE TRIGGER api_keys_changed AFTER DELETE ON api_keys
    FOR EACH ROW EXECUTE FUNCTION api_keys_changed('id')`
  yield* sql`
    CREATE TRIGGER api_key_secrets_changed AFTER INSERT OR UPDATE OR DELETE ON api_key_secrets
    FOR EACH ROW EXECUTE FUNCTION api_keys_changed('key_id')`

  yield* sql`
    CREATE TRIGGER pets_inserted_below AFTER INSERT ON pets
    FOR EACH ROW WHEN (NEW.id < 1) EXECUTE FUNCTION pets_changed()`

  // Also where a session replicates.
  yield* sql`ALTER TABLE api_keys ENABLE ALWAYS TRIGGER api_keys_set_changed`
  yield* sql`ALTER TABLE api_keys ENABLE ALWAYS TRIGGER api_keys_changed`
  yield* sql`ALTER TABLE api_key_secrets ENABLE ALWAYS TRIGGER api_key_secrets_changed`
  yield* sql`ALTER TABLE pets ENABLE ALWAYS TRIGGER pets_inserted_below`
})
