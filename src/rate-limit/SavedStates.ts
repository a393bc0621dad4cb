/**
 * Provides the rate limiter that decides in memory (`KeyStates.ts`), and saves the states of keys to the table
 * `key_limits`. Each process writes its own row for a key. A state comes into memory with the lookup of its key
 * (`StateLookups.ts`), or else by the first call for the key (`KeyStates.load`).
 */
import { Clock, Duration, Effect, Layer, type Metric, Random, Result, Schema } from "effect"
import { SqlClient } from "effect/sql"
import type { OutageErrors } from "../database/Deadline.ts"
import * as Expiry from "../database/Expiry.ts"
import * as Outage from "../database/Outage.ts"
import * as Rows from "../database/Rows.ts"
import * as KeyStates from "./KeyStates.ts"
import * as Policy from "./Policy.ts"
import { type Caller, RateLimiter, type Unavailable } from "./RateLimiter.ts"
import { type StateLookup, StateLookups } from "./StateLookups.ts"

const StateText = Schema.fromJsonString(Policy.State)
const Row = Schema.Struct({ keyId: Schema.String, state: StateText })
const decodeState = Schema.decodeUnknownResult(StateText)

const prefix = "key:"
const callerOf = (keyId: string): Caller => `${prefix}${keyId}`

interface Options {
  /** How `charge`, `peek` and `unban` of an API key fail during an outage of the database. */
  readonly errors: OutageErrors<Unavailable>
  /** The durations of writes, in seconds. */
  readonly writeDurations: Metric.Histogram<number>
}

const make = Effect.fnUntraced(function*({ errors, writeDurations }: Options) {
  const sql = yield* SqlClient.SqlClient
  // Each start gets a new random number. So a process has no rows of its own at first, and continues each key from the
  // state that was saved last, by whichever process.
  const process = sql`${String(yield* Random.nextInt)}::text::bigint`
  const ownElseLastSaved = sql`process = ${process} DESC, saved_at DESC`

  const keyStates = yield* KeyStates.make({
    table: "key_limits",
    unavailable: errors.unavailable,
    load: (callers) => {
      const keyIds = JSON.stringify(callers.map((caller) => caller.slice(prefix.length)))
      const rows = sql`
        SELECT DISTINCT ON (key_id) key_id AS "keyId", state FROM key_limits
        WHERE key_id IN (SELECT jsonb_array_elements_text(${keyIds}::text::jsonb))
        ORDER BY key_id, ${ownElseLastSaved}`
      return Rows.decode("key_limits", Row, rows).pipe(
        Effect.map((found) => new Map(found.map(({ keyId, state }) => [callerOf(keyId), state]))),
        Outage.failWith(errors)
      )
    },
    // A process writes only its own rows, and `seq` ascends with each save. So a statement that commits late cannot
    // overwrite a newer state.
    save: (states, seq) => {
      const rows = Array.from(states, ([caller, state]) => ({
        key_id: caller.slice(prefix.length),
        state: JSON.stringify(state),
        ends_at: Policy.endOf(state)
      }))
      return sql`
        INSERT INTO key_limits (key_id, process, seq, saved_at, ends_at, state)
        SELECT key_id, ${process}, ${String(seq)}::text::bigint, now(), to_timestamp(ends_at / 1000), state
        FROM jsonb_to_recordset(${JSON.stringify(rows)}::text::jsonb) AS t (key_id text, state text, ends_at float8)
        ON CONFLICT (key_id, process) DO UPDATE SET
          seq = excluded.seq, saved_at = excluded.saved_at, ends_at = excluded.ends_at, state = excluded.state
        WHERE key_limits.seq < excluded.seq
      `.pipe(Effect.asVoid, Effect.trackDuration(writeDurations, Duration.toSeconds))
    }
  })
  yield* Expiry.deleteExpired({ table: "key_limits", key: ["key_id", "process"], column: "ends_at" })
  // Versions of the service before schema version 5 write to this table.
  yield* Expiry.deleteExpired({ table: "rate_limits", key: ["caller"], column: "ends_at" })

  const limiter = KeyStates.makeLimiterOn(yield* KeyStates.withAddresses(keyStates), yield* Clock.Clock)

  const current: StateLookup = {
    stateOf: (keyId) =>
      sql`(SELECT state FROM key_limits WHERE key_id = ${keyId} ORDER BY ${ownElseLastSaved} LIMIT 1)`,
    add: (rows, startedAt) => {
      for (const { id, state } of rows) {
        const caller = callerOf(id)
        // The state of a key in use is in memory already, so do not decode the row.
        if (keyStates.find(caller) !== undefined) continue
        const decoded = state === null ? Result.succeed(undefined) : decodeState(state)
        // Skip an invalid state here. The next call for the key finds none in memory, loads the row itself, and dies
        // with the error.
        if (Result.isSuccess(decoded)) keyStates.addLoaded(caller, decoded.success, startedAt)
      }
    }
  }
  const lookups = yield* StateLookups
  lookups.current = current
  return limiter
})

export const layer = (options: Options) => Layer.effect(RateLimiter, make(options))
