/** Tests which errors of the database are outages, at the start and later, and how long a start waits. */
import { assert, describe, it } from "@effect/vitest"
import { Cause, Clock, ConfigProvider, Effect, Layer, Logger } from "effect"
import { SqlError } from "effect/sql"
import { TestClock } from "effect/testing"
import * as Database from "../../src/database/Database.ts"
import * as Outage from "../../src/database/Outage.ts"

const withCode = (code: string) => new SqlError.SqlError({ reason: new SqlError.UnknownError({ cause: { code } }) })

describe("An outage", () => {
  const both = ["57P03", "53300", "25006"]
  const later = ["58030", "55000", "3D000", "26000", "42P05"]
  const neither = ["23505", "42P01", "22003"]

  for (const code of [...both, ...later, ...neither]) {
    it(`${neither.includes(code) ? "is not" : "is"} SQLSTATE ${code} in a running service`, () => {
      assert.strictEqual(Outage.isOutage(withCode(code)), !neither.includes(code))
    })
    it(`${both.includes(code) ? "is" : "is not"} SQLSTATE ${code} at the start`, () => {
      assert.strictEqual(Outage.isStarting(withCode(code)), both.includes(code))
    })
  }

  it("is a server behind PgBouncer that starts, and not a startup parameter that PgBouncer rejects", () => {
    const error = (message: string) =>
      new SqlError.SqlError({
        reason: new SqlError.ConnectionError({ cause: Object.assign(new Error(message), { code: "08P01" }) })
      })
    assert.isTrue(Outage.isStarting(error("the database system is starting up")))
    assert.isFalse(Outage.isStarting(error("unsupported startup parameter: statement_timeout")))
  })

  it("is a server that cannot be reached, at the start and later", () => {
    for (const cause of [{ code: "ECONNREFUSED" }, new Error("Connection timed out"), new Error("Connection closed")]) {
      const error = new SqlError.SqlError({ reason: new SqlError.ConnectionError({ cause }) })
      assert.isTrue(Outage.isStarting(error))
      assert.isTrue(Outage.isOutage(error))
    }
  })

  it("is a rejected user of a running service, and a wrong setting at the start", () => {
    const error = new SqlError.SqlError({ reason: new SqlError.AuthenticationError({ cause: { code: "28P01" } }) })
    assert.isFalse(Outage.isStarting(error))
    assert.isTrue(Outage.isOutage(error))
  })

  it("is a statement that does not end in time", () => {
    assert.isTrue(Outage.isOutage(new Cause.TimeoutError("")))
    assert.isFalse(Outage.isOutage(new Error("")))
  })
})

describe("A start", () => {
  it.effect("fails if the server is not available within half a minute, and logs one line without the password", () =>
    Effect.gen(function*() {
      const lines: Array<string> = []
      const begin = yield* Clock.currentTimeMillis
      const start = Effect.flip(Effect.scoped(Layer.build(Database.layer))).pipe(
        Effect.provide(Logger.layer([Logger.make(({ message }) => void lines.push(String(message)))])),
        Effect.provideService(
          ConfigProvider.ConfigProvider,
          ConfigProvider.fromUnknown({ DATABASE_URL: "postgres://nobody:secret@127.0.0.1:1/none" })
        )
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
