import { assert, describe, it } from "@effect/vitest"
import { Clock, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import * as Expiry from "../../src/database/Expiry.ts"
import { clientOn, temporaryDatabaseUrl } from "../support/Databases.ts"

/** A clock that is two hours ahead. */
const clockAhead: Clock.Clock = Object.assign(Object.create(Clock.Clock.defaultValue()), {
  currentTimeMillis: Effect.sync(() => Date.now() + 2 * 3_600_000)
})

describe.skipIf(process.env.TEST_DATABASE_URL === undefined)("Expired rows", () => {
  it.live("are deleted by the clock of the server, and those that a transaction has locked stay, without a wait", () =>
    Effect.gen(function*() {
      const url = yield* temporaryDatabaseUrl
      const connect = Effect.provide(Layer.fresh(clientOn(url)))
      yield* Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        const remaining = Effect.map(sql`SELECT FROM expiring`, (rows) => rows.length)
        yield* sql`CREATE TABLE expiring (expires_at timestamptz NOT NULL)`
        yield* sql`INSERT INTO expiring SELECT now() - interval '1 hour' FROM generate_series(1, 100)`
        yield* sql`INSERT INTO expiring SELECT now() + interval '1 hour' FROM generate_series(1, 10)`
        const deleteExpired = Expiry.deleteExpired({ table: "expiring", column: "expires_at", warning: "" }).pipe(
          Effect.provideService(Clock.Clock, clockAhead),
          Effect.andThen(Effect.repeat(remaining, { until: (rows) => rows < 110 })),
          Effect.scoped,
          connect
        )
        yield* sql.withTransaction(Effect.andThen(sql`SELECT FROM expiring LIMIT 1 FOR UPDATE`, deleteExpired))
        assert.strictEqual(yield* remaining, 11)
      }).pipe(connect)
    }))
})
