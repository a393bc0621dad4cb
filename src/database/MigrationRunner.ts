/**
 * Brings the schema up to date with Effect's Migrator, one migration at a time, while other processes serve requests.
 * A process of an earlier version reads and locks the same table, `petstore_migrations`.
 */
import { Context, Deferred, Duration, Effect, Schedule } from "effect"
import { Migrator, SqlClient, SqlError } from "effect/sql"

const table = "petstore_migrations"

/** A module in `src/migrations`. */
export interface Migration {
  readonly default: Effect.Effect<unknown, unknown, SqlClient.SqlClient>
  /**
   * `false` for a migration with a statement that cannot run in a transaction, as CREATE INDEX CONCURRENTLY. It can run
   * again after it failed halfway, so each of its statements must allow for that.
   */
  readonly transactional?: boolean
}

/** Whether other processes use the same database. The embedded database belongs to one process. */
export const IsShared = Context.Reference<boolean>("petstore/database/MigrationRunner/IsShared", {
  defaultValue: () => true
})

/**
 * How long a statement waits for a lock. Every later statement on the table queues behind it, those of requests
 * included, which time out after 3.5 seconds.
 */
const lockTimeout = Duration.seconds(1)

/** Pause between two attempts: longer than an attempt waits, so that requests get through. */
const retryDelay = Duration.seconds(2)

/** How often to ask for the lock that another process holds while it builds an index. */
const pollInterval = Duration.seconds(1)

/** The SQL error behind `error`, also behind that of a migration. */
export const sqlErrorOf = (error: unknown): SqlError.SqlError | undefined => {
  if (error instanceof Migrator.MigrationError) return sqlErrorOf(error.cause)
  return SqlError.isSqlError(error) ? error : undefined
}

const isLockTimeout = (error: unknown): boolean => sqlErrorOf(error)?.reason._tag === "LockTimeoutError"

/** The version of the schema: 0 for an empty database. */
export const currentVersion = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  const [found] = yield* sql<{ readonly exists: boolean }>`SELECT to_regclass(${table}) IS NOT NULL AS exists`
  if (found?.exists !== true) return 0
  const [latest] = yield* sql<{ readonly version: number }>`
    SELECT coalesce(max(migration_id), 0) AS version FROM ${sql(table)}`
  return latest?.version ?? 0
})

/** Describes the sessions that block the session `pid`. Returns an empty text if there are none. */
const describeBlockers = Effect.fnUntraced(function*(pid: number) {
  const sql = yield* SqlClient.SqlClient
  const [blockers] = yield* sql<{ readonly description: string | null }>`
    SELECT string_agg(
      concat_ws(', ', 'process ' || pid, usename, nullif(application_name, ''), state, 'since ' || xact_start), '; '
    ) AS description
    FROM pg_stat_activity WHERE pid = ANY (pg_blocking_pids(${pid}::integer))`
  return blockers?.description ?? undefined
})

/** Runs `work` in a transaction, again and again until it gets its locks. Logs once that it waits. */
const inTransaction = Effect.fnUntraced(function*<E>(
  key: string,
  work: Effect.Effect<unknown, E, SqlClient.SqlClient>
) {
  const sql = yield* SqlClient.SqlClient
  const isShared = yield* IsShared
  let blockers: string | undefined
  let isLogged = false

  const attempt = Effect.gen(function*() {
    const session = yield* Deferred.make<number>()
    // On another connection, while this one waits.
    const observe = Deferred.await(session).pipe(
      Effect.delay(Duration.times(lockTimeout, 0.5)),
      Effect.flatMap(describeBlockers),
      Effect.tap((description) =>
        Effect.sync(() => {
          blockers = description ?? blockers
        })
      ),
      Effect.ignore
    )
    if (isShared && !isLogged) yield* Effect.forkScoped(observe)
    yield* sql.withTransaction(Effect.gen(function*() {
      const [row] = yield* sql<{ readonly pid: number }>`
        SELECT pg_backend_pid() AS pid, set_config('lock_timeout', ${String(Duration.toMillis(lockTimeout))}, true)`
      if (row !== undefined) yield* Deferred.succeed(session, row.pid)
      yield* work
    }))
  }).pipe(Effect.scoped)

  const logOnce = Effect.suspend(() => {
    if (isLogged) return Effect.void
    isLogged = true
    return Effect.logWarning(
      `The migration ${key} waits for a lock` + (blockers === undefined ? "." : ` held by: ${blockers}.`) +
        ` The service retries it every ${
          Duration.format(Duration.sum(lockTimeout, retryDelay))
        } until it gets the lock.`
    )
  })
  yield* attempt.pipe(
    Effect.tapError((error) => isLockTimeout(error) ? logOnce : Effect.void),
    Effect.retry({ while: isLockTimeout, schedule: Schedule.spaced(retryDelay) })
  )
})

/**
 * Runs `work` outside of a transaction, in one process at a time; does nothing when `isDone`. A transaction of its own
 * holds the advisory lock, so that the lock works and ends behind a pooler as well. No statement waits for the lock:
 * CREATE INDEX CONCURRENTLY waits for every statement that is older, so both would wait for each other.
 */
const exclusively = Effect.fnUntraced(function*<A, E, E2>(
  isDone: Effect.Effect<boolean, E2, SqlClient.SqlClient>,
  work: Effect.Effect<A, E, SqlClient.SqlClient>
) {
  const sql = yield* SqlClient.SqlClient
  const workUnlessDone = Effect.flatMap(isDone, (done) => done ? Effect.void : Effect.asVoid(work))
  const attempt = sql.withTransaction(Effect.gen(function*() {
    const [lock] = yield* sql<{ readonly isHeld: boolean }>`
      SELECT pg_try_advisory_xact_lock(hashtextextended('petstore migrations', ${table}::regclass::oid::bigint))
        AS "isHeld"`
    if (lock?.isHeld !== true) return false
    // Beside what it says, it ends the portal of the statement before, whose snapshot CREATE INDEX CONCURRENTLY would
    // wait for.
    yield* sql`SET LOCAL idle_in_transaction_session_timeout = 0`
    // On other connections than the transaction's.
    yield* Effect.updateContext(
      workUnlessDone,
      (context: Context.Context<SqlClient.SqlClient>) => Context.omit(sql.transactionService)(context)
    )
    return true
  })).pipe(
    // With another level, CREATE INDEX CONCURRENTLY would wait for the snapshot of this transaction.
    Effect.provideService(SqlClient.BeginTransaction, "BEGIN ISOLATION LEVEL READ COMMITTED")
  )
  yield* (yield* IsShared)
    ? Effect.repeat(attempt, { until: (isRun) => isRun, schedule: Schedule.spaced(pollInterval) })
    : workUnlessDone
})

/**
 * Runs the migrations that are not recorded yet, in the order of `migrations`, whose keys are `<version>_<name>`.
 * Processes that start together wait for the first. Returns the version of the schema.
 */
export const runMigrations = Effect.fnUntraced(function*(migrations: Readonly<Record<string, Migration>>) {
  // Creates the table of the migrations.
  if ((yield* currentVersion) === 0) yield* Migrator.make({})({ loader: Effect.succeed([]), table })
  for (const [key, migration] of Object.entries(migrations)) {
    const isDone = Effect.map(currentVersion, (version) => version >= Number.parseInt(key))
    if (yield* isDone) continue
    const record = (work: Effect.Effect<unknown, unknown, SqlClient.SqlClient>) =>
      inTransaction(
        key,
        Migrator.make({})({ loader: Migrator.fromRecord({ [key]: Effect.asVoid(work) }), table })
      )
    const run = Effect.mapError(
      migration.default,
      (cause) => new Migrator.MigrationError({ kind: "Failed", cause, message: `Migration "${key}" failed` })
    )
    yield* migration.transactional === false
      ? exclusively(isDone, Effect.andThen(run, record(Effect.void)))
      : record(migration.default)
  }
  return yield* currentVersion
})
