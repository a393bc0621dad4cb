import { Clock, DateTime, Duration, Effect, Layer, Schedule, Schema, Struct } from "effect"
import { SqlClient } from "effect/sql"
import { randomUUID } from "node:crypto"
import { databaseErrors } from "../api/DatabaseErrors.ts"
import { KeyTotals } from "../api/Usage.ts"
import * as AdminShare from "../database/AdminShare.ts"
import { BackgroundFailures } from "../database/BackgroundFailures.ts"
import * as Expiry from "../database/Expiry.ts"
import * as Rows from "../database/Rows.ts"
import * as KeyUsage from "./KeyUsage.ts"

const TotalsRow = Schema.Struct(Struct.omit(KeyTotals.fields, ["name", "plan"]))
const UsageRow = Schema.Struct({
  ...Struct.omit(TotalsRow.fields, ["keyId"]),
  seconds: Schema.Int,
  from: Schema.DateTimeUtcFromDate
})

/**
 * A statement of `addUp` takes at most `rowsPerAddUp` rows of at most `maxKeysPerRow` keys each. So it updates at most
 * 20,000 totals: for each key of a row, one of an hour and one of a day.
 */
const maxKeysPerRow = 100
const rowsPerAddUp = 100
/**
 * A run of `addUp` starts no further statement after this time, so that adding up takes a small share of a core. A
 * timer starts a run 10 seconds after its last one has ended, and each flush that has written its counts starts one.
 */
const addUpMs = 100
/**
 * The time between runs of a process that knows of no rows to add up (`hasRest`). Such a run is for the rows of
 * processes that exited before they added them up.
 */
const intervalWithoutRowsMs = 60_000

/**
 * Returns the rows of `key_usage_minutes` for a batch. Each row has up to `maxKeysPerRow` keys of one minute and one
 * part (`partOf`). A retry of the batch gets the same rows, with the same primary keys.
 */
const rowsOf = ({ counts, number }: Parameters<KeyUsage.UsageStore["add"]>[0]) => {
  const groups = Map.groupBy(counts, ({ keyId, minute }) => `${minute} ${KeyUsage.partOf(keyId)}`)
  let first = number
  return [...groups.values()].flatMap((group) =>
    Array.from({ length: Math.ceil(group.length / maxKeysPerRow) }, (_, index) => {
      const part = group.slice(index * maxKeysPerRow, (index + 1) * maxKeysPerRow)
      const [{ keyId, minute } = { keyId: "", minute: 0 }] = part
      first += part.length
      return {
        part: KeyUsage.partOf(keyId),
        minute,
        number: first,
        keys: part.map((each) => each.keyId),
        allowed: part.map(({ allowed }) => allowed),
        rejected: part.map(({ rejected }) => rejected),
        banned: part.map(({ banned }) => banned)
      }
    })
  )
}

export const makeStore = Effect.fnUntraced(function*(retention: Duration.Duration) {
  const sql = yield* SqlClient.SqlClient
  const withinDeadline = yield* AdminShare.makeDeadline(databaseErrors)
  const withinShare = yield* AdminShare.AdminShare
  const { days, hours, minutes } = KeyUsage.resolutions
  const process = randomUUID()
  const counts = sql.literal("u.allowed, u.rejected, u.banned")
  const sums = sql.literal(
    "sum(allowed)::float8 AS allowed, sum(rejected)::float8 AS rejected, sum(banned)::float8 AS banned"
  )
  /** Turns the arrays of each row `m` of `key_usage_minutes` into one row for each key. */
  const eachKey = sql.literal(
    "unnest(m.keys, m.allowed, m.rejected, m.banned) AS u (key_id, allowed, rejected, banned)"
  )
  /** The start of the interval of `r.seconds` (a minute, an hour or a day) that contains the row `m`. */
  const intervalStart = sql.literal("to_timestamp(floor(extract(epoch FROM m.starts_at) / r.seconds) * r.seconds)")

  /** The `part` at which the next statement begins. */
  let position = ""
  /** Whether this process knows of rows to add up. If not, runs before `nextRunAt` do nothing. */
  let hasRest = true
  let nextRunAt = 0
  /**
   * Adds the next rows of `key_usage_minutes`, in the order of `part`, to the totals of their hours and days. The
   * statement first sums the rows of several minutes and processes, so it updates each total once. `SKIP LOCKED` lets
   * several processes add up different rows at once. `ORDER BY` makes them lock totals in the same order, so that they
   * cannot deadlock.
   */
  const addUpRows = Effect.map(
    Effect.suspend(() =>
      sql<{ readonly part: string }>`
        WITH taken AS MATERIALIZED (
          SELECT part, starts_at, process, number FROM key_usage_minutes WHERE NOT is_added_up AND part >= ${position}
          ORDER BY part LIMIT ${sql.literal(String(rowsPerAddUp))} FOR UPDATE SKIP LOCKED
        ), m AS (
          UPDATE key_usage_minutes AS u SET is_added_up = true FROM taken AS t
          WHERE (u.part, u.starts_at, u.process, u.number) = (t.part, t.starts_at, t.process, t.number)
          RETURNING u.starts_at, u.keys, u.allowed, u.rejected, u.banned
        ), added AS (
          INSERT INTO key_usage_totals AS total (seconds, starts_at, key_id, allowed, rejected, banned)
          SELECT r.seconds, ${intervalStart}, u.key_id, sum(u.allowed), sum(u.rejected), sum(u.banned)
          FROM m, ${eachKey}, (VALUES (${hours.seconds}::int), (${days.seconds}::int)) AS r (seconds)
          GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
          ON CONFLICT (seconds, starts_at, key_id) DO UPDATE SET
            allowed = total.allowed + excluded.allowed,
            rejected = total.rejected + excluded.rejected,
            banned = total.banned + excluded.banned
        )
        SELECT part FROM taken ORDER BY part`
    ),
    (rows) => {
      hasRest = rows.length === rowsPerAddUp
      position = hasRest ? rows.at(-1)?.part ?? "" : ""
    }
  ).pipe(withinShare, Effect.timeout("5 seconds"))

  const countFailure = yield* (yield* BackgroundFailures).makeCounter("add_up_key_usage")
  const addUp = Effect.gen(function*() {
    const now = yield* Clock.currentTimeMillis
    if (!hasRest && now < nextRunAt) return
    const startedAt = performance.now()
    yield* Effect.repeat(addUpRows, { while: () => hasRest && performance.now() - startedAt < addUpMs })
    nextRunAt = now + intervalWithoutRowsMs
  }).pipe(
    Effect.catchCause((cause) => Effect.andThen(countFailure, Effect.logWarning("Usage cannot be added up", cause)))
  )

  const store: KeyUsage.UsageStore = {
    // If an earlier attempt was committed, a retry finds its rows and inserts nothing. Rows stay for at least two hours
    // after the start of their minute, also if they are added up earlier.
    add: (batch) =>
      sql`
        INSERT INTO key_usage_minutes (part, starts_at, process, number, keys, allowed, rejected, banned)
        SELECT part, to_timestamp(minute / 1000), ${process}::text::uuid, number, keys, allowed, rejected, banned
        FROM jsonb_to_recordset(${JSON.stringify(rowsOf(batch))}::text::jsonb)
          AS t (part text, minute bigint, number bigint, keys text[], allowed int[], rejected int[], banned int[])
        ON CONFLICT DO NOTHING
      `.pipe(
        Effect.map(() => {
          hasRest = true
        }),
        withinShare
      ),
    addUp,
    // Minutes come from `key_usage_minutes`. Hours come from the totals, and from the rows of `key_usage_minutes` that
    // are not yet added to them. Versions of the service before schema version 4 count both in `key_usage`.
    read: (keyId, now) => {
      const firstHour = new Date(KeyUsage.startOf(now, hours.seconds) - (hours.keptSeconds - hours.seconds) * 1_000)
      const intervals = sql`
        SELECT seconds, starts_at AS "from", ${sums} FROM (
          SELECT r.seconds, ${intervalStart} AS starts_at, ${counts}
          FROM key_usage_minutes AS m, ${eachKey},
            (VALUES (${minutes.seconds}::int), (${hours.seconds}::int)) AS r (seconds)
          WHERE m.part = ${KeyUsage.partOf(keyId)} AND u.key_id = ${keyId}
            AND (r.seconds = ${minutes.seconds} OR NOT m.is_added_up)
          UNION ALL
          SELECT u.seconds, u.starts_at, ${counts}
          FROM generate_series(${firstHour}::timestamptz, ${new Date(
        now
      )}::timestamptz + interval '1 hour', '1 hour') AS hour
          JOIN key_usage_totals AS u ON u.seconds = ${hours.seconds} AND u.starts_at = hour AND u.key_id = ${keyId}
          UNION ALL
          SELECT u.seconds, u.starts_at, ${counts} FROM key_usage AS u WHERE u.key_id = ${keyId}
        ) AS u GROUP BY seconds, starts_at ORDER BY starts_at`
      return Effect.map(withinDeadline(Rows.decode("key_usage", UsageRow, intervals)), (rows) => {
        const of = (length: number) => rows.filter(({ seconds }) => seconds === length)
        return { minutes: of(minutes.seconds), hours: of(hours.seconds) }
      })
    },
    // Only these keys can be in the result, so no other totals are read: the first `limit` keys by their totals, and
    // the keys with recent counts. Recent counts are those in `pending`, and those that a version before schema version
    // 4 wrote to `key_usage`.
    top: ({ by, limit, seconds, since }, pending) => {
      // A literal instead of a parameter, so that the query planner knows that it needs few rows of the index.
      const limited = sql.literal(`LIMIT ${limit}`)
      const totals = sql`FROM key_usage_totals AS u WHERE u.seconds = ${seconds} AND u.starts_at = ${
        DateTime.toDateUtc(since)
      }`
      return withinDeadline(Rows.decode(
        "key_usage_totals",
        TotalsRow,
        sql`
        WITH recent AS MATERIALIZED (
          SELECT key_id, sum(allowed) AS allowed, sum(rejected) AS rejected, sum(banned) AS banned FROM (
            SELECT key_id, allowed, rejected, banned FROM key_usage
            WHERE seconds = ${hours.seconds} AND starts_at >= ${DateTime.toDateUtc(since)}
            UNION ALL
            SELECT "keyId", allowed, rejected, banned FROM jsonb_to_recordset(${JSON.stringify(pending)}::text::jsonb)
              AS t ("keyId" text, allowed bigint, rejected bigint, banned bigint)
          ) AS counts GROUP BY key_id
        ), first AS MATERIALIZED (
          SELECT u.key_id, ${counts} ${totals} AND ${sql(by)} > 0
          ORDER BY ${sql(by)} DESC, key_id COLLATE "C" ${limited}
        )
        SELECT key_id AS "keyId", ${sums} FROM (
          SELECT * FROM first
          UNION ALL SELECT * FROM recent
          UNION ALL SELECT u.* FROM recent CROSS JOIN LATERAL (
            SELECT u.key_id, ${counts} ${totals} AND u.key_id = recent.key_id OFFSET 0
          ) AS u WHERE recent.key_id NOT IN (SELECT key_id FROM first)
        ) AS counts
        GROUP BY key_id HAVING sum(${sql(by)}) > 0 ORDER BY sum(${sql(by)}) DESC, key_id COLLATE "C" ${limited}`
      ))
    }
  }

  const deleteExpired = (table: string, seconds: number, keptFor: Duration.Duration) =>
    Expiry.deleteExpired({
      table,
      key: ["seconds", "starts_at", "key_id"],
      column: "starts_at",
      where: sql`seconds = ${seconds}`,
      keptFor
    })
  yield* deleteExpired("key_usage", minutes.seconds, Duration.seconds(minutes.keptSeconds))
  yield* deleteExpired("key_usage", hours.seconds, retention)
  yield* deleteExpired("key_usage_totals", hours.seconds, retention)
  yield* deleteExpired("key_usage_totals", days.seconds, Duration.seconds(days.keptSeconds))
  // Readers need an hour of minutes. Keep two, so that a retry after an outage of up to an hour still finds the rows of
  // an earlier attempt.
  yield* Expiry.deleteExpired({
    table: "key_usage_minutes",
    key: ["part", "starts_at", "process", "number"],
    column: "starts_at",
    where: sql`is_added_up`,
    keptFor: Duration.seconds(2 * minutes.keptSeconds)
  })
  yield* Effect.forkScoped(Effect.repeat(addUp, Schedule.spaced("10 seconds")))
  return store
})

export const layer = (retention: Duration.Duration) =>
  Layer.effect(KeyUsage.KeyUsage, Effect.flatMap(makeStore(retention), KeyUsage.make))
