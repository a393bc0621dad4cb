/** Tests which errors of the database are outages, at the start and later. */
import { assert, describe, it } from "@effect/vitest"
import { Cause } from "effect"
import { SqlError } from "effect/sql"
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
