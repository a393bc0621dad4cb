/** Tests the forms of `DATABASE_URL` and `REDIS_URL`, their parameters, and the errors of invalid ones. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Redacted, Result } from "effect"
import { parseDatabaseUrl, parseRedisUrl } from "../../src/config/ConnectionUrls.ts"
import * as Certificates from "../support/Certificates.ts"

const database = (text: string) => Result.getOrThrow(parseDatabaseUrl(text))
const redis = (text: string) => Result.getOrThrow(parseRedisUrl(text))
/** Returns what is wrong with a URL. */
const problem = (text: string): string =>
  Result.getOrThrow(
    Result.flip<unknown, string>(text.startsWith("redis") ? parseRedisUrl(text) : parseDatabaseUrl(text))
  )

describe("DATABASE_URL", () => {
  it.each([
    ["postgres://", "localhost", 5432],
    ["POSTGRESQL:///d\n", "localhost", 5432],
    ["postgres://u%40a:p%2F+@[::1]:6/d%20e", "::1", 6],
    ["postgres://h?user=u&password=p&dbname=d&host=%2Frun&port=7", "/run", 7],
    ["postgres://%2Frun%2Fpg/?sslmode=require", "/run/pg", 5432]
  ])("names one endpoint: %s", (text, host, port) => {
    assert.deepInclude(database(text), { host, port, ssl: false, url: Redacted.make(text.trim()) })
  })

  it.each([
    ["", false, "petstore"],
    ["pgbouncer=true", true, "petstore"],
    ["pgbouncer=false&application_name=pets", false, "pets"]
  ])("has a pooler only with pgbouncer=true, and a name for the application: %s", (parameters, isPooled, name) => {
    assert.deepInclude(database(`postgres://h?${parameters}`), { isPooled, applicationName: name })
  })

  it.each([
    ["?sslmode=allow", /^sslmode disable, require, verify-ca, verify-full$/],
    ["?sslmode=verify-full", /^sslrootcert \(a file, or system\) with sslmode verify-full$/],
    ["?sslrootcert=/a", /^sslmode require, verify-ca or verify-full, because it names files for TLS$/],
    ["?pgbouncer=yes", /^pgbouncer true, false$/],
    ["?sslmode=require&sslcert=/a", /^both sslcert and sslkey, or none$/],
    ["?user=%zz", /^an encoded user and password: %40 for @$/],
    ["?sslcrl=x", /^no parameters but host, .*, pgbouncer, .*, sslrootcert, /],
    ["?hostaddr=x", /^no parameters but /],
    [
      "?target_session_attrs=primary",
      /^one host, without target_session_attrs: .* an address that follows the primary/
    ],
    [",b/d", /^one host, .* an address that follows the primary/],
    [":1,b:2/d", /^one host, .* an address that follows the primary/]
  ])("is invalid with %s, and the error says what is expected, without the password", (rest, expected) => {
    for (const text of [`postgres://a${rest}`, `postgres://u:secret@a${rest}`]) {
      assert.match(problem(text), expected)
      assert.notInclude(problem(text), "secret")
    }
  })

  it("has no part of a password without encoding in its errors", () => {
    for (const text of ["u:1/sec?ret=1@h/d", "u:sec/ret?sec=ret@h", "u:secret@h/d?sslmode=@sec", "u:x@sec@ret/d?a=1"]) {
      assert.notMatch(problem(`postgres://${text}`), /sec|ret/)
    }
  })
})

describe("REDIS_URL", () => {
  it("has a server, credentials and a database", () => {
    assert.deepStrictEqual(redis("redis://us%40er:p%2Fw@redis.internal:6380/15"), {
      kind: "server",
      addresses: [{ host: "redis.internal", port: 6380 }],
      credentials: { username: "us@er", password: Redacted.make("p/w") },
      database: 15,
      masterName: "",
      sentinelCredentials: {},
      tls: undefined
    })
    assert.deepInclude(redis("redis://:p@[::1]"), {
      addresses: [{ host: "::1", port: 6379 }],
      credentials: { password: Redacted.make("p") },
      database: 0
    })
    assert.deepStrictEqual(redis("redis://").addresses, [{ host: "localhost", port: 6379 }])
  })

  it("has sentinels, the name of the master, a database, and credentials of the sentinels", () => {
    const url =
      "redis+sentinel://u:p@s-1:26380,[fd00::2],10.0.0.3/my%20pets/2?sentinel_username=a&sentinel_password=b%26"
    assert.deepStrictEqual(redis(url), {
      kind: "sentinel",
      addresses: [{ host: "s-1", port: 26_380 }, { host: "fd00::2", port: 26_379 }, { host: "10.0.0.3", port: 26_379 }],
      credentials: { username: "u", password: Redacted.make("p") },
      database: 2,
      masterName: "my pets",
      sentinelCredentials: { username: "a", password: Redacted.make("b&") },
      tls: undefined
    })
    assert.deepInclude(redis("rediss+sentinel://s/pets"), { masterName: "pets", database: 0, tls: {} })
  })

  it("has nodes of a cluster", () => {
    assert.deepInclude(redis("REDISS+CLUSTER://n-1,n-2:7000/0"), {
      kind: "cluster",
      addresses: [{ host: "n-1", port: 6379 }, { host: "n-2", port: 7000 }],
      tls: {}
    })
  })

  it.each([
    ["redis://h,i", "one host, or redis+sentinel:// or redis+cluster:// for several"],
    ["redis+sentinel://h", /^the name of the master, .* as in redis\+sentinel:\/\/host:26379\/name\/1$/],
    ["redis+sentinel://h/", /^the name of the master/],
    ["redis+sentinel://h/pets/one", /^the name of the master, and at most a database number/],
    ["redis+sentinel:///pets", "a host"],
    ["redis+cluster://", "a host"],
    ["redis+sentinel://h:0/pets", "ports from 1 to 65535"],
    ["redis+cluster://h,i:65536", "ports from 1 to 65535"],
    ["redis+cluster://h/1", "no database, because a cluster has only one"],
    ["redis://h/one", "a database number, as in redis://host:6379/1"],
    ["redis://h?db=1", "no parameters (those for TLS need rediss://)"],
    ["redis+cluster://h?ssl_ca_certs=/a", "no parameters (those for TLS need rediss://)"],
    ["redis+sentinel://h/pets?sentinel_user=u", "no parameters but sentinel_username, sentinel_password"],
    ["rediss://h?ssl_ca_cert=/a", "no parameters but ssl_ca_certs, ssl_certfile, ssl_keyfile, ssl_password"],
    ["rediss://h?ssl_certfile=/a", "both ssl_certfile and ssl_keyfile, or none"],
    ["redis+proxy://h", ""],
    ["redis+cluster://h,,i", ""],
    ["redis+cluster://h;i", ""]
  ])("is invalid as %s, and the error says what is expected", (url, expected) => {
    if (typeof expected === "string") assert.strictEqual(problem(url), expected)
    else assert.match(problem(url), expected)
  })
})

describe("The files for TLS in a URL", () => {
  it.effect.skipIf(Certificates.missing !== undefined)(
    "are checked, and the error names each file and the reason",
    () =>
      Effect.gen(function*() {
        const { cert, issue, key } = yield* Certificates.makeAuthority
        const client = issue("client", { password: "secret" })
        for (
          const [[ca, certificate, privateKey, password], expected] of [
            [["/none"], /^a usable file in CA, not \/none \(ENOENT: no such file/],
            [[key], /^a usable file in CA, not .* \(.*PEM.*\)$/],
            [[undefined, key, client.key], /^a usable file in CERT, .*PEM/],
            [[undefined, cert, client.key, "secret"], /^a usable file in KEY, .*mismatch/],
            [[undefined, client.cert, client.key, "wrong"], /^a usable file in KEY, /]
          ] as const
        ) {
          for (
            const [url, ...names] of [
              ["postgres://u:pw@h/d?sslmode=require", "sslrootcert", "sslcert", "sslkey", "sslpassword"],
              ["rediss://u:pw@h?", "ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_password"]
            ] as const
          ) {
            const values = [ca, certificate, privateKey, password]
            const parameters = names.flatMap((name, index) =>
              values[index] === undefined ? [] : `&${name}=${values[index]}`
            )
            const found = problem(url + parameters.join("")).replace(names[0], "CA").replace(names[1], "CERT")
              .replace(names[2], "KEY")
            assert.match(found, expected)
            assert.notInclude(found, "secret")
            assert.notInclude(found, "\n")
          }
        }
      })
  )
})
