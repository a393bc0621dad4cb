import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import * as EmbeddedDatabase from "../../src/database/EmbeddedDatabase.ts"
import { dataDirectory } from "../support/Harness.ts"

describe("The embedded database", () => {
  it.effect("writes a checkpoint within 10 seconds once its log is long, and vacuums every 10 minutes", () =>
    Effect.gen(function*() {
      const layer = EmbeddedDatabase.layer(yield* dataDirectory)
      yield* Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        const waitFor = (condition: string) =>
          sql<{ readonly holds: boolean }>`SELECT ${sql.literal(condition)} AS holds`.pipe(
            Effect.repeat({ until: ([row]) => row?.holds === true, times: 1_000 }),
            Effect.map(([row]) => assert.isTrue(row?.holds, condition))
          )
        const isShort = "(SELECT pg_current_wal_lsn() - redo_lsn < 1000000 FROM pg_control_checkpoint())"
        yield* sql`CREATE TABLE removed AS SELECT repeat(md5(n::text), 30) FROM generate_series(1, 40000) AS n`
        yield* sql`DELETE FROM removed`
        yield* waitFor(`NOT ${isShort}`)
        yield* TestClock.adjust("10 seconds")
        yield* waitFor(isShort)
        yield* TestClock.adjust("10 minutes")
        yield* waitFor("pg_relation_size('removed') = 0")
      }).pipe(Effect.provide(layer))
    }))
})
