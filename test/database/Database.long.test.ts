import { assert, describe, it } from "@effect/vitest"
import { Cause, Context, Effect, Exit, Fiber, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { databaseErrors } from "../../src/api/DatabaseErrors.ts"
import * as Outage from "../../src/database/Outage.ts"
import { describeCause } from "../../src/observability/DescribeCause.ts"
import * as Certificates from "../support/Certificates.ts"
import { databaseAt } from "../support/Databases.ts"
import * as Postgres from "../support/Postgres.ts"
import * as Proxy from "../support/Proxy.ts"

/** A server, a proxy in front of it, and two connections of a pool through the proxy. */
const makePool = Effect.fnUntraced(function*(withTls = false) {
  const authority = withTls ? yield* Certificates.makeAuthority : undefined
  const certificate = authority?.issue("localhost", { altNames: "IP:127.0.0.1" })
  const postgres = yield* Postgres.run({}, undefined, certificate && { certificate })
  const proxy = yield* Proxy.run(postgres.port)
  const parameters = authority === undefined ? "" : `?sslmode=verify-full&sslrootcert=${authority.cert}`
  const database = yield* Layer.build(databaseAt(`postgres://postgres@127.0.0.1:${proxy.port}/postgres${parameters}`))
  const sql = Context.get(database, SqlClient.SqlClient)
  const connect = sql<{ readonly pid: number }>`SELECT pg_backend_pid() AS pid, pg_sleep(0.5)`
  const opened = yield* Effect.replicateEffect(connect, 2, { concurrency: 2 })
  return {
    postgres,
    proxy,
    sql,
    pids: opened.map(([row]) => row?.pid),
    /** The sessions of the pool, as the server sees them. */
    sessions: postgres.admin((admin) =>
      admin<{ readonly pid: number }>`SELECT pid FROM pg_stat_activity WHERE application_name = 'petstore'`
    )
  }
})

describe.skipIf(!Postgres.isInstalled)("All connections to PostgreSQL", { concurrent: true }, () => {
  it.live("end statements after 2.5 seconds", () =>
    Effect.gen(function*() {
      const { sql } = yield* makePool()
      const startedAt = performance.now()
      const error = yield* Effect.flip(sql`SELECT pg_sleep(20)`)
      assert.match(describeCause(Cause.fail(error)), /statement timeout/)
      assert.approximately(performance.now() - startedAt, 3_000, 600)
    }))

  it.live("stay open while they are idle", () =>
    Effect.gen(function*() {
      const { pids, sessions } = yield* makePool()
      yield* Effect.sleep("8 seconds")
      assert.sameMembers((yield* sessions).map(({ pid }) => pid), pids)
    }))

  it.live.each<Proxy.Fault>(["hanging", "severed"])(
    "are replaced within four seconds of silence (%s)",
    (fault) =>
      Effect.gen(function*() {
        const { pids, proxy, sessions, sql } = yield* makePool()
        assert.lengthOf(new Set(pids), 2)
        proxy.setFault(fault)
        const startedAt = performance.now()
        const lost = yield* Effect.timeout(Effect.exit(sql`SELECT 1`), "10 seconds")
        assert.isTrue(Exit.isFailure(lost), "the statement fails by itself")
        assert.isBelow(performance.now() - startedAt, 4_000)
        proxy.setFault(undefined)
        yield* Effect.sleep("1 second")
        yield* sql`SELECT 1`
        assert.isEmpty((yield* sessions).filter(({ pid }) => pids.includes(pid)))
      })
  )

  it.live("stay open while statements on others wait for a lock, are cancelled, or open more connections", () =>
    Effect.gen(function*() {
      const { pids, postgres, sessions, sql } = yield* makePool()
      yield* postgres.admin((admin) => admin`CREATE TABLE locked ()`)
      const wait = (seconds: number) =>
        postgres.admin((admin) =>
          admin.withTransaction(
            Effect.andThen(admin`LOCK TABLE locked`, admin`SELECT pg_sleep(${seconds})`)
          )
        )
      const select = sql`SELECT FROM locked`
      yield* Effect.forkScoped(wait(9))
      yield* Effect.sleep("500 millis")
      for (let i = 0; i < 3; i++) {
        // The server ends one by its timeout, the driver cancels the other.
        yield* Effect.all([Effect.ignore(select), Effect.ignore(Effect.timeout(select, "1 second"))], {
          concurrency: 2
        })
        yield* Effect.replicateEffect(sql`SELECT pg_sleep(0.1)`, 4 + i, { concurrency: 6 })
      }
      const open = (yield* sessions).map(({ pid }) => pid)
      assert.includeMembers(open, pids)
      assert.lengthOf(open, 6)
    }))

  it.live.each<readonly [number, boolean]>([[1, false], [2, false], [10, false], [1, true], [10, true]])(
    "are all replaced within six seconds after they fell silent while idle, with %i calls at a time (TLS: %s)",
    ([calls, withTls]) =>
      Effect.gen(function*() {
        const { proxy, sql } = yield* makePool(withTls)
        yield* Effect.replicateEffect(sql`SELECT pg_sleep(0.3)`, 10, { concurrency: 10 })
        // Longer than two verdicts: each socket was idle before.
        yield* Effect.sleep("8 seconds")
        proxy.muteOpen()
        const startedAt = performance.now()
        const withinDeadline = yield* Outage.makeRunner(databaseErrors)
        const call = Effect.exit(withinDeadline(sql`SELECT 1`))
        const served = Effect.repeat(call, { until: Exit.isSuccess })
        yield* Effect.replicateEffect(served, calls, { concurrency: calls })
        assert.isBelow(performance.now() - startedAt, 6_000)
        const later = yield* Effect.replicateEffect(call, 20, { concurrency: 10 })
        assert.isTrue(later.every(Exit.isSuccess))
      })
  )

  it.live("are not taken from a migration that takes long", () =>
    Effect.gen(function*() {
      const postgres = yield* Postgres.run()
      // The migration waits for this transaction, which creates the same table, and rolls back.
      const hold = postgres.admin((admin) =>
        admin.withTransaction(
          Effect.andThen(admin`CREATE TABLE pets ()`, Effect.andThen(admin`SELECT pg_sleep(13)`, Effect.fail("end")))
        )
      )
      const migrating = postgres.admin((admin) =>
        admin<{ readonly pid: number }>`
          SELECT pid FROM pg_stat_activity WHERE application_name = 'petstore' AND wait_event_type = 'Lock'`
      )
      yield* Effect.forkScoped(hold)
      yield* Effect.sleep("500 millis")
      const start = Layer.build(databaseAt(`postgres://postgres@127.0.0.1:${postgres.port}/postgres`))
      const started = yield* Effect.forkScoped(start)
      const waiting = Effect.repeat(migrating, { until: (found) => found.length > 0 })
      const first = yield* Effect.timeout(waiting, "5 seconds")
      // Longer than the interval of the check and the silence that it accepts.
      yield* Effect.sleep("11 seconds")
      assert.deepStrictEqual(yield* migrating, first)
      yield* Effect.timeout(Fiber.join(started), "10 seconds")
    }))

  it.live.each([0, 1, 2, 3, 4, 5, 6, 7, 8])(
    "are opened anew if the one that migrates falls silent at its packet %i, and the start succeeds",
    (sent) =>
      Effect.gen(function*() {
        const postgres = yield* Postgres.run()
        const proxy = yield* Proxy.run(postgres.port)
        proxy.muteAfter(sent)
        yield* Layer.build(databaseAt(`postgres://postgres@127.0.0.1:${proxy.port}/postgres`)).pipe(
          Effect.timeout("40 seconds")
        )
      })
  )
})
