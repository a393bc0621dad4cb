/** Tests which errors of the database are outages, and how long a start waits. */
import { assert, describe, it } from "@effect/vitest"
import { Cause, Clock, ConfigProvider, Effect, Layer, Logger } from "effect"
import { SqlError } from "effect/sql"
import { TestClock } from "effect/testing"
import { ServiceUnavailable } from "../../src/api/Errors.ts"
import * as Database from "../../src/database/Database.ts"
import * as Outage from "../../src/database/Outage.ts"

const withCode = (code: string, text = "") => Object.assign(new Error(text), { code })
const unknown = (code: string) => new SqlError.UnknownError({ cause: withCode(code) })
const pooler = (text: string) => new SqlError.ConnectionError({ cause: withCode("08P01", text) })

describe("A failed statement", () => {
  // `test/processes/faults.test.ts` and `main.test.ts` cause the other outages.
  it.effect.each<readonly [string, SqlError.SqlErrorReason | Cause.TimeoutError, atStart: boolean, later: string]>([
    ["a server behind PgBouncer that starts", pooler("the database system is starting up"), true, "503"],
    ["a parameter that PgBouncer rejects", pooler("unsupported startup parameter: statement_timeout"), false, "503"],
    ["a rejected user", new SqlError.AuthenticationError({ cause: withCode("28P01") }), false, "503"],
    ["a failed system call", unknown("58030"), false, "503"],
    ["an object in a wrong state", unknown("55000"), false, "503"],
    ["a missing database", unknown("3D000"), false, "503"],
    ["a missing prepared statement", unknown("26000"), false, "503"],
    ["a read-only server", unknown("25006"), true, "503, and says that reads work"],
    ["a closed connection", new SqlError.ConnectionError({ cause: new Error("was\nclosed") }), true, "503"],
    ["a timeout", new Cause.TimeoutError("too slow"), false, "503"],
    ["a missing table", unknown("42P01"), false, "a defect"]
  ])("because of %s: %j, at the start %s, later %s", ([, reason, atStart, later]) =>
    Effect.gen(function*() {
      const lines: Array<string> = []
      const failure = Cause.isTimeoutError(reason) ? reason : new SqlError.SqlError({ reason })
      assert.strictEqual(SqlError.isSqlError(failure) && Outage.isTransientAtStart(failure), atStart)
      const error = yield* Outage.toServiceUnavailable(Effect.fail(failure)).pipe(
        Effect.catchDefect((defect) => Effect.fail({ defect })),
        Effect.flip,
        Effect.provide(Logger.layer([Logger.make(({ cause, message }) => {
          assert.isEmpty(cause.reasons)
          lines.push(String(message))
        })]))
      )
      if (later === "a defect") return assert.deepStrictEqual([error, lines], [{ defect: failure }, []])
      assert.instanceOf(error, ServiceUnavailable)
      assert.strictEqual(error.message.includes("Reads work."), later !== "503")
      assert.match(lines.join("\n"), /^A statement of the database failed: .*$/)
    }))
})

describe("A start", () => {
  it.effect("fails if the server is not available within half a minute, and logs one line without the password", () =>
    Effect.gen(function*() {
      const lines: Array<string> = []
      const DATABASE_URL = "postgres://nobody:secret@127.0.0.1:1/none"
      const start = Effect.flip(Effect.scoped(Layer.build(Database.layer))).pipe(
        Effect.provide([
          Logger.layer([Logger.make(({ message }) => void lines.push(String(message)))]),
          ConfigProvider.layer(ConfigProvider.fromUnknown({ DATABASE_URL }))
        ])
      )
      // Each attempt takes real time. The clock advances by a second once the attempt may have failed.
      const second = Effect.andThen(TestClock.withLive(Effect.sleep("20 millis")), TestClock.adjust("1 second"))
      yield* Effect.raceFirst(start, Effect.forever(second))
      assert.isAtLeast(yield* Clock.currentTimeMillis, 29_000)
      assert.match(lines.join("\n"), /^Waiting for the database: .*ECONNREFUSED.*$/)
      assert.notInclude(lines[0], "secret")
    }))
})
