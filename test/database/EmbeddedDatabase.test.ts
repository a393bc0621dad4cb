import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import * as EmbeddedDatabase from "../../src/database/EmbeddedDatabase.ts"
import { dataDirectory } from "../support/Harness.ts"

/** Runs `test` on an embedded database. `waitFor` waits until the SQL condition holds. */
const onEmbedded = <E, R>(
  test: (sql: SqlClient.SqlClient, waitFor: (condition: string) => Effect.Effect<void>) => Effect.Effect<void, E, R>
) =>
  Effect.gen(function*() {
    const directory = yield* dataDirectory
    yield* Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      const holds = (condition: string) =>
        Effect.map(sql<{ readonly holds: boolean }>`SELECT ${sql.literal(condition)} AS holds`, ([row]) => row?.holds)
      yield* test(sql, (condition) =>
        holds(condition).pipe(
          Effect.repeat({ until: (held) => held === true, times: 1_000 }),
          Effect.orDie,
          Effect.map((held) => assert.isTrue(held, condition))
        ))
    }).pipe(Effect.provide(EmbeddedDatabase.layer(directory)))
  })

describe("The embedded database", () => {
  it.effect("writes a checkpoint within 10 seconds once its log is long, so that a start after a kill is fast", () =>
    onEmbedded(Effect.fnUntraced(function*(sql, waitFor) {
      const isShort = "(SELECT pg_current_wal_lsn() - redo_lsn < 1000000 FROM pg_control_checkpoint())"
      yield* sql`CREATE TABLE written AS SELECT repeat(md5(n::text), 30) FROM generate_series(1, 40000) AS n`
      yield* waitFor(`NOT ${isShort}`)
      yield* TestClock.adjust("10 seconds")
      yield* waitFor(isShort)
    })))

  it.effect("vacuums every 10 minutes, so that deleted rows free their space", () =>
    onEmbedded(Effect.fnUntraced(function*(sql, waitFor) {
      yield* sql`CREATE TABLE removed AS SELECT n FROM generate_series(1, 10000) AS n`
      yield* sql`DELETE FROM removed`
      yield* waitFor("pg_relation_size('removed') > 0")
      yield* TestClock.adjust("10 minutes")
      yield* waitFor("pg_relation_size('removed') = 0")
    })))
})
