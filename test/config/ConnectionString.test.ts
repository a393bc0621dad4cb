/** Tests the syntax of connection strings and the errors of invalid ones. */
import { assert, describe, it } from "@effect/vitest"
import { Redacted, Result } from "effect"
import * as ConnectionString from "../../src/config/ConnectionString.ts"

const parse = (text: string) => {
  const result = ConnectionString.parse(text)
  if (Result.isFailure(result)) return assert.fail(result.failure)
  const { password, servers, ...rest } = result.success
  return {
    ...rest,
    servers: servers.map(({ encryption, host, port }) => `${host} ${port} ${encryption}`),
    password: password === undefined ? undefined : Redacted.value(password)
  }
}

const problem = (text: string): string => {
  const result = ConnectionString.parse(text)
  return Result.isFailure(result) ? result.failure : assert.fail(text)
}

describe("A connection string", () => {
  it("is read as libpq reads it", () => {
    const none = {
      servers: ["localhost 5432 preferred"],
      targetSessionAttrs: "any" as const,
      username: undefined,
      password: undefined,
      database: undefined,
      applicationName: undefined,
      options: undefined,
      isPooled: false,
      connectTimeoutSeconds: undefined
    }
    assert.deepStrictEqual(parse("postgres://"), none)
    assert.deepStrictEqual(parse("POSTGRESQL:///d\n"), { ...none, database: "d" })
    assert.deepStrictEqual(parse("postgres://u%40a:p%2F#?+@[::1]:6/d%20e?sslmode=disable&connect_timeout=0"), {
      ...none,
      username: "u@a",
      password: "p/#?+",
      servers: ["::1 6 none"],
      database: "d e",
      connectTimeoutSeconds: 0
    })
    assert.deepStrictEqual(parse("postgres://h?user=u&password=p&dbname=d&host=%2Frun&application_name=a+b&port=7"), {
      ...none,
      username: "u",
      password: "p",
      database: "d",
      servers: ["/run 7 none"],
      applicationName: "a+b"
    })
    assert.deepStrictEqual(
      parse("postgres://%2Frun%2Fpg/?options=-c%20work_mem%3D1MB&sslmode=require&target_session_attrs=read-write"),
      { ...none, servers: ["/run/pg 5432 none"], options: "-c work_mem=1MB", targetSessionAttrs: "read-write" }
    )
    assert.deepStrictEqual(parse("postgres://h?ssl=true&channel_binding=prefer").servers, ["h 5432 required"])
    assert.deepStrictEqual(parse("postgres://h?sslrootcert=system").servers, ["h 5432 required"])
  })

  it("has one server or several, with one port for all of them or one for each", () => {
    const two = ["a 5432 preferred", "b 5432 preferred"]
    assert.deepStrictEqual(parse("postgres://a,b/d").servers, two)
    assert.deepStrictEqual(parse("postgres:///d?host=a,b").servers, two)
    assert.deepStrictEqual(parse("postgres://a:5432,b:/d").servers, two)
    assert.deepStrictEqual(parse("postgres://u@a:1,[::1]:2,b/d?sslmode=disable").servers, [
      "a 1 none",
      "::1 2 none",
      "b 5432 none"
    ])
    assert.deepStrictEqual(parse("postgres://a,b/d?port=7").servers, ["a 7 preferred", "b 7 preferred"])
    assert.deepStrictEqual(parse("postgres://a,%2Frun/d?sslmode=require").servers, [
      "a 5432 required",
      "/run 5432 none"
    ])
  })

  it("selects a server that accepts writes if it has several", () => {
    assert.strictEqual(parse("postgres://a,b").targetSessionAttrs, "read-write")
    assert.strictEqual(parse("postgres://a").targetSessionAttrs, "any")
    assert.strictEqual(parse("postgres://a,b?target_session_attrs=prefer-standby").targetSessionAttrs, "prefer-standby")
  })

  it("has a pooler only with pgbouncer=true", () => {
    assert.isTrue(parse("postgres://h?pgbouncer=true").isPooled)
    assert.isFalse(parse("postgres://h?pgbouncer=false").isPooled)
    assert.isFalse(parse("postgres://h").isPooled)
  })

  it.each([
    ["sslmode=allow", "sslmode disable, prefer, require, verify-ca or verify-full, not allow"],
    ["channel_binding=require", "channel_binding disable or prefer, not require"],
    [
      "target_session_attrs=replica",
      "target_session_attrs any, read-write, read-only, primary, standby or prefer-standby, not replica"
    ],
    ["sslmode=verify-full", "sslrootcert (a file, or system) with sslmode verify-full"],
    ["sslmode=require&sslrootcert=system", "sslmode verify-full with sslrootcert system, not require"],
    ["connect_timeout=soon", "connect_timeout from 0 to 2147483"],
    ["port=0", "port from 1 to 65535"],
    ["host=a,b,c&port=1,2", "one port, or one for each host"],
    ["host=a,b&port=1,x", "port from 1 to 65535"],
    ["pgbouncer=yes", "pgbouncer true or false, not yes"],
    ["pgbouncer=true&options=-c%20a%3Db", "no options with pgbouncer=true"],
    ["pgbouncer=true&target_session_attrs=primary", "no target_session_attrs with pgbouncer=true"],
    ["pgbouncer=true&host=a,b", "one host with pgbouncer=true"],
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
