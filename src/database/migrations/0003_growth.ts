/**
 * Indexes for operators' lists and for pages of pets by status. `IF NOT EXISTS`, because operators of a large database
 * build them before the upgrade, without blocking writes (docs/upgrade.md).
 */
export default [
  `CREATE INDEX IF NOT EXISTS api_keys_name ON api_keys (lower(name) COLLATE "C", id COLLATE "C")`,
  `CREATE INDEX IF NOT EXISTS api_keys_hint ON api_keys (hint)`,
  `CREATE INDEX IF NOT EXISTS audit_log_operator_action ON audit_log (operator, action, at, id)`,
  `ALTER TABLE api_key_secrets SET (fillfactor = 50)`,
  // One index on `id` for each status, instead of one on (status, id). Most inserts append to an index on `id`. In
  // the index on (status, id), most land in the middle, so its pages stay half empty. A pet takes 23 bytes of index
  // instead of 71.
  ...["available", "pending", "sold"].map((status) =>
    `CREATE INDEX IF NOT EXISTS pets_${status} ON pets (id) WHERE status = '${status}'`
  ),
  // A large table keeps its former index, because processes of the previous version use it during the upgrade.
  `DO $$ BEGIN
    IF (SELECT count(*) FROM (SELECT FROM pets LIMIT 100001) AS few) <= 100000 THEN
      DROP INDEX IF EXISTS pets_status_id;
    END IF;
  END $$`
]
