/**
 * Each process saves the rate-limit states of keys to rows of its own. `rate_limits` stays for processes of the
 * previous version. This migration copies its unexpired states of keys once, as rows of process 0. A process loads such
 * a row for a key that no process has saved since then.
 */
export default [
  // `fillfactor` leaves space in pages, so that most updates need not change indexes (HOT).
  `CREATE TABLE key_limits (
    key_id text NOT NULL,
    process bigint NOT NULL,
    seq bigint NOT NULL,
    saved_at timestamptz NOT NULL,
    ends_at timestamptz NOT NULL,
    state text NOT NULL,
    PRIMARY KEY (key_id, process)
  ) WITH (fillfactor = 50)`,
  `INSERT INTO key_limits (key_id, process, seq, saved_at, ends_at, state)
    SELECT substr(caller, 5), 0, 0, now(), ends_at, state::text FROM rate_limits
    WHERE caller LIKE 'key:%' AND ends_at > now()`,
  `CREATE INDEX key_limits_ends_at ON key_limits (ends_at)`
]
