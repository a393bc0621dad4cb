import { assert, describe, it, vi } from "@effect/vitest"
import { Effect, Redacted, Result } from "effect"
import { readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { getCACertificates } from "node:tls"
import { type DatabaseUrl, parseDatabaseUrl } from "../../src/config/ConnectionUrls.ts"
import { parseRedisUrl, type RedisUrl } from "../../src/config/RedisUrl.ts"
import * as Certificates from "../support/Certificates.ts"
import { temporaryDirectory } from "../support/Temporary.ts"

/** Returns what is wrong with a URL. */
const problem = (text: string): string => {
  const result: Result.Result<unknown, string> = text.startsWith("redis") ? parseRedisUrl(text) : parseDatabaseUrl(text)
  return Result.getOrThrow(Result.flip(result))
}

describe("DATABASE_URL", () => {
  it.each<readonly [string, Partial<DatabaseUrl>]>([
    ["postgres://", { host: "localhost", port: 5432, isPooled: false, applicationName: "petstore" }],
    ["POSTGRESQL:///d\n", { host: "localhost", port: 5432 }],
    ["postgres://u%40a:p%2F+@[::1]:6/d%20e", { host: "::1", port: 6, database: "d e" }],
    ["postgres://h?user=u&password=p&dbname=d&host=%2Frun&port=7", { host: "/run", port: 7, database: "d" }],
    ["postgres://%2Frun%2Fpg/?sslmode=require", { host: "/run/pg", port: 5432 }],
    ["postgres://us%40er@db.localhost", { database: "us@er" }],
    ["postgres://127.0.0.9?pgbouncer=true", { isPooled: true, applicationName: "petstore" }],
    ["postgres://h?sslmode=disable&pgbouncer=false&application_name=pets", {
      isPooled: false,
      applicationName: "pets"
    }],
    ["postgres://localhost?options=-c%20a%3Db&connect_timeout=5", {}]
  ])("names one endpoint, and a pooler only with pgbouncer=true: %s", (text, expected) => {
    vi.stubEnv("PGSSLMODE", "require")
    const parsed = parseDatabaseUrl(text)
    vi.unstubAllEnvs()
    const { url, ...others } = Result.getOrThrow(parsed)
    assert.deepInclude(others, { ...expected, ssl: false })
    assert.strictEqual(Redacted.value(url), text.trim())
  })

  it.each([
    "postgres://db.internal",
    "postgres://localhost.example",
    "postgres://10.0.0.1",
    "postgres://localhost?host=h"
  ])(
    "of a host that is not this machine uses TLS unless sslmode=disable is written: %s",
    (text) => {
      const sslOf = (url: string) => Result.getOrThrow(parseDatabaseUrl(url)).ssl
      assert.deepInclude(sslOf(text), { rejectUnauthorized: false })
      assert.isFalse(sslOf(`${text}${text.includes("?") ? "&" : "?"}sslmode=disable`))
    }
  )

  it.effect("verifies the authority of sslrootcert with each sslmode, and with require alone none", () =>
    Effect.gen(function*() {
      const [ca = ""] = getCACertificates("bundled")
      const file = join(yield* temporaryDirectory, "ca.pem")
      writeFileSync(file, ca)
      const sslOf = (parameters: string) => Result.getOrThrow(parseDatabaseUrl(`postgres://h?${parameters}`)).ssl
      for (const mode of ["require", "verify-ca", "verify-full"]) {
        assert.deepInclude(sslOf(`sslmode=${mode}&sslrootcert=${file}`), { ca, rejectUnauthorized: true }, mode)
      }
      assert.deepInclude(sslOf("sslmode=require"), { rejectUnauthorized: false })
      // Only verify-full compares the name of the host.
      const ignoresName = (mode: string) =>
        Reflect.has(Object(sslOf(`sslmode=${mode}&sslrootcert=${file}`)), "checkServerIdentity")
      assert.deepStrictEqual(["require", "verify-ca", "verify-full"].map(ignoresName), [true, true, false])
    }))

  it.effect.skipIf(!Certificates.isInstalled)(
    "sends the certificate of sslcert with the key of sslkey",
    () =>
      Effect.gen(function*() {
        const { cert, key } = (yield* Certificates.makeAuthority).issue("petstore", { password: "p" })
        const url = `postgres://h?sslmode=require&sslcert=${cert}&sslkey=${key}&sslpassword=p`
        const expected = { cert: readFileSync(cert, "utf8"), key: readFileSync(key, "utf8"), passphrase: "p" }
        assert.deepInclude(Result.getOrThrow(parseDatabaseUrl(url)).ssl, expected)
      })
  )

  it("trusts the authorities of the system with sslrootcert=system", () => {
    const { ssl } = Result.getOrThrow(parseDatabaseUrl("postgres://h?sslmode=verify-full&sslrootcert=system"))
    // A machine without such authorities gets those of Node.
    const ca = [getCACertificates("system"), getCACertificates("bundled")].find(({ length }) => length > 0)
    assert.deepStrictEqual(ssl, { ca, rejectUnauthorized: true })
  })

  it("never repeats an unencoded password in its errors", () => {
    for (const text of ["u:1/sec?ret=1@h/d", "u:sec/ret?sec=ret@h", "u:secret@h/d?sslmode=@sec", "u:x@sec@ret/d?a=1"]) {
      assert.notMatch(problem(`postgres://${text}`), /sec|ret/)
    }
  })
})

describe("REDIS_URL", () => {
  const as = (password: string, username?: string) => ({ password, ...username !== undefined && { username } })
  const at = (host: string, port: number) => ({ host, port })

  // All `Redacted` compare as equal, so compare what they hold.
  const plain = ({ password, ...others }: RedisUrl["credentials"]) => ({
    ...others,
    ...password && { password: Redacted.value(password) }
  })
  type Credentials = ReturnType<typeof plain>
  type Expected = Partial<Omit<RedisUrl, "credentials" | "sentinelCredentials">> & {
    readonly credentials?: Credentials
    readonly sentinelCredentials?: Credentials
  }

  it.each<readonly [string, Expected]>([
    ["redis://", { addresses: [at("localhost", 6379)], credentials: {}, database: 0, tls: undefined }],
    ["redis://us%40er:p%2Fw@h:1/15", { kind: "server", addresses: [at("h", 1)], database: 15 }],
    ["redis://us%40er:p%2Fw@h", { credentials: as("p/w", "us@er") }],
    ["rediss://:p@[::1]", { addresses: [at("::1", 6379)], credentials: as("p"), tls: {} }],
    ["redis+sentinel://us%40er:p@s/pets", { kind: "sentinel", credentials: as("p", "us@er"), tls: undefined }],
    ["redis+sentinel://s-1:26380,[fd00::2]/pets", { addresses: [at("s-1", 26_380), at("fd00::2", 26_379)] }],
    ["redis+sentinel://s/my%20pets/2", { masterName: "my pets", database: 2, sentinelCredentials: {}, tls: undefined }],
    ["rediss+sentinel://s/a?sentinel_username=u&sentinel_password=%26", { sentinelCredentials: as("&", "u"), tls: {} }],
    ["REDISS+CLUSTER://n-1,n-2:7000/0", { kind: "cluster", addresses: [at("n-1", 6379), at("n-2", 7000)], tls: {} }]
  ])("names a server, sentinels, or nodes of a cluster: %s", (url, expected) => {
    const { credentials, sentinelCredentials, ...others } = Result.getOrThrow(parseRedisUrl(url))
    const all = { ...others, credentials: plain(credentials), sentinelCredentials: plain(sentinelCredentials) }
    assert.deepInclude(all, expected)
  })
})

it.effect.skipIf(!Certificates.isInstalled)(
  "The files that a URL names are the authority, the certificate and its key, which the password of the URL decrypts",
  () =>
    Effect.gen(function*() {
      const authority = yield* Certificates.makeAuthority
      const { cert, key } = authority.issue("client", { password: "a b" })
      const [ca, ...own] = [authority.cert, cert, key].map((file) => readFileSync(file, "utf8"))
      const expected = { ca, cert: own[0], key: own[1], passphrase: "a b" }
      const ofRedis = `ssl_ca_certs=${authority.cert}&ssl_certfile=${cert}&ssl_keyfile=${key}&ssl_password=a%20b`
      for (const url of ["rediss://h", "rediss+sentinel://h/pets", "rediss+cluster://h"]) {
        assert.deepStrictEqual(Result.getOrThrow(parseRedisUrl(`${url}?${ofRedis}`)).tls, expected)
      }
      const ofPostgres = `sslrootcert=${authority.cert}&sslcert=${cert}&sslkey=${key}&sslpassword=a%20b`
      const { ssl } = Result.getOrThrow(parseDatabaseUrl(`postgres://h?sslmode=verify-full&${ofPostgres}`))
      assert.deepStrictEqual(ssl, { ...expected, rejectUnauthorized: true })
    })
)

describe("An error in a URL", () => {
  const here = import.meta.filename

  it.each([
    ["postgres://a?sslmode=allow", /^sslmode disable, require, verify-ca, verify-full$/],
    ["postgres://a?sslmode=verify-full", /^sslrootcert \(a file path or "system"\) for sslmode verify-full$/],
    ["postgres://a?sslmode=verify-ca", /^sslrootcert \(a file path\) for sslmode verify-ca$/],
    ["postgres://a?sslrootcert=/a", /^sslmode require, verify-ca or verify-full, because .* other TLS parameters$/],
    ["postgres://a?pgbouncer=yes", /^pgbouncer true, false$/],
    ["postgres://a?sslmode=require&sslcert=/a", /^both sslcert and sslkey, or neither$/],
    ["postgres://a?user=%zz", /^a percent-encoded user and password: %40 for @$/],
    ["postgres://a?hostaddr=x", /^no parameters but host, .*, pgbouncer, .*, sslrootcert, /],
    ["postgres://a?target_session_attrs=any", /^one host, without target_session_attrs: .* an address that reaches/],
    ["postgres://a:1,b:2/d", /^one host, .* an address that reaches the primary/],
    ["postgres://h?host=a,b", /^one host, .* an address that reaches the primary/],
    ["postgres://a?sslmode=verify-ca&sslrootcert=system", /^sslmode verify-full for sslrootcert=system$/],
    ["postgres://a:65536", /^a port from 1 to 65535$/],
    ["postgres://a?port=b", /^a port from 1 to 65535$/],
    ["redis://h,i", /^one host, or redis\+sentinel:\/\/ or redis\+cluster:\/\/ for several$/],
    ["redis+sentinel://h/", /^the name of the master and, .* as in redis\+sentinel:\/\/host:26379\/name\/1$/],
    ["redis+sentinel://h/pets/one", /^the name of the master and, optionally, a database number/],
    ["redis+sentinel:///pets", /^a host$/],
    ["redis+cluster://h,i:65536", /^ports from 1 to 65535$/],
    ["redis+cluster://h/1", /^no database, because a cluster has only one$/],
    ["redis://h/one", /^a database number, as in redis:\/\/host:6379\/1$/],
    ["redis://h?db=1", /^no parameters \(those for TLS need rediss:\/\/\)$/],
    ["redis+sentinel://h/pets?sentinel_user=u", /^no parameters but sentinel_username, sentinel_password$/],
    ["rediss://h?ssl_ca_cert=/a", /^no parameters but ssl_ca_certs, ssl_certfile, ssl_keyfile, ssl_password$/],
    ["rediss://h?ssl_certfile=/a", /^both ssl_certfile and ssl_keyfile, or neither$/],
    ["redis+proxy://h", /^$/],
    ["redis+cluster://h,,i", /^$/],
    ["rediss://h?ssl_ca_certs=/none", /^a usable file in ssl_ca_certs, not \/none \(ENOENT: no such file/],
    [`postgres://a?sslmode=require&sslrootcert=${here}`, /^a usable file in sslrootcert, not .* \(.*PEM.*\)$/],
    [`postgres://a?sslmode=require&sslcert=${here}&sslkey=/none`, /^a usable file in sslcert, not .* \(.*PEM.*\)$/]
  ])("says what is expected instead of %s, without the password", (url, expected) => {
    for (const text of [url, url.replace("//", "//u:secret@")]) {
      assert.match(problem(text), expected)
      assert.notInclude(problem(text), "secret")
    }
  })
})
