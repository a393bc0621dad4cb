/** Tests the form of `DATABASE_URL`, its parameters, and the errors of invalid ones. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Result } from "effect"
import * as ConnectionString from "../../src/config/ConnectionString.ts"
import * as Certificates from "../support/Certificates.ts"

const parse = (text: string) => Result.getOrThrow(ConnectionString.parse(text))
const problem = (text: string): string => {
  const result = ConnectionString.parse(text)
  return Result.isFailure(result) ? result.failure : assert.fail(text)
}

describe("A connection string", () => {
  it.each([
    ["postgres://", "localhost", 5432],
    ["POSTGRESQL:///d\n", "localhost", 5432],
    ["postgres://u%40a:p%2F+@[::1]:6/d%20e", "::1", 6],
    ["postgres://h?user=u&password=p&dbname=d&host=%2Frun&port=7", "/run", 7],
    ["postgres://%2Frun%2Fpg/?sslmode=require", "/run/pg", 5432]
  ])("names one endpoint: %s", (text, host, port) => {
    const parsed = parse(text)
    assert.deepStrictEqual([parsed.host, parsed.port, parsed.ssl], [host, port, false])
  })

  it("has a pooler only with pgbouncer=true, and the application name petstore by default", () => {
    assert.isTrue(parse("postgres://h?pgbouncer=true").isPooled)
    assert.isFalse(parse("postgres://h?pgbouncer=false").isPooled)
    assert.isFalse(parse("postgres://h").isPooled)
    assert.strictEqual(parse("postgres://h").applicationName, "petstore")
    assert.strictEqual(parse("postgres://h?application_name=pets").applicationName, "pets")
  })

  it.each([
    ["sslmode=allow", "sslmode disable, require, verify-ca, verify-full"],
    ["sslmode=verify-full", "sslrootcert (a file, or system) with sslmode verify-full"],
    ["sslrootcert=/a", "sslmode require, verify-ca or verify-full, because it names files for TLS"],
    ["pgbouncer=yes", "pgbouncer true, false"],
    ["sslmode=require&sslcert=/a", "both sslcert and sslkey, or none"],
    ["user=%zz", "valid percent-encoding"]
  ])("is invalid with %s, and the error says what is expected", (parameters, expected) => {
    assert.strictEqual(problem(`postgres://u:secret@h/d?${parameters}`), expected)
  })

  it.each(["sslcrl", "hostaddr", "channel_binding"])("is invalid with %s, which would have no effect", (name) => {
    assert.match(problem(`postgres://h/d?${name}=x`), /^no other parameters than host, .*, pgbouncer$/)
  })

  it.each(["postgres://a,b/d", "postgres://u:p@a:1,b:2/d", "postgres://a?target_session_attrs=primary"])(
    "with several hosts or the choice of one is invalid, and the error names the alternative: %s",
    (text) => {
      assert.match(problem(text), /^one host: a server, or an address that follows the primary/)
    }
  )

  it("has no part of the password in its errors, also when the password is not encoded", () => {
    for (const text of ["u:1/sec?ret=1@h/d", "u:sec/ret?sec=ret@h", "u:secret@h/d?sslmode=@sec", "u:x@sec@ret/d?a=1"]) {
      assert.notMatch(problem(`postgres://${text}`), /sec|ret/)
    }
  })

  it.effect.skipIf(Certificates.missing !== undefined)(
    "is invalid with files that cannot be used, and the error names each file and the reason",
    () =>
      Effect.gen(function*() {
        const { cert, issue, key } = yield* Certificates.makeAuthority
        const client = issue("client", { password: "secret" })
        for (
          const [parameters, expected] of [
            ["sslrootcert=/none", /^a usable file in sslrootcert, not \/none \(ENOENT: no such file/],
            [`sslrootcert=${key}`, /has no certificate in PEM format/],
            [`sslcert=${cert}&sslkey=${client.key}&sslpassword=secret`, /^a usable file in sslkey, .*mismatch/],
            [`sslcert=${client.cert}&sslkey=${client.key}&sslpassword=wrong`, /^a usable file in sslkey, /]
          ] as const
        ) {
          const found = problem(`postgres://u:pw@h/d?sslmode=require&${parameters}`)
          assert.match(found, expected)
          assert.notInclude(found, "secret")
          assert.notInclude(found, "\n")
        }
      })
  )
})
