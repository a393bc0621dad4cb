/**
 * Polls the database for changes, once for all caches of this process. A cache is used only while a poll that began
 * less than a second ago has succeeded. So cached data is never older than that, even when polls fail, and processes
 * need not send each other messages.
 */
import { Cause, Clock, Context, Duration, Effect, Latch, Layer, type Scope } from "effect"
import { SqlClient } from "effect/sql"
import * as Expiry from "./Expiry.ts"

/** Polls start this often while a cache is read, even if an earlier one is in flight: a slow database is polled too. */
const pollInterval = Duration.millis(250)

/** How long cached data counts after the start of a poll: less than a second, by the time that a request takes here. */
const lease = Duration.millis(900)

/** Rows of the change tables are deleted after 3 hours: after a longer pause, this process may have missed some. */
const maxPauseSeconds = 3_600

/** Changes that one poll reads. After more than these, everything is evicted. */
const maxChanges = 10_000

/** The state of the database that a poll found. */
export interface Poll {
  /** Differs if the server or the files of a table differ: after a restart, a failover, a restored dump, a TRUNCATE. */
  readonly identity: string
  /** The server's clock, in seconds. */
  readonly at: number
  /** Every transaction with a lower id has ended. The next poll reads the changes from here on. */
  readonly watermark: string
  /** The transactions in which an operator changed pets. */
  readonly pets: ReadonlyArray<string>
  /** The keys that changed: "transaction keyId". */
  readonly keys: ReadonlyArray<string>
}

/** The changes since the poll before, for caches to evict. */
export interface Changes {
  /** All that is cached may have changed. */
  readonly everything: boolean
  /** Any pet may have changed. */
  readonly pets: boolean
  /** The ids of the keys that changed. */
  readonly keys: ReadonlySet<string>
}

/** The highest transaction id: the first poll reads no changes, since nothing is cached yet. */
const highestTransaction = String(2n ** 64n - 1n)

/** Polls with `read` for as long as the scope lasts. */
export const make = Effect.fnUntraced(function*<E>(read: (watermark: string) => Effect.Effect<Poll, E>) {
  const clock = yield* Clock.Clock
  const leaseNanos = Duration.toNanosUnsafe(lease)
  const asked = yield* Latch.make()
  const subscribers = new Set<(changes: Changes) => void>()
  let last: Poll | undefined
  /** Changes that are seen: each is read again while an older transaction is open. */
  let seen: ReadonlySet<string> = new Set()
  // By the monotonic clock: a step of the wall clock does not extend the lease.
  let leaseStart: bigint | undefined
  // Polls overlap if the database is slow. The result of one is ignored if that of a later one is there already.
  let started = 0
  let applied = 0
  let reported = 0
  let isFailing = false

  const apply = (poll: Poll): void => {
    const everything = last === undefined || poll.identity !== last.identity ||
      // A server that crashed without synchronous_commit uses the ids of lost transactions again.
      BigInt(poll.watermark) < BigInt(last.watermark) ||
      Math.abs(poll.at - last.at) > maxPauseSeconds || poll.pets.length + poll.keys.length > maxChanges
    const pets = poll.pets.some((change) => !seen.has(change))
    const keys = new Set(
      poll.keys.filter((change) => !seen.has(change)).map((change) => change.slice(change.indexOf(" ") + 1))
    )
    last = poll
    seen = new Set([...poll.pets, ...poll.keys])
    if (everything || pets || keys.size > 0) {
      for (const evict of subscribers) evict({ everything, pets, keys })
    }
  }

  /** Logs the first of several failures, and the first success after them. */
  const report = (number: number, failure?: Cause.Cause<unknown>) => {
    if (number < reported) return Effect.void
    reported = number
    const wasFailing = isFailing
    isFailing = failure !== undefined
    if (isFailing === wasFailing) return Effect.void
    return failure === undefined
      ? Effect.logInfo("The database is polled for changes again.")
      : Effect.logWarning(
        "The database cannot be polled for changes. Nothing is served from caches meanwhile.",
        failure
      )
  }

  const pollOnce = Effect.gen(function*() {
    const number = ++started
    const startedAt = clock.monotonicTimeNanosUnsafe()
    yield* Effect.suspend(() => read(last?.watermark ?? highestTransaction)).pipe(
      Effect.timeout(lease),
      Effect.matchCauseEffect({
        onFailure: (cause) => Cause.hasInterruptsOnly(cause) ? Effect.void : report(number, cause),
        onSuccess: (poll) => {
          if (number > applied) {
            applied = number
            apply(poll)
            leaseStart = startedAt
          }
          return report(number)
        }
      })
    )
  }).pipe(
    // They would be four traces a second without content.
    Effect.withTracerEnabled(false)
  )

  yield* pollOnce
  yield* Effect.forkScoped(Effect.forever(Effect.gen(function*() {
    yield* Effect.forkScoped(pollOnce)
    asked.closeUnsafe()
    yield* Effect.sleep(pollInterval)
    yield* asked.await
  })))

  return {
    /** Whether cached data counts. Asking keeps the polls going. */
    isFresh: (): boolean => {
      asked.openUnsafe()
      return leaseStart !== undefined && clock.monotonicTimeNanosUnsafe() - leaseStart < leaseNanos
    },
    /** Calls `evict` with all changes for as long as the scope lasts. */
    subscribe: (evict: (changes: Changes) => void): Effect.Effect<void, never, Scope.Scope> =>
      Effect.asVoid(Effect.acquireRelease(
        Effect.sync(() => subscribers.add(evict)),
        () => Effect.sync(() => subscribers.delete(evict))
      ))
  }
})

/**
 * Reads the changes in one statement. It takes no lock on `pets` and `api_key_secrets`, so it does not wait for an
 * operator who locks them.
 *
 * Transaction ids are assigned at the start of a transaction: all below the snapshot's xmin have ended, so no change
 * can appear there later. Ids from its xmax on are those of another server, from a restored dump.
 */
export const readChanges = Effect.map(SqlClient.SqlClient, (sql) => {
  // As text: the client does not read xid8.
  const isInRange = (column: string, watermark: string) => {
    const transaction = sql(column)
    return sql`${transaction} >= ${watermark}::text::xid8 AND ${transaction} < pg_snapshot_xmax(s.now)`
  }
  return Effect.fnUntraced(function*(watermark: string) {
    const [poll] = yield* sql<Poll>`
      SELECT
        (
          SELECT concat_ws(
            ' ',
            extract(epoch FROM pg_postmaster_start_time()),
            pg_is_in_recovery(),
            string_agg(concat_ws(' ', name, to_regclass(name)::oid, pg_relation_filenode(to_regclass(name))), ' ')
          )
          FROM unnest(ARRAY['pets', 'pets_changes', 'api_keys', 'api_key_secrets', 'api_keys_changes']) AS name
        ) AS identity,
        extract(epoch FROM now())::float8 AS at,
        pg_snapshot_xmin(s.now)::text AS watermark,
        ARRAY(
          SELECT transaction::text FROM pets_changes
          WHERE ${isInRange("transaction", watermark)} LIMIT ${maxChanges + 1}::int
        ) AS pets,
        ARRAY(
          SELECT changed::text || ' ' || id FROM api_keys WHERE ${isInRange("changed", watermark)}
          UNION ALL
          SELECT transaction::text || ' ' || key_id FROM api_keys_changes WHERE ${isInRange("transaction", watermark)}
          LIMIT ${maxChanges + 1}::int
        ) AS keys
      FROM (SELECT pg_current_snapshot() AS now) AS s`
    return poll ?? (yield* Effect.die(new Error("The poll for changes returned no row")))
  })
})

export class ChangePoller extends Context.Service<ChangePoller, {
  isFresh(): boolean
  subscribe(evict: (changes: Changes) => void): Effect.Effect<void, never, Scope.Scope>
}>()("petstore/ChangePoller") {
  /** With the tables of `migrations/`. Caches that provide themselves with this layer share the polls. */
  static readonly layer = Layer.effect(
    ChangePoller,
    Effect.gen(function*() {
      for (const table of ["pets_changes", "api_keys_changes"]) {
        yield* Expiry.sweep({ table, column: "ends_at", warning: `Expired rows of ${table} cannot be deleted` })
      }
      return ChangePoller.of(yield* make(yield* readChanges))
    })
  )
}
