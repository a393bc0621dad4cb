export default [
  `ALTER TABLE api_keys ADD COLUMN enabled boolean NOT NULL DEFAULT true`,
  `ALTER TABLE api_key_secrets ADD COLUMN last_used_at timestamptz(3)`,
  `CREATE INDEX audit_log_operator ON audit_log (operator, at, id)`,
  `CREATE INDEX audit_log_action ON audit_log (action, at, id)`
]
