/** Tests the syntax of connection strings and the errors of invalid ones. */
import { assert, describe, it } from "@effect/vitest"
import { Redacted, Result } from "effect"
import * as ConnectionString from "../../src/config/ConnectionString.ts"

const parse = (text: string) => {
  const result = ConnectionString.parse(text)
  if (Result.isFailure(result)) return assert.fail(result.failure)
  const { password, tls: _, ...rest } = result.success
  return { ...rest, password: password === undefined ? undefined : Redacted.value(password) }
}

const problem = (text: string): string => {
  const result = ConnectionString.parse(text)
  return Result.isFailure(result) ? result.failure : assert.fail(text)
}

describe("A connection string", () => {
  it("is read as libpq reads it", () => {
    const none = {
      host: "localhost",
      port: 5432,
      username: undefined,
      password: undefined,
      database: undefined,
      applicationName: undefined,
      options: undefined,
      connectTimeoutSeconds: undefined,
      encryption: "preferred" as const
    }
    assert.deepStrictEqual(parse("postgres://"), none)
    assert.deepStrictEqual(parse("POSTGRESQL:///d\n"), { ...none, database: "d" })
    assert.deepStrictEqual(parse("postgres://u%40a:p%2F#?+@[::1]:6/d%20e?sslmode=disable&connect_timeout=0"), {
      ...none,
      username: "u@a",
      password: "p/#?+",
      host: "::1",
      port: 6,
      database: "d e",
      encryption: "none",
      connectTimeoutSeconds: 0
    })
    assert.deepStrictEqual(parse("postgres://h?user=u&password=p&dbname=d&host=%2Frun&application_name=a+b&port=7"), {
      ...none,
      username: "u",
      password: "p",
      database: "d",
      host: "/run",
      port: 7,
      applicationName: "a+b",
      encryption: "none"
    })
    assert.deepStrictEqual(
      parse("postgres://%2Frun%2Fpg/?options=-c%20work_mem%3D1MB&sslmode=require&target_session_attrs=read-write"),
      { ...none, host: "/run/pg", options: "-c work_mem=1MB", encryption: "none" }
    )
    assert.strictEqual(parse("postgres://h?ssl=true&channel_binding=prefer").encryption, "required")
    assert.strictEqual(parse("postgres://h?sslrootcert=system").encryption, "required")
  })

  it.each([
    ["sslmode=allow", "sslmode disable, prefer, require, verify-ca or verify-full, not allow"],
    ["channel_binding=require", "channel_binding disable or prefer, not require"],
    ["target_session_attrs=standby", "target_session_attrs any or read-write, not standby"],
    ["sslmode=verify-full", "sslrootcert (a file, or system) with sslmode verify-full"],
    ["sslmode=require&sslrootcert=system", "sslmode verify-full with sslrootcert system, not require"],
    ["connect_timeout=soon", "connect_timeout from 0 to 2147483"],
    ["port=0", "port from 1 to 65535"],
    ["host=a,b", "one host"],
    ["sslcert=/a", "both sslcert and sslkey, or none"],
    ["sslmode", "parameters like name=value, and & between them"],
    ["options=%00", "no %00"],
    ["user=%zz", "valid percent-encoding"]
  ])("is invalid with %s, and the error says what is expected", (parameters, expected) => {
    assert.strictEqual(problem(`postgres://u:secret@h/d?${parameters}`), expected)
  })

  it.each(["sslcrl", "sslcompression", "hostaddr", "sslmod"])("is invalid with the parameter %s", (name) => {
    assert.match(problem(`postgres://u:secret@h/d?${name}=x`), new RegExp(`^the parameters host, .*, not ${name}$`))
  })

  it("has no part of the password in its errors, also when the password is not encoded", () => {
    for (const text of ["u:1/sec?ret=1@h/d", "u:sec/ret?sec=ret@h", "u:secret@h/d?sslmode=@sec", "u:x@sec@ret/d"]) {
      assert.notMatch(problem(`postgres://${text}`), /sec|ret/)
    }
  })
})
