/**
 * The SQL client of the pool of connections to PostgreSQL. Each connection that a statement uses is wrapped in `Lent`.
 *
 * Laws, for any statement or transaction on any connection (except streams of rows, which are not watched):
 * 1. If a session rejects a write because it is read-only, its connection is closed before any other caller can use it.
 *    Behind a pooler, the session is ended first, if the pooler runs `endReadOnlySession` in it.
 * 2. The rejected statement or transaction has changed nothing, so it runs again on another connection, at most as
 *    often as the pool has connections. It fails earlier if a rejecting session replies to `ageOfSession` that it was
 *    opened after the first such reply, or if neither of the first two rejecting sessions replies. A session that
 *    replies without an age counts as opened before. So it usually fails only if new sessions are read-only.
 * 3. A transaction whose connection is lost fails with the error of the lost connection. The server rolls it back,
 *    unless its COMMIT was already sent. A ROLLBACK that fails closes its connection and is no defect.
 * 4. No statement or transaction gets a connection whose socket `PoolSockets` has destroyed: while `PoolSockets` is
 *    settling, it waits for the next tick, and then gets another connection.
 */
import { PgClient, type PgConnection, PgPool } from "@effect/sql-pg"
import { Context, Effect, Exit, Layer, Option, Predicate, Stream } from "effect"
import { Reactivity } from "effect/reactivity"
import { SqlClient, type SqlConnection, SqlError } from "effect/sql"
import * as Outage from "./Outage.ts"
import * as PoolSockets from "./PoolSockets.ts"

/**
 * Selects the age of a read-only session, in milliseconds. Only the server's clock measures the age, because this
 * process's clock can differ. Selects no row if a pooler runs the statement in a session that is not read-only, and
 * null for a role that may not read the age.
 */
const ageOfSession = `
  SELECT (extract(epoch FROM clock_timestamp() - backend_start) * 1000)::float8 AS age
  FROM pg_stat_activity WHERE pid = pg_backend_pid() AND current_setting('transaction_read_only') = 'on'`

/**
 * Ends a read-only session behind a pooler. Otherwise, the pooler would lend the session to its next client. The pooler
 * can run this statement in another session, so the statement ends only a read-only one.
 */
const endReadOnlySession =
  `SELECT pg_terminate_backend(pg_backend_pid()) WHERE current_setting('transaction_read_only') = 'on'`

const commit = (connection: SqlConnection.Connection): Effect.Effect<void, SqlError.SqlError> =>
  Effect.flatMap(
    connection.executeRaw("COMMIT", []),
    (result) =>
      Predicate.hasProperty(result, "command") && result.command === "COMMIT"
        ? Effect.void
        : Effect.fail(
          new SqlError.SqlError({
            reason: new SqlError.UnknownError({ cause: new Error("COMMIT rolled back an aborted transaction") })
          })
        )
  )

/** Wraps a borrowed connection: watches its statements, and marks a session to be discarded (read-only or lost). */
class Lent implements SqlConnection.Connection {
  isReadOnly = false
  isLost = false
  readonly #connection: PgConnection.PgConnection
  readonly #statements: PoolSockets.Statements
  constructor(connection: PgConnection.PgConnection, statements: PoolSockets.Statements) {
    this.#connection = connection
    this.#statements = statements
  }
  #watch<A>(statement: Effect.Effect<A, SqlError.SqlError>) {
    const sent = Effect.suspend(() => {
      this.#statements.begin(this)
      return statement
    })
    return Effect.onExit(sent, (exit) => {
      this.#statements.end(this)
      if (Exit.isFailure(exit)) this.isReadOnly ||= Option.exists(Exit.findErrorOption(exit), Outage.isReadOnly)
      return Effect.void
    })
  }
  #query(sql: string, params: ReadonlyArray<unknown>, prepare = true) {
    const result = this.#watch(this.#connection.query(sql, params, prepare))
    if (sql !== "ROLLBACK") return result
    const lose = Effect.sync(() => {
      this.isLost = true
    })
    return result.pipe(Effect.tapError(() => lose), Effect.orElseSucceed(() => ({ rows: [] })))
  }
  #rows(
    sql: string,
    params: ReadonlyArray<unknown>,
    prepare: boolean,
    transform?: Parameters<SqlConnection.Connection["execute"]>[2]
  ) {
    return Effect.map(this.#query(sql, params, prepare), ({ rows }) => transform === undefined ? rows : transform(rows))
  }
  execute(...[sql, params, transform]: Parameters<SqlConnection.Connection["execute"]>) {
    return this.#rows(sql, params, true, transform)
  }
  executeUnprepared(...[sql, params, transform]: Parameters<SqlConnection.Connection["execute"]>) {
    return this.#rows(sql, params, false, transform)
  }
  executeRaw(sql: string, params: ReadonlyArray<unknown>) {
    return this.#query(sql, params)
  }
  executeValues(sql: string, params: ReadonlyArray<unknown>) {
    return this.#watch(this.#connection.queryValues(sql, params))
  }
  executeValuesUnprepared(sql: string, params: ReadonlyArray<unknown>) {
    return this.#watch(this.#connection.queryValues(sql, params, false))
  }
  executeStream(...[sql, params, transform]: Parameters<SqlConnection.Connection["execute"]>) {
    const rows: Stream.Stream<object, SqlError.SqlError> = this.#connection.stream(sql, params)
    return transform === undefined ? rows : Stream.flatMap(rows, (row) => Stream.fromIterable(transform([row])))
  }
}

/** Called with the time when a read-only session was opened: `performance.now()`, or -Infinity if it is not known. */
type OnReadOnly = (openedAt: number) => void

type Options = Parameters<typeof PgClient.layer>[0]

const make = Effect.fnUntraced(function*(options: Options, isPooled: boolean, sent: PoolSockets.Statements) {
  const maxConnections = options.maxConnections ?? 10
  const pool = yield* PgPool.make(options)

  const leaveReadOnly = (lent: Lent, onReadOnly: OnReadOnly) => {
    // Subtract the age from the time of the query: with the time of the reply, a session would seem younger than it is.
    const askedAt = performance.now()
    const reported = Effect.map(
      lent.executeUnprepared(ageOfSession, [], undefined),
      ([session]) => onReadOnly(askedAt - Number(session?.age ?? Infinity))
    )
    const ended = isPooled ? lent.executeUnprepared(endReadOnlySession, [], undefined) : Effect.void
    return Effect.andThen(Effect.ignore(reported), Effect.ignore(ended))
  }
  const takeBack = (base: PgConnection.PgConnection, lent: Lent, onReadOnly: OnReadOnly) => {
    if (!lent.isReadOnly && !lent.isLost) return Effect.void
    const left = lent.isReadOnly ? leaveReadOnly(lent, onReadOnly) : Effect.void
    return Effect.andThen(left, pool.invalidate(base))
  }

  const onceSettled = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
    sent.isSettling() ? Effect.andThen(sent.settled, effect) : effect

  /** Runs `attempt` again after a rejection by a read-only session, as often as law 2 allows. */
  const leavingReadOnly = <A, E, R>(attempt: (onReadOnly: OnReadOnly) => Effect.Effect<A, E, R>) =>
    Effect.suspend(() => {
      // Until a session has replied to `ageOfSession`, these values allow no rerun after the first.
      let rejectedAt = 0
      let openedAt = Infinity
      const reported = attempt((at) => {
        openedAt = at
        if (rejectedAt === 0) rejectedAt = performance.now()
      })
      return Effect.catchIf(
        onceSettled(reported),
        Outage.isReadOnly,
        () =>
          Effect.retry(Effect.suspend(() => onceSettled(reported)), {
            while: (error) => Outage.isReadOnly(error) && openedAt < rejectedAt,
            // The first run within `Effect.retry` is the first rerun, and `times` does not count it.
            times: maxConnections - 1
          })
      )
    })

  const borrower: SqlConnection.Borrower = (f) =>
    leavingReadOnly((onReadOnly) =>
      pool.use((base) => {
        const lent = new Lent(base, sent)
        return Effect.onExit(f(lent), () => takeBack(base, lent, onReadOnly))
      })
    )
  const OnReserved = Context.Reference<OnReadOnly>("database/OnReserved", {
    defaultValue: () => () => {}
  })
  const acquirer = Effect.gen(function*() {
    const base = yield* pool.get
    const reserved = yield* base.pin
    const lent = new Lent(reserved, sent)
    const onReadOnly = yield* OnReserved
    // Runs after COMMIT or ROLLBACK, and before the connection goes back to the pool.
    yield* Effect.addFinalizer(() => takeBack(base, lent, onReadOnly))
    return lent
  })

  const client = yield* SqlClient.make({
    acquirer,
    borrower,
    transactionAcquirer: acquirer,
    compiler: PgClient.makeCompiler(),
    driver: "pg",
    commit,
    prepareTransactionControls: true,
    releaseSavepoint: (name) => `RELEASE SAVEPOINT ${name}`,
    spanAttributes: [
      ["db.system.name", "postgresql"],
      ["db.namespace", options.database ?? "postgres"],
      ["server.address", options.host ?? "localhost"],
      ["server.port", options.port ?? 5432]
    ]
  })
  const { withTransaction } = client
  return Object.assign(client, {
    withTransaction: <R, E, A>(statements: Effect.Effect<A, E, R>): Effect.Effect<A, E | SqlError.SqlError, R> =>
      Effect.flatMap(Effect.serviceOption(client.transactionService), (outer) =>
        Option.isSome(outer)
          ? withTransaction(statements)
          : leavingReadOnly((onReadOnly) => Effect.provideService(withTransaction(statements), OnReserved, onReadOnly)))
  })
})

export const layer = (options: Options, isPooled: boolean, sent = PoolSockets.unwatched) =>
  Layer.provide(Layer.effect(SqlClient.SqlClient, make(options, isPooled, sent)), Reactivity.layer)
