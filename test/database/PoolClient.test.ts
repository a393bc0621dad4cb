import { assert, describe, it } from "@effect/vitest"
import { Context, Deferred, Duration, Effect, Exit, Fiber, Layer, Redacted, Result } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { TestClock } from "effect/testing"
import * as fc from "fast-check"
import { connect } from "node:net"
import { setImmediate as nextTurn } from "node:timers/promises"
import { ApiKeys } from "../../src/api-keys/ApiKeys.ts"
import * as AuditLog from "../../src/api-keys/AuditLog.ts"
import * as SqlAuditLog from "../../src/api-keys/SqlAuditLog.ts"
import { databaseErrors } from "../../src/api/DatabaseErrors.ts"
import { ServiceUnavailable } from "../../src/api/Errors.ts"
import { makeDeadline } from "../../src/database/AdminShare.ts"
import * as Outage from "../../src/database/Outage.ts"
import * as PoolClient from "../../src/database/PoolClient.ts"
import * as PoolSockets from "../../src/database/PoolSockets.ts"
import { clientOn, databaseAt, hasServer, random, sqlApiKeys, temporaryDatabaseUrl } from "../support/Databases.ts"
import { until } from "../support/Process.ts"
import * as Proxy from "../support/Proxy.ts"

/** A pool through a proxy, and a client of the same database beside it. */
const makePool = Effect.fnUntraced(function*(maxConnections: number, parameters = "") {
  const url = new URL(yield* temporaryDatabaseUrl)
  const proxy = yield* Proxy.run(Number(url.port))
  const direct = Context.get(yield* Layer.build(Layer.fresh(clientOn(url.href))), SqlClient.SqlClient)
  url.port = String(proxy.port)
  const settings = { DATABASE_MAX_CONNECTIONS: String(maxConnections) }
  const database = yield* Layer.build(databaseAt(`${url.href}${parameters}`, settings))
  return {
    context: database,
    direct,
    name: url.pathname.slice(1),
    proxy,
    sql: Context.get(database, SqlClient.SqlClient)
  }
})

const makeClient = Effect.fnUntraced(
  function*(url: string, sockets?: Effect.Success<ReturnType<typeof PoolSockets.make>>) {
    const options = { url: Redacted.make(url), maxConnections: 3, stream: sockets?.open }
    return Context.get(yield* Layer.build(PoolClient.layer(options, false, sockets)), SqlClient.SqlClient)
  }
)

/** Opens all connections of a pool. */
const openAll = (sql: SqlClient.SqlClient, connections: number) =>
  Effect.replicateEffect(sql`SELECT pg_sleep(0.3)`, connections, { concurrency: connections })

const table = `CREATE TABLE written (id int)`

describe.skipIf(!hasServer)("The client of the pool", { concurrent: true }, () => {
  it.live("has the server end a statement after 2.5 seconds", () =>
    Effect.gen(function*() {
      const context = yield* Layer.build(databaseAt(yield* temporaryDatabaseUrl))
      const sql = Context.get(context, SqlClient.SqlClient)
      assert.deepStrictEqual(yield* sql`SHOW statement_timeout`, [{ statement_timeout: "2500ms" }])
    }))

  it.effect.each([["", 3_500], ["?pgbouncer=true", 5_500]] as const)(
    "with a URL that ends with '%s', replaces its silent connections once a statement has no reply for %i ms",
    ([parameters, ms]) =>
      Effect.gen(function*() {
        const { proxy, sql } = yield* makePool(2, parameters)
        yield* sql`SELECT 1`
        proxy.muteOpen()
        const sent = proxy.sent()
        const lost = yield* Effect.forkChild(Effect.exit(sql`SELECT 2`))
        yield* until(() => proxy.sent() > sent)
        yield* TestClock.adjust(ms - 200)
        yield* Effect.replicateEffect(Effect.promise(() => nextTurn()), 3)
        assert.isUndefined(lost.pollUnsafe())
        // Two ticks later at the latest.
        yield* TestClock.adjust(400)
        yield* until(() => lost.pollUnsafe() !== undefined)
        assert.isTrue(Exit.isFailure(yield* Fiber.join(lost)))
        // Statements wait until the next tick of the watch.
        yield* TestClock.adjust(PoolSockets.tickMs)
        assert.deepStrictEqual(yield* sql`SELECT 3 AS three`, [{ three: 3 }])
      })
  )

  it.live.each(["a statement", "a statement for values", "a transaction", "a nested transaction"])(
    "leaves every session that became read-only: %s succeeds on a new one",
    (kind) =>
      Effect.gen(function*() {
        const { direct, name, sql } = yield* makePool(4)
        yield* direct.unsafe(table)
        yield* direct.unsafe(`ALTER DATABASE ${name} SET default_transaction_read_only = on`)
        const end = direct`
          SELECT pg_terminate_backend(pid) FROM pg_stat_activity
          WHERE datname = current_database() AND pid <> pg_backend_pid()`
        yield* end
        yield* Effect.ignore(openAll(sql, 4))
        yield* openAll(sql, 4)
        yield* direct.unsafe(`ALTER DATABASE ${name} RESET default_transaction_read_only`)
        const insert = sql`INSERT INTO written VALUES (1)`
        const write = kind === "a statement"
          ? insert
          : kind === "a statement for values"
          ? insert.values
          : sql.withTransaction(
            Effect.andThen(sql`SELECT 1`, kind === "a transaction" ? insert : sql.withTransaction(insert))
          )
        yield* write
        assert.lengthOf(yield* direct`SELECT FROM written`, 1)
      })
  )

  it.live("leaves read-only sessions that the pool opened and has never lent", () =>
    Effect.gen(function*() {
      const { direct, name, proxy, sql } = yield* makePool(3)
      yield* direct.unsafe(table)
      yield* direct.unsafe(`ALTER DATABASE ${name} SET default_transaction_read_only = on`)
      yield* direct`
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()`
      yield* Effect.ignore(openAll(sql, 1))
      yield* openAll(sql, 1)
      // The pool goes on to open sessions for two statements that are interrupted.
      proxy.setFault("slow")
      const interrupted = Effect.ignore(Effect.timeout(sql`SELECT 1`, "50 millis"))
      yield* Effect.all([sql`SELECT pg_sleep(0.1)`, interrupted, interrupted], { concurrency: 3 })
      proxy.setFault(undefined)
      const idle = direct`
        SELECT FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid() AND state = 'idle'`
      yield* Effect.repeat(Effect.delay(idle, "50 millis"), { until: (sessions) => sessions.length === 3 }).pipe(
        Effect.timeout("5 seconds")
      )
      // The last replies to the new connections are late.
      yield* Effect.sleep("500 millis")
      yield* direct.unsafe(`ALTER DATABASE ${name} RESET default_transaction_read_only`)
      yield* sql`INSERT INTO written VALUES (1)`
      assert.lengthOf(yield* direct`SELECT FROM written`, 1)
    }))

  it.live("fails a write as read-only if the sessions it opens are, and reads go on", () =>
    Effect.gen(function*() {
      const { direct, name, sql } = yield* makePool(2)
      yield* direct.unsafe(table)
      yield* sql`INSERT INTO written VALUES (1)`
      yield* direct.unsafe(`ALTER DATABASE ${name} SET default_transaction_read_only = on`)
      yield* direct`
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()`
      yield* Effect.ignore(openAll(sql, 2))
      const failure = yield* Effect.flip(Outage.failWith(databaseErrors)(sql`INSERT INTO written VALUES (2)`))
      assert.match(String(failure), /read-only/)
      assert.lengthOf(yield* sql`SELECT FROM written`, 1)
    }))

  it.live(
    "writes once what it acknowledges, whatever the order of read-only servers, ended sessions and writes",
    () =>
      Effect.gen(function*() {
        const { direct, name, sql } = yield* makePool(3)
        yield* direct.unsafe(table)
        const insert = sql`INSERT INTO written VALUES (1)`
        const settle = Effect.ignore(Effect.replicateEffect(sql`SELECT pg_sleep(0.02)`, 3, { concurrency: 3 }))
        const writes = {
          statement: insert,
          transaction: sql.withTransaction(Effect.andThen(sql`SELECT 1`, insert)),
          nested: sql.withTransaction(Effect.andThen(sql`SELECT 1`, sql.withTransaction(insert)))
        }
        const setReadOnly = (value: "on" | "off") =>
          direct.unsafe(`ALTER DATABASE ${name} SET default_transaction_read_only = ${value}`)
        const endSessions = Effect.gen(function*() {
          const ended = yield* direct<{ readonly pid: number }>`
          SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity
          WHERE datname = current_database() AND pid <> pg_backend_pid()`
          // A busy server ends a session some time after it was told to.
          const left = direct`SELECT FROM pg_stat_activity WHERE pid IN ${
            direct.in([0, ...ended.map(({ pid }) => pid)])
          }`
          yield* Effect.repeat(Effect.delay(left, "5 millis"), { until: (sessions) => sessions.length === 0 })
          yield* Effect.andThen(settle, settle)
        })
        const step = fc.constantFrom("statement", "transaction", "nested", "on", "off", "end")
        let stored = 0
        for (const steps of fc.sample(fc.array(step, { minLength: 3, maxLength: 10 }), { numRuns: 25, seed: 1 })) {
          let isReadOnly = false
          yield* setReadOnly("off")
          for (const [index, each] of steps.entries()) {
            const text = steps.slice(0, index + 1).join()
            if (each === "end") yield* endSessions
            else if (each === "on" || each === "off") {
              isReadOnly = each === "on"
              yield* setReadOnly(each)
            } else {
              const exit = yield* Effect.exit(Outage.failWith(databaseErrors)(writes[each]))
              if (Exit.isSuccess(exit)) stored++
              else assert.isTrue(isReadOnly, `${text}: ${String(exit.cause)}`)
            }
            assert.lengthOf(yield* direct`SELECT FROM written`, stored, text)
          }
        }
      }),
    60_000
  )

  it.live("fails a transaction that each session rejects as read-only, after at most four tries in a pool of three", () =>
    Effect.gen(function*() {
      const sql = yield* makeClient(yield* temporaryDatabaseUrl)
      yield* sql.unsafe(table)
      yield* openAll(sql, 3)
      let tries = 0
      let nestedTries = 0
      const insert = Effect.suspend(() => {
        nestedTries++
        return sql`INSERT INTO written VALUES (1)`
      })
      const transaction = sql.withTransaction(Effect.gen(function*() {
        tries++
        yield* sql`SET TRANSACTION READ ONLY`
        yield* sql.withTransaction(insert)
      }))
      const failure = yield* Effect.flip(Effect.timeout(transaction, "5 seconds"))
      assert.isTrue(Outage.isReadOnly(failure), String(failure))
      assert.isAtMost(tries, 4)
      assert.strictEqual(nestedTries, tries)
    }))

  it.live.each(["a statement", "a transaction"])(
    "gives %s no connection whose socket was just destroyed",
    (kind) =>
      Effect.gen(function*() {
        const url = new URL(yield* temporaryDatabaseUrl)
        const runFork = Effect.runForkWith(yield* Effect.context())
        const destroyed = yield* Deferred.make<void>()
        let onDestroy: (() => void) | undefined
        const open = () => {
          const socket = connect(Number(url.port), url.hostname)
          const destroy = socket.destroy.bind(socket)
          // Runs once the verdict has ended, and before any socket emits its close event.
          return Object.assign(socket, {
            destroy: () => {
              if (onDestroy !== undefined) queueMicrotask(onDestroy)
              return destroy()
            }
          })
        }
        const sockets = yield* PoolSockets.make(open, 1_500)
        const sql = yield* makeClient(url.href, sockets)
        const own = sql<{ readonly pid: number }>`SELECT pg_backend_pid() AS pid, pg_sleep(0.1)`
        const pids = (statement: Effect.Effect<ReadonlyArray<{ readonly pid: number }>, SqlError.SqlError>) =>
          Effect.replicateEffect(statement, 3, { concurrency: 3 })
        const before = yield* pids(own)
        let after: Fiber.Fiber<Effect.Success<ReturnType<typeof pids>>, SqlError.SqlError> | undefined
        onDestroy = () => {
          after ??= runFork(pids(kind === "a statement" ? own : sql.withTransaction(own)))
          Deferred.doneUnsafe(destroyed, Effect.void)
        }
        sockets.begin({})
        yield* Effect.timeout(Deferred.await(destroyed), "5 seconds")
        const rows = after === undefined ? [] : yield* Effect.timeout(Fiber.join(after), "5 seconds")
        assert.lengthOf(rows, 3)
        const pidsBefore = new Set(before.map(([row]) => row?.pid))
        assert.isEmpty(rows.filter(([row]) => pidsBefore.has(row?.pid)))
      })
  )

  it.live("responds with 503 to a connection that is lost at any statement of a transaction", () =>
    Effect.gen(function*() {
      const { direct, proxy, sql } = yield* makePool(2)
      yield* direct.unsafe(table)
      const transaction = sql.withTransaction(Effect.gen(function*() {
        for (const id of [1, 2, 3]) yield* sql`INSERT INTO written VALUES (${id})`
      }))
      yield* transaction
      const before = proxy.sent()
      yield* transaction
      const statements = proxy.sent() - before
      assert.isAtLeast(statements, 5)
      for (let sent = 0; sent < statements; sent++) {
        proxy.cutAfter(sent)
        const failure = yield* Effect.flip(Outage.failWith(databaseErrors)(transaction))
        assert.instanceOf(failure, ServiceUnavailable, `cut at statement ${sent}`)
        // The next transaction opens a connection.
        yield* transaction
      }
      // A failure of the transaction itself stays, also if the connection is lost at ROLLBACK.
      proxy.cutAfter(1)
      const failed = yield* Effect.exit(sql.withTransaction(Effect.fail("own")))
      assert.deepStrictEqual(failed, Exit.fail("own"))
      yield* transaction
    }))

  it.live("keeps an idle connection on which a statement failed", () =>
    Effect.gen(function*() {
      const url = new URL(yield* temporaryDatabaseUrl)
      const sockets = yield* PoolSockets.make(() => connect(Number(url.port), url.hostname), 500)
      const sql = yield* makeClient(url.href, sockets)
      const own = sql`SELECT pg_backend_pid() AS pid`
      const before = yield* own
      yield* Effect.flip(sql`SELECT 1 / 0`)
      yield* Effect.sleep("1 second")
      assert.deepStrictEqual(yield* own, before)
    }))

  it.live("ends a session whose ROLLBACK failed, because it can still be in its transaction", () =>
    Effect.gen(function*() {
      const url = new URL(yield* temporaryDatabaseUrl)
      const open = () => {
        const socket = connect(Number(url.port), url.hostname)
        const write = socket.write.bind(socket)
        return Object.assign(socket, {
          write: (bytes: Uint8Array) =>
            write(Buffer.from(bytes).toString("latin1").replace("ROLLBACK", "ROLLBACX"), "latin1")
        })
      }
      const sql = yield* makeClient(url.href, yield* PoolSockets.make(open, 60_000))
      assert.deepStrictEqual(
        yield* Effect.exit(sql.withTransaction(Effect.andThen(sql`SELECT 1`, Effect.fail("own")))),
        Exit.fail("own")
      )
      yield* sql`SELECT 1`
    }))

  it.live("fails a transaction that the server rolls back at COMMIT, because a statement in it had failed", () =>
    Effect.gen(function*() {
      const sql = yield* makeClient(yield* temporaryDatabaseUrl)
      yield* sql.unsafe(table)
      const failing = Effect.ignore(sql`SELECT 1 / 0`)
      const transaction = sql.withTransaction(Effect.andThen(sql`INSERT INTO written VALUES (1)`, failing))
      assert.isTrue(Exit.isFailure(yield* Effect.exit(transaction)))
      assert.isEmpty(yield* sql`SELECT FROM written`)
    }))

  it.live("ends as 503 if the server ends the session within a transaction", () =>
    Effect.gen(function*() {
      const { direct, sql } = yield* makePool(2)
      const transaction = sql.withTransaction(Effect.gen(function*() {
        const [session] = yield* sql<{ readonly pid: number }>`SELECT pg_backend_pid() AS pid`
        yield* direct`SELECT pg_terminate_backend(${session?.pid ?? 0}, 1000)`
        yield* sql`SELECT 1`
      }))
      assert.instanceOf(yield* Effect.flip(Outage.failWith(databaseErrors)(transaction)), ServiceUnavailable)
      yield* sql`SELECT 1`
    }))

  it.live.each([2, 10])(
    "with %i connections, has free ones while all reads of the admin API wait",
    (maxConnections) =>
      Effect.gen(function*() {
        const { context, sql } = yield* makePool(maxConnections)
        const withinDeadline = yield* makeDeadline(databaseErrors).pipe(
          Effect.provide(context)
        )
        const reads = Effect.replicateEffect(Effect.result(withinDeadline(sql`SELECT pg_sleep(1.7)`)), 14, {
          concurrency: 14
        })
        // Without a free connection, the first would wait for a read, so for 1.4 seconds.
        const others = Effect.repeat(Effect.timeout(sql`SELECT 1`, "1200 millis"), { times: 20 })
        const [results] = yield* Effect.all([reads, Effect.delay(others, "300 millis")], { concurrency: 2 })
        assert.isTrue(results.some(Result.isSuccess))
        assert.isTrue(results.some(Result.isFailure))
      })
  )

  it.live.each([2, 4, 10])(
    "with %i connections, has a free one while the audit log is locked for 14 reads and the entry of a ban",
    (maxConnections) =>
      Effect.gen(function*() {
        const { context, direct, sql } = yield* makePool(maxConnections)
        yield* direct`INSERT INTO api_keys (id, name, plan, per_minute, per_day, created_at)
          VALUES ('a', 'a', 'free', 1, 1, now())`
        const layer = Layer.provide(SqlAuditLog.layer(Duration.days(400)), Layer.succeedContext(context))
        const auditLog = Context.get(yield* Layer.build(layer), AuditLog.AuditLog)
        const lock = Effect.andThen(direct`LOCK TABLE audit_log`, direct`SELECT pg_sleep(4)`)
        const locking = yield* Effect.forkScoped(direct.withTransaction(lock))
        yield* Effect.sleep("200 millis")
        // Of today, because the expiry would delete an old entry.
        const at = Date.now()
        yield* auditLog.recordBan({ keyId: "a", address: "192.0.2.1", at, until: at + 60_000 })
        const reads = Effect.replicateEffect(Effect.exit(auditLog.list({ limit: 10 })), 14, { concurrency: 14 })
        yield* Effect.forkScoped(reads)
        // Without a free connection, one would wait until the reads fail after three seconds.
        yield* Effect.repeat(Effect.delay(Effect.timeout(sql`SELECT 1`, "2 seconds"), "100 millis"), { times: 30 })
        yield* Fiber.join(locking)
        const bans = direct`SELECT FROM audit_log WHERE action = 'ban'`
        const stored = Effect.repeat(Effect.delay(bans, "100 millis"), { until: (rows) => rows.length > 0 })
        assert.lengthOf(yield* Effect.timeout(stored, "12 seconds"), 1)
      })
  )

  it.live("with 2 connections, issues a key: its audit entry waits for no other connection", () =>
    Effect.gen(function*() {
      const { context, direct } = yield* makePool(2)
      const layer = Layer.provide(Layer.fresh(sqlApiKeys), [Layer.succeedContext(context), random])
      yield* Context.get(yield* Layer.build(layer), ApiKeys).issue({ name: "a", plan: "free" })
      assert.lengthOf(yield* direct`SELECT FROM audit_log`, 1)
    }))

  it.live("stores a ban once, also if a flush that failed had committed and is repeated", () =>
    Effect.gen(function*() {
      const { context, direct } = yield* makePool(2)
      yield* direct`INSERT INTO api_keys (id, name, plan, per_minute, per_day, created_at)
        VALUES ('a', 'a', 'free', 1, 1, now())`
      const layer = Layer.provide(SqlAuditLog.layer(Duration.days(400)), Layer.succeedContext(context))
      const auditLog = Context.get(yield* Layer.build(layer), AuditLog.AuditLog)
      const now = Date.now()
      for (const at of [now, now, now + 1]) {
        yield* auditLog.recordBan({ keyId: "a", address: "192.0.2.1", at, until: at + 60_000 })
        yield* Effect.sleep("1 second")
      }
      const bans = direct`SELECT FROM audit_log WHERE action = 'ban'`
      const both = Effect.repeat(bans, { until: (rows) => rows.length >= 2 })
      assert.lengthOf(yield* Effect.timeout(both, "5 seconds"), 2)
    }))
})
