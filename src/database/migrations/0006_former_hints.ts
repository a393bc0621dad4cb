/** The last four characters of a former secret. `NULL` for the current one, whose hint is in `api_keys`. */
export default [`ALTER TABLE api_key_secrets ADD COLUMN hint text`]
