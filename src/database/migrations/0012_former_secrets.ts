import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/**
 * Adds the former secrets of keys, so that an operator finds the key of a leaked secret that has ended. A trigger
 * inserts them, also for processes of an earlier version and for an operator who deletes secrets in SQL.
 */
export default Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  yield* sql`
    CREATE TABLE former_secrets (
      hash bytea PRIMARY KEY,
      key_id text NOT NULL REFERENCES api_keys ON UPDATE CASCADE ON DELETE CASCADE,
      ended_at timestamptz NOT NULL,
      ends_at timestamptz NOT NULL DEFAULT now() + interval '400 days'
    )`
  yield* sql`CREATE INDEX former_secrets_key_id ON former_secrets (key_id)`
  yield* sql`CREATE INDEX former_secrets_ends_at ON former_secrets (ends_at)`
  yield* sql`
    CREATE FUNCTION keep_former_secret() RETURNS trigger LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    BEGIN
      -- The secrets of a deleted key are deleted after the key.
      EXECUTE format(
        'INSERT INTO %1$I.former_secrets (hash, key_id, ended_at)
          SELECT $1, id, $3 FROM %1$I.api_keys WHERE id = $2 ON CONFLICT DO NOTHING', TG_TABLE_SCHEMA
      ) USING OLD.hash, OLD.key_id, LEAST(OLD.expires_at, now());
      RETURN NULL;
    END $$`
  yield* sql`
    CREATE TRIGGER keep_former_secret AFTER DELETE ON api_key_secrets
    FOR EACH ROW EXECUTE FUNCTION keep_former_secret()`
  // PostgreSQL checks this right when a trigger is created. With it, a role that can only create temporary
  // tables could make these functions their triggers. Then its own code runs as the owner.
  yield* sql`
    REVOKE EXECUTE ON FUNCTION pets_changed(), api_keys_set_changed(), api_keys_changed(), keep_former_secret()
    FROM PUBLIC`
})
