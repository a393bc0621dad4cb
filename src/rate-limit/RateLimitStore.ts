/** Stores the states of callers in the database, so that they outlive the process. */
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import type { Caller } from "./CallerStates.ts"
import * as Policy from "./Policy.ts"
import type { SteadyClock } from "./SteadyClock.ts"

export interface RateLimitStore {
  /** Loads all states that have not ended by `clock`, which must show the wall clock's time. */
  load(clock: SteadyClock): Effect.Effect<ReadonlyArray<LoadedState>>
  /** Saves states whose times are on `clock`. */
  save(states: ReadonlyMap<Caller, Policy.State>, clock: SteadyClock): Effect.Effect<void>
}

interface LoadedState {
  readonly caller: Caller
  readonly state: Policy.State
  /** Milliseconds by which the wall clock has stepped since the state was saved. */
  readonly stepped: number
}

/** The time of saving, by the wall clock and by the monotonic clock of one boot of a machine. */
interface SavedAt {
  readonly wall: number
  readonly monotonic: number
  readonly boot: string
}

/** A row, with its times on the wall clock. Earlier versions write no `savedAt`, or keep an older one. */
interface Row {
  readonly caller: Caller
  readonly state: Policy.State & { readonly savedAt?: SavedAt }
}

const maxRowsPerQuery = 50_000

/**
 * Identifies this boot of this machine, within which the monotonic clocks of processes agree. It is empty on systems
 * other than Linux.
 */
const bootId = Effect.tryPromise(async () => {
  const { readFile } = await import("node:fs/promises")
  return (await readFile("/proc/sys/kernel/random/boot_id", "utf8")).trim()
}).pipe(Effect.orElseSucceed(() => ""))

export const sqlStore = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  const boot = yield* bootId

  /**
   * Returns the milliseconds since a row was saved. Within one boot the monotonic clock gives them exactly. Otherwise
   * the wall clock gives them, or 0 if it is behind.
   */
  const elapsedSince = (savedAt: SavedAt, now: number, monotonic: number): number =>
    boot !== "" && savedAt.boot === boot && savedAt.monotonic <= monotonic
      ? monotonic - savedAt.monotonic
      : Math.max(0, now - savedAt.wall)

  const store: RateLimitStore = {
    load: Effect.fnUntraced(function*(clock) {
      const now = clock.now()
      const monotonic = clock.monotonic()
      const states: Array<LoadedState> = []
      let last = ""
      let rows: ReadonlyArray<Row>
      do {
        // Each query reads few enough rows for the statement timeout. It does not use `ends_at`, because the wall clock
        // may have stepped.
        rows = yield* sql<Row>`
          SELECT caller, state FROM rate_limits
          WHERE caller > ${last} ORDER BY caller LIMIT ${sql.literal(String(maxRowsPerQuery))}`
        for (const { caller, state: { savedAt, ...saved } } of rows) {
          last = caller
          const stepped = savedAt === undefined ? 0 : now - savedAt.wall - elapsedSince(savedAt, now, monotonic)
          const state = Policy.clamp(Policy.shift(saved, stepped), now)
          if (Policy.endOf(state) > now) states.push({ caller, state, stepped })
        }
      } while (rows.length === maxRowsPerQuery)
      return states
    }, Effect.orDie),
    save: (states, clock) => {
      const offset = clock.wallOffset()
      const savedAt: SavedAt = { wall: clock.now() + offset, monotonic: clock.monotonic(), boot }
      const rows = [...states].map(([caller, steady]) => {
        const state = offset === 0 ? steady : Policy.shift(steady, offset)
        // The end is a number, which is exact to the millisecond. With text, this process takes twice as long to write
        // the rows.
        return { caller, state, ends_at: Policy.endOf(state) }
      })
      return sql`
        INSERT INTO rate_limits (caller, state, ends_at)
        SELECT caller, state || ${JSON.stringify({ savedAt })}::text::jsonb, to_timestamp(ends_at / 1000)
        FROM jsonb_to_recordset(${JSON.stringify(rows)}::text::jsonb) AS t (caller text, state jsonb, ends_at float8)
        ON CONFLICT (caller) DO UPDATE SET state = excluded.state, ends_at = excluded.ends_at
      `.pipe(Effect.asVoid, Effect.orDie)
    }
  }
  return store
})
