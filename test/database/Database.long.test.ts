import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, Exit, Layer } from "effect"
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
      admin<{ readonly pid: number }>`SELECT pid FROM pg_stat_activity WHERE application_name = 'petstore'`
    )
  }
})

describe.skipIf(!Postgres.isInstalled)("All connections to PostgreSQL", { concurrent: true }, () => {
  it.live("end statements after 2.5 seconds, and stay open while they are idle", () =>
    Effect.gen(function*() {
      const { pids, sessions, sql } = yield* makePool
      assert.deepStrictEqual(yield* sql`SHOW statement_timeout`, [{ statement_timeout: "2500ms" }])
      yield* Effect.sleep("8 seconds")
      assert.sameMembers((yield* sessions).map(({ pid }) => pid), pids)
    }))

  it.live.each<Proxy.Fault>(["hanging", "severed"])(
    "are replaced within four seconds of silence (%s)",
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
        assert.isEmpty((yield* sessions).filter(({ pid }) => pids.includes(pid)))
      })
  )

  it.live.each([1, 2, 10])(
    "are all replaced within six seconds after they fell silent while idle, with %i calls at a time",
    (calls) =>
      Effect.gen(function*() {
        const { proxy, sql } = yield* makePool
        yield* Effect.replicateEffect(sql`SELECT pg_sleep(0.3)`, 10, { concurrency: 10 })
        // Longer than two verdicts: each socket was idle before.
        yield* Effect.sleep("8 seconds")
        proxy.muteOpen()
        const startedAt = performance.now()
        const call = Effect.exit(Effect.timeout(sql`SELECT 1`, "3 seconds"))
        const served = Effect.repeat(call, { until: Exit.isSuccess })
        yield* Effect.replicateEffect(served, calls, { concurrency: calls })
        assert.isBelow(performance.now() - startedAt, 6_000)
        const later = yield* Effect.replicateEffect(call, 20, { concurrency: 10 })
        assert.isTrue(later.every(Exit.isSuccess))
      })
  )

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
