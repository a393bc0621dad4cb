/** Tests which errors of the database are outages, and how long a start waits. */
import { assert, describe, it } from "@effect/vitest"
import { Cause, Clock, ConfigProvider, Effect, Layer, Logger } from "effect"
import { SqlError } from "effect/sql"
import { TestClock } from "effect/testing"
import { ServiceUnavailable } from "../../src/api/Errors.ts"
import * as Database from "../../src/database/Database.ts"
import * as Outage from "../../src/database/Outage.ts"

const unknown = (code: string) => new SqlError.UnknownError({ cause: { code } })
const pooler = (message: string) =>
  new SqlError.ConnectionError({ cause: Object.assign(new Error(message), { code: "08P01" }) })

describe("An outage", () => {
  // `test/processes/faults.test.ts` and `main.test.ts` cause the other ones.
  it.each<readonly [string, SqlError.SqlErrorReason, boolean, boolean]>([
    ["a server behind PgBouncer that starts", pooler("the database system is starting up"), true, true],
    ["a parameter that PgBouncer rejects", pooler("unsupported startup parameter: statement_timeout"), false, true],
    ["a rejected user", new SqlError.AuthenticationError({ cause: { code: "28P01" } }), false, true],
    ["a failed system call", unknown("58030"), false, true],
    ["an object in a wrong state", unknown("55000"), false, true],
    ["a missing database", unknown("3D000"), false, true],
    ["a missing prepared statement", unknown("26000"), false, true],
    ["a missing table", unknown("42P01"), false, false]
  ])("includes %s: %j, at the start %s, later %s", (_, reason, atStart, later) => {
    const error = new SqlError.SqlError({ reason })
    assert.deepStrictEqual([Outage.isTransientAtStart(error), Outage.isOutage(error)], [atStart, later])
  })
})

describe("A failed statement", () => {
  const sqlError = (reason: SqlError.SqlErrorReason) => new SqlError.SqlError({ reason })

  it.effect("is ServiceUnavailable in an outage, which is logged in one line, and a defect otherwise", () =>
    Effect.gen(function*() {
      const lines: Array<string> = []
      const run = (failure: unknown) =>
        Outage.toServiceUnavailable(Effect.fail(failure)).pipe(
          Effect.catchDefect((defect) => Effect.fail({ defect })),
          Effect.flip,
          Effect.provide(Logger.layer([Logger.make(({ cause, message }) => {
            assert.isEmpty(cause.reasons)
            lines.push(String(message))
          })]))
        )
      const readOnly = yield* run(sqlError(unknown("25006")))
      assert.deepInclude(readOnly, {
        status: 503,
        message: "The database accepts no writes at the moment. Reads work."
      })
      const closed = new SqlError.ConnectionError({ cause: new Error("The connection\nclosed") })
      assert.instanceOf(yield* run(sqlError(closed)), ServiceUnavailable)
      assert.instanceOf(yield* run(new Cause.TimeoutError("too slow")), ServiceUnavailable)
      assert.lengthOf(lines, 3)
      assert.match(lines[1] ?? "", /^A statement of the database failed: .*The connection closed$/)
      const missingTable = sqlError(unknown("42P01"))
      assert.deepStrictEqual(yield* run(missingTable), { defect: missingTable })
      assert.strictEqual(yield* run("another error"), "another error")
      assert.lengthOf(lines, 3)
    }))
})

describe("A start", () => {
  it.effect("fails if the server is not available within half a minute, and logs one line without the password", () =>
    Effect.gen(function*() {
      const lines: Array<string> = []
      const begin = yield* Clock.currentTimeMillis
      const DATABASE_URL = "postgres://nobody:secret@127.0.0.1:1/none"
      const start = Effect.flip(Effect.scoped(Layer.build(Database.layer))).pipe(
        Effect.provide(Layer.merge(
          Logger.layer([Logger.make(({ message }) => void lines.push(String(message)))]),
          ConfigProvider.layer(ConfigProvider.fromUnknown({ DATABASE_URL }))
        ))
      )
      // Each attempt takes real time. The clock advances by a second once the attempt may have failed.
      const seconds = Effect.forever(Effect.andThen(
        TestClock.withLive(Effect.sleep("20 millis")),
        TestClock.adjust("1 second")
      ))
      yield* Effect.raceFirst(start, seconds)
      assert.isAtLeast((yield* Clock.currentTimeMillis) - begin, 29_000)
      assert.lengthOf(lines, 1)
      assert.match(lines[0] ?? "", /Waiting for the database: .*ECONNREFUSED/)
      assert.notInclude(lines[0], "secret")
    }))
})
