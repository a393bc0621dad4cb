/**
 * Polls the database for changes, once for all caches of this process. A cache is used only while a poll that began
 * less than a second ago has succeeded. So cached data is never older than that, even when polls fail, and processes
 * do not have to send each other messages.
 */
import { Cause, Clock, Context, Duration, Effect, Latch, Layer, type Scope } from "effect"
import { SqlClient } from "effect/sql"
import * as BackgroundTask from "./BackgroundTask.ts"
import * as Expiry from "./Expiry.ts"

/** Polls start this often while a cache is read, even if an earlier one is in flight: a slow database is polled too. */
const pollInterval = Duration.millis(250)

/** How long caches are used after the start of a poll. A request adds some time, so this is less than a second. */
const lease = Duration.millis(900)

/** After a longer pause between polls, everything is evicted. Rows of the change tables are deleted after 3 hours. */
const maxPauseSeconds = 3_600

/** Changed keys that one poll reads. After more than these, everything is evicted. */
const maxKeys = 10_000

/** The state of the database that a poll found. */
export interface Poll {
  /** Differs if the server or the files of a table differ: after a restart, a failover, a restored dump, a TRUNCATE. */
  readonly identity: string
  /** The server's clock, in seconds. */
  readonly at: number
  /** The transactions that were visible to the poll, as a `pg_snapshot`. The next poll reads changes of the others. */
  readonly snapshot: string
  /** Whether an operator changed pets. */
  readonly pets: boolean
  /** The ids of the keys that changed. */
  readonly keys: ReadonlyArray<string>
}

/** The changes since the previous poll, for caches to evict. */
export interface Changes {
  /** Any cached data may have changed. */
  readonly everything: boolean
  /** Any pet may have changed. */
  readonly pets: boolean
  /** The ids of the keys that changed. */
  readonly keys: ReadonlySet<string>
}

/** A snapshot that sees all transactions: the first poll reads no changes, since nothing is cached yet. */
const completeSnapshot = `${2n ** 63n - 1n}:${2n ** 63n - 1n}:`

/** Returns the lowest transaction id that was in progress at the time of `snapshot`. */
const xminOf = (snapshot: string): bigint => BigInt(snapshot.slice(0, snapshot.indexOf(":")))

/** Polls with `read` for as long as the scope lasts. */
export const make = Effect.fnUntraced(function*<E>(read: (snapshot: string) => Effect.Effect<Poll, E>) {
  const countFailure = yield* BackgroundTask.makeCountFailure("poll_changes")
  const clock = yield* Clock.Clock
  const leaseNanos = Duration.toNanosUnsafe(lease)
  const cacheRead = yield* Latch.make()
  const subscribers = new Set<(changes: Changes) => void>()
  let last: Poll | undefined
  // By the monotonic clock: a step of the wall clock does not extend the lease.
  let leaseStart: bigint | undefined
  // Polls overlap if the database is slow. A result is ignored if a later poll has already returned.
  let started = 0
  let applied = 0
  let reported = 0
  let isFailing = false

  const apply = (poll: Poll): void => {
    const everything = last === undefined || poll.identity !== last.identity ||
      // A server that crashed without synchronous_commit uses the ids of lost transactions again.
      xminOf(poll.snapshot) < xminOf(last.snapshot) ||
      Math.abs(poll.at - last.at) > maxPauseSeconds || poll.keys.length > maxKeys
    const { pets } = poll
    const keys = new Set(poll.keys)
    last = poll
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
    yield* Effect.suspend(() => read(last?.snapshot ?? completeSnapshot)).pipe(
      Effect.timeout(lease),
      Effect.matchCauseEffect({
        onFailure: (cause) =>
          Cause.hasInterruptsOnly(cause) ? Effect.void : Effect.andThen(countFailure, report(number, cause)),
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
    // Traces of polls would be four a second, and show nothing.
    Effect.withTracerEnabled(false)
  )

  yield* pollOnce
  yield* Effect.forkScoped(Effect.forever(Effect.gen(function*() {
    yield* Effect.forkScoped(pollOnce)
    cacheRead.closeUnsafe()
    yield* Effect.sleep(pollInterval)
    yield* cacheRead.await
  })))

  return {
    /** Whether caches may be used. Polls pause after a while without a call, and the next call resumes them. */
    isFresh: (): boolean => {
      cacheRead.openUnsafe()
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
 * A change is new if its transaction is not visible in the snapshot of the previous poll. Transaction ids from the xmax
 * of the current snapshot on belong to another server: they come from a restored dump.
 *
 * The snapshot of a standby does not list the transactions in progress. So the next poll reads all changes from its
 * xmin on, and may read some of them again.
 */
export const readChanges = Effect.map(SqlClient.SqlClient, (sql) => {
  // As text, because the client cannot decode xid8.
  const isNew = (column: string, snapshot: string) => {
    const transaction = sql(column)
    const before = sql`${snapshot}::text::pg_snapshot`
    // The first condition uses an index. The others check the rows that it finds.
    return sql`${transaction} >= pg_snapshot_xmin(${before}) AND NOT pg_visible_in_snapshot(${transaction}, ${before})
      AND ${transaction} < pg_snapshot_xmax(s.now)`
  }
  return Effect.fnUntraced(function*(snapshot: string) {
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
        CASE WHEN pg_is_in_recovery()
          THEN concat(pg_snapshot_xmin(s.now), ':', pg_snapshot_xmin(s.now), ':')
          ELSE s.now::text
        END AS snapshot,
        EXISTS (SELECT FROM pets_changes WHERE ${isNew("transaction", snapshot)}) AS pets,
        ARRAY(
          SELECT id FROM api_keys WHERE ${isNew("changed", snapshot)}
          UNION ALL
          SELECT key_id FROM api_keys_changes WHERE ${isNew("transaction", snapshot)}
          LIMIT ${maxKeys + 1}::int
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
        yield* Expiry.deleteExpired({ table, column: "ends_at", warning: `Expired rows of ${table} cannot be deleted` })
      }
      return ChangePoller.of(yield* make(yield* readChanges))
    })
  )
}
