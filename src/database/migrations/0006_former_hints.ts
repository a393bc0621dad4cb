/**
 * Adds the last four characters of a former secret. They are `NULL` for the current secret, whose hint is in
 * `api_keys`, and for secrets that a version before this migration replaced.
 */
export default [`ALTER TABLE api_key_secrets ADD COLUMN hint text`]
