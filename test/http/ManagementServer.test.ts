/** Tests the responses of the management port to operators, wrong tokens, foreign hosts and client errors. */
import { makeCompiler } from "@effect/sql-pg/PgClient"
import { assert, describe, it, layer } from "@effect/vitest"
import { ConfigProvider, Context, Effect, Layer, Logger, Redacted, References } from "effect"
import { Reactivity } from "effect/reactivity"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { AdminToken } from "../../src/api-keys/AdminToken.ts"
import { ApiKeys } from "../../src/api-keys/ApiKeys.ts"
import { AdminClient } from "../../src/client/AdminClient.ts"
import * as ManagementServer from "../../src/http/ManagementServer.ts"
import { GracefulShutdown } from "../../src/http/Responses.ts"
import { RateLimiter } from "../../src/rate-limit/RateLimiter.ts"
import { freePort, random, type ReceivedResponse, sendBytes } from "../support/Harness.ts"

const token = "adm_0123456789abcdefghijklmnopqrstuvwxyz"

/** A database that cannot be used. Only the readiness check, which is not tested here, would use it. */
const noDatabase = Layer.effect(
  SqlClient.SqlClient,
  SqlClient.make({
    acquirer: Effect.die("There is no database"),
    compiler: makeCompiler(),
    driver: "none",
    spanAttributes: []
  })
).pipe(Layer.provide(Reactivity.layer))

class Port extends Context.Service<Port, number>()("test/http/ManagementPort/Port") {}

/** The management server on `port`. Each log line is pushed to `lines`. */
const management = (port: number, lines: Array<unknown> = [], config: Readonly<Record<string, string>> = {}) =>
  ManagementServer.layer.pipe(
    Layer.provide([
      GracefulShutdown.layer,
      ApiKeys.layerMemory.pipe(Layer.provide(random)),
      RateLimiter.layerMemory,
      Layer.succeed(AdminToken, Redacted.make(token)),
      noDatabase
    ]),
    Layer.provide(
      ConfigProvider.layer(ConfigProvider.fromUnknown({ MANAGEMENT_PORT: String(port), ...config }))
    ),
    Layer.provide(Logger.layer([Logger.make(({ fiber, logLevel, message }) => {
      lines.push({ level: logLevel, message, ...fiber.getRef(References.CurrentLogAnnotations) })
    })])),
    Layer.fresh
  )

const list = (port: number, bearer: string | undefined) =>
  sendBytes(
    port,
    "GET /admin/keys HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" +
      `${bearer === undefined ? "" : `Authorization: Bearer ${bearer}\r\n`}\r\n`
  )

const assertError = (response: ReceivedResponse, status: number, code: string): void => {
  assert.strictEqual(response.status, status, response.text)
  const body = JSON.parse(response.text)
  assert.deepStrictEqual(Object.keys(body), ["code", "message", "status"])
  assert.deepStrictEqual([body.code, body.status], [code, status])
  assert.strictEqual(response.headers.get("content-type"), "application/json")
  assert.strictEqual(response.headers.get("cache-control"), "no-store")
  assert.isNotNull(response.headers.get("date"))
  for (const name of response.headers.keys()) assert.notMatch(name, /ratelimit/)
}

describe("Admin authentication", () => {
  it.effect("allows the right token after any number of failures from the same address", () =>
    Effect.gen(function*() {
      const [port, lines] = [yield* freePort, new Array<unknown>()]
      yield* Effect.gen(function*() {
        for (let i = 0; i < 30; i++) {
          assertError(yield* list(port, undefined), 401, "missing_admin_token")
          assertError(yield* list(port, `adm_${i}`), 401, "invalid_admin_token")
          assert.strictEqual((yield* list(port, token)).status, 200)
        }
        for (const invalid of [undefined, "adm_wrong", `${token}x`]) {
          const rejected = yield* list(port, invalid)
          assertError(rejected, 429, "too_many_attempts")
          assert.strictEqual(rejected.headers.get("retry-after"), "60")
          assert.strictEqual((yield* list(port, token)).status, 200)
        }
        yield* TestClock.adjust("59500 millis")
        assert.strictEqual((yield* list(port, "adm_wrong")).headers.get("retry-after"), "1")
        yield* TestClock.adjust("500 millis")
        assertError(yield* list(port, "adm_wrong"), 401, "invalid_admin_token")
      }).pipe(Effect.provide(management(port, lines)))
    }))

  it.effect("knows each operator by the name of a token, and a token after read: changes nothing", () =>
    Effect.gen(function*() {
      const port = yield* freePort
      const [alice, board] = ["alice-0123456789", "board-0123456789"]
      const config = { ADMIN_TOKENS: `alice:${alice}, board:read:${board}` }
      const client = (bearer: string) =>
        AdminClient.layer({ baseUrl: `http://127.0.0.1:${port}`, token: Redacted.make(bearer) })
      yield* Effect.gen(function*() {
        const as = (bearer: string) => Effect.provide(AdminClient, client(bearer))
        for (const bearer of [token, alice]) yield* (yield* as(bearer)).issue({ name: "a", plan: "free" })
        const reader = yield* as(board)
        const { entries } = yield* reader.audit()
        assert.deepStrictEqual(entries.map(({ operator }) => operator), ["alice", "admin"])
        const rejected = yield* Effect.flip(reader.issue({ name: "b", plan: "free" }))
        assert.deepInclude(rejected, { _tag: "ReadOnlyToken", code: "read_only_token", status: 403 })
        assert.lengthOf((yield* reader.list()).keys, 2)
        assertError(yield* list(port, "alice"), 401, "invalid_admin_token")
      }).pipe(Effect.provide(management(port, [], config)))
    }))

  it.effect("logs at most one failure of an address a minute, as a warning without the token", () =>
    Effect.gen(function*() {
      const [port, lines] = [yield* freePort, new Array<unknown>()]
      yield* Effect.gen(function*() {
        lines.length = 0
        yield* list(port, token)
        for (let minute = 0; minute < 2; minute++) {
          for (let i = 0; i < 70; i++) yield* list(port, `adm_wrong${i}`)
          yield* TestClock.adjust("1 minute")
        }
        const failures = lines.filter((line) => JSON.stringify(line).includes("Admin authentication failed"))
        assert.lengthOf(failures, 2)
        for (const line of failures) {
          assert.deepInclude(line, { level: "Warn", address: "127.0.0.1", code: "invalid_admin_token" })
          assert.notInclude(JSON.stringify(line), "adm_wrong")
        }
      }).pipe(Effect.provide(management(port, lines)))
    }))

  it.effect("counts each failure in a metric, by its code", () =>
    Effect.gen(function*() {
      const port = yield* freePort
      const metrics = Effect.map(
        sendBytes(port, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"),
        ({ text }) =>
          ["missing_admin_token", "invalid_admin_token"].map((code) =>
            Number(
              new RegExp(`petstore_admin_authentication_failures_total{code="${code}"} (\\d+)`).exec(text)?.[1] ?? 0
            )
          )
      )
      yield* Effect.gen(function*() {
        const [missing = 0, invalid = 0] = yield* metrics
        yield* list(port, undefined)
        for (let i = 0; i < 70; i++) yield* list(port, "adm_wrong")
        yield* list(port, token)
        assert.deepStrictEqual(yield* metrics, [missing + 1, invalid + 70])
      }).pipe(Effect.provide(management(port)))
    }))

  it.live("fails in AdminClient with a separate error class for each code", () =>
    Effect.gen(function*() {
      const port = yield* freePort
      const failure = (bearer: string, baseUrl = `http://127.0.0.1:${port}`) =>
        Effect.flip(Effect.flatMap(AdminClient, (client) => client.get("key_none"))).pipe(
          Effect.provide(AdminClient.layer({ baseUrl, token: Redacted.make(bearer), retry: { times: 0 } }))
        )
      yield* Effect.gen(function*() {
        assert.strictEqual((yield* failure(token))._tag, "NotFound")
        assert.include(yield* failure("adm_wrong"), { _tag: "InvalidAdminToken", status: 401 })
        assert.include(yield* failure(""), { _tag: "MissingAdminToken", status: 401 })
        for (let i = 0; i < 58; i++) yield* list(port, undefined)
        assert.include(yield* failure("adm_wrong"), { _tag: "TooManyAttempts", status: 429 })
        assert.include(yield* failure("x".repeat(17_000)), { _tag: "HeaderFieldsTooLarge", status: 431 })
      }).pipe(Effect.provide(management(port)))
    }))
})

describe("The management port", () => {
  const close = "Connection: close\r\n"
  const rejected: ReadonlyArray<readonly [name: string, bytes: string, status: number, code: string]> = [
    ["bytes that are not HTTP", "\x16\x03\x01\x02\x00\r\n\r\n", 400, "invalid_request"],
    ["an unknown method", `BREW / HTTP/1.1\r\nHost: localhost\r\n${close}\r\n`, 400, "invalid_request"],
    ["no Host", `GET /healthz HTTP/1.1\r\n${close}\r\n`, 400, "invalid_request"],
    ["two Hosts", "GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400, "invalid_request"],
    [
      "a head that is too large",
      `GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ${"x".repeat(17_000)}\r\n\r\n`,
      431,
      "request_header_fields_too_large"
    ],
    ["CONNECT", "CONNECT localhost:1 HTTP/1.1\r\nHost: localhost\r\n\r\n", 405, "method_not_allowed"],
    ["HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "http_version_not_supported"],
    ["HTTP/1.2", "GET /healthz HTTP/1.2\r\nHost: localhost\r\n\r\n", 505, "http_version_not_supported"],
    ["HTTP/2.0", "GET /healthz HTTP/2.0\r\nHost: localhost\r\n\r\n", 505, "http_version_not_supported"],
    [
      "Transfer-Encoding in HTTP/1.0",
      `POST /admin/keys HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
      400,
      "invalid_request"
    ],
    [
      "an invalid chunk",
      `POST /admin/keys HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${token}\r\n` +
      "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
      400,
      "invalid_request"
    ]
  ]
  const config = { MANAGEMENT_ALLOWED_HOSTS: "petstore.internal, Petstore-1", MANAGEMENT_HOST: "localhost" }
  const get = (host: string, target = "/healthz") => `GET ${target} HTTP/1.1\r\nHost: ${host}\r\n${close}\r\n`

  const onFreePort = Layer.unwrap(Effect.map(freePort, (port) =>
    Layer.merge(
      Layer.succeed(Port, port),
      management(port, [], { ...config, MANAGEMENT_HOST: "127.0.0.1" })
    )))
  layer(onFreePort)((it) => {
    for (const [name, bytes, status, code] of rejected) {
      it.effect(`responds to ${name} with ${status}, the Error body and no-store, and closes the connection`, () =>
        Effect.gen(function*() {
          const port = yield* Port
          const response = yield* sendBytes(port, bytes)
          assertError(response, status, code)
          assert.strictEqual(response.headers.get("connection"), "close")
          if (status === 405) {
            const allow = response.headers.get("allow")?.split(", ")
            assert.includeMembers(allow ?? [], ["GET", "HEAD", "POST", "DELETE", "OPTIONS"])
          }
        }))
    }

    it.effect("serves IP addresses, localhost, the host of MANAGEMENT_HOST and the names in MANAGEMENT_ALLOWED_HOSTS", () =>
      Effect.gen(function*() {
        const port = yield* Port
        const hosts = ["127.0.0.1", "10.0.0.7:9090", "[::1]:9090", "[fd00::1]", "localhost", "LOCALHOST.:9090"]
        for (const host of [...hosts, "petstore.internal:9090", "PETSTORE-1"]) {
          assert.strictEqual((yield* sendBytes(port, get(host))).status, 200, host)
        }
        // HAProxy checks health with HTTP/1.0 and without a Host.
        assert.strictEqual((yield* sendBytes(port, "GET /healthz HTTP/1.0\r\n\r\n")).status, 200)
        assert.strictEqual((yield* sendBytes(port, get("evil.example", "http://localhost/healthz"))).status, 200)
      }))

    it.effect("rejects any other host with 421, even with the right token (DNS rebinding)", () =>
      Effect.gen(function*() {
        const port = yield* Port
        const hosts = ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:9090", "petstore-11", "[::g]"]
        for (const host of hosts) {
          for (const target of ["/healthz", "/metrics", "/admin/keys"]) {
            const response = yield* sendBytes(port, get(`${host}\r\nAuthorization: Bearer ${token}`, target))
            if (host === "[::g]") assertError(response, 400, "invalid_request")
            else assertError(response, 421, "misdirected_request")
          }
        }
        assertError(yield* sendBytes(port, get("localhost", "http://evil.example/metrics")), 421, "misdirected_request")
        assertError(
          yield* sendBytes(port, get("localhost", "http://localhost@evil.example/")),
          421,
          "misdirected_request"
        )
      }))
  })

  it.effect("serves the name in MANAGEMENT_HOST", () =>
    Effect.gen(function*() {
      const port = yield* freePort
      const status = Effect.map(sendBytes(port, get("localhost")), (response) => response.status)
      assert.strictEqual(yield* Effect.provide(status, management(port, [], config)), 200)
    }))

  it.effect("does not start if an entry of MANAGEMENT_ALLOWED_HOSTS is not a host name", () =>
    Effect.gen(function*() {
      for (const entry of ["http://petstore", "petstore:9090", "a b", "-", "*"]) {
        const built = Layer.build(management(yield* freePort, [], { MANAGEMENT_ALLOWED_HOSTS: `ok, ${entry}` }))
        assert.include(String(yield* Effect.flip(built)), `, not "${entry}"`)
      }
    }))

  it.live("keeps a client's connection between requests", () =>
    Effect.gen(function*() {
      const port = yield* freePort
      const statuses = yield* sendBytes(
        port,
        get("localhost").replace(close, "") + get("localhost")
      ).pipe(Effect.provide(management(port)))
      assert.match(statuses.text, /HTTP\/1\.1 200/)
    }))
})
