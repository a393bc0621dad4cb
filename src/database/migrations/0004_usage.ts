/**
 * Tables for usage counts: processes write the counts of each minute to rows of their own, without waiting for each
 * other, and later add them up to totals. The table `key_usage` stays: processes of the previous version write it
 * during the upgrade, and its rows are read until they expire.
 */
export default [
  // A row has counts of one process in one minute, for keys whose ids end with the same two characters (`part`). Its
  // counts are written once. `process` and `number` identify the row, so that a repeated write has no effect.
  `CREATE TABLE key_usage_minutes (
    part text NOT NULL,
    starts_at timestamptz NOT NULL,
    process uuid NOT NULL,
    number bigint NOT NULL,
    is_added_up boolean NOT NULL DEFAULT false,
    keys text[] NOT NULL,
    allowed integer[] NOT NULL,
    rejected integer[] NOT NULL,
    banned integer[] NOT NULL,
    PRIMARY KEY (part, starts_at, process, number)
  )`,
  `CREATE INDEX key_usage_minutes_starts_at ON key_usage_minutes (starts_at)`,
  `CREATE INDEX key_usage_minutes_rest ON key_usage_minutes (part) WHERE NOT is_added_up`,
  // The counts of `key_usage_minutes`, summed over all processes for each hour and each day (`seconds` is the length of
  // the interval). The primary key has `starts_at` before `key_id`, so that in the index, new rows come after the older
  // rows with the same `seconds`. The ranking by each kind of count has an index of its own.
  `CREATE TABLE key_usage_totals (
    seconds integer NOT NULL,
    starts_at timestamptz NOT NULL,
    key_id text NOT NULL,
    allowed bigint NOT NULL,
    rejected bigint NOT NULL,
    banned bigint NOT NULL,
    PRIMARY KEY (seconds, starts_at, key_id)
  )`,
  ...["allowed", "rejected", "banned"].map((kind) =>
    `CREATE INDEX key_usage_totals_${kind} ON key_usage_totals (seconds, starts_at, ${kind} DESC, key_id COLLATE "C")
      WHERE ${kind} > 0`
  )
]
