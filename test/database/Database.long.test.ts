/** Tests which connections to PostgreSQL stay open, and which are replaced. */
import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { databaseAt } from "../support/Databases.ts"
import * as Postgres from "../support/Postgres.ts"
import * as Proxy from "../support/Proxy.ts"

/** A server, a proxy in front of it, and two connections of a pool through the proxy. */
const makePool = Effect.gen(function*() {
  const postgres = yield* Postgres.run()
  const proxy = yield* Proxy.run(postgres.port)
  const database = yield* Layer.build(databaseAt(`postgres://postgres@127.0.0.1:${proxy.port}/postgres`))
  const sql = Context.get(database, SqlClient.SqlClient)
  const connect = sql<{ readonly pid: number }>`SELECT pg_backend_pid() AS pid, pg_sleep(0.5)`
  const opened = yield* Effect.replicateEffect(connect, 2, { concurrency: 2 })
  return {
    proxy,
    sql,
    pids: opened.map(([row]) => row?.pid),
    /** The sessions of the pool, as the server sees them. */
    sessions: postgres.admin((admin) =>
      Effect.map(
        admin<{ readonly pid: number }>`SELECT pid FROM pg_stat_activity WHERE application_name = 'petstore'`,
        (rows) => rows.map(({ pid }) => pid)
      )
    )
  }
})

describe.skipIf(!Postgres.isInstalled)("A connection to PostgreSQL", () => {
  it.live("stays open while it is idle", () =>
    Effect.gen(function*() {
      const { pids, sessions } = yield* makePool
      yield* Effect.sleep("8 seconds")
      assert.sameMembers(yield* sessions, pids)
    }))

  it.live.each<Proxy.Fault>(["hanging", "severed"])(
    "is replaced within four seconds if the server falls silent (%s), and so are idle ones",
    (fault) =>
      Effect.gen(function*() {
        const { pids, proxy, sessions, sql } = yield* makePool
        assert.lengthOf(new Set(pids), 2)
        proxy.setFault(fault)
        const startedAt = performance.now()
        yield* Effect.flip(Effect.timeout(sql`SELECT 1`, "1 second"))
        assert.isBelow(performance.now() - startedAt, 4_000)
        proxy.setFault(undefined)
        yield* Effect.sleep("1 second")
        yield* sql`SELECT 1`
        assert.isEmpty((yield* sessions).filter((pid) => pids.includes(pid)))
      })
  )
})
