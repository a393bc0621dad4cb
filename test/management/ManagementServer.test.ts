/** Tests the responses of the management port to operators, wrong tokens, foreign hosts and client errors. */
import { assert, describe, it, layer } from "@effect/vitest"
import { Effect, Layer, Redacted } from "effect"
import { TestClock } from "effect/testing"
import { AdminClient } from "../../src/client/AdminClient.ts"
import { memory } from "../support/Databases.ts"
import { adminToken as token } from "../support/Process.ts"
import { Service } from "../support/Service.ts"
import { assertError, Management, serversOn } from "./Management.ts"

/** A new management port for each test, so that no failure has been counted. */
const fresh = Effect.provide(Layer.fresh(serversOn(memory)))

const get = (target: string, fields: string) =>
  Effect.flatMap(Management, ({ send }) => send(`GET ${target} HTTP/1.1\r\nConnection: close\r\n${fields}\r\n`))

/** Lists the keys with an admin token, or without one. */
const list = (bearer?: string) =>
  get("/admin/keys", `Host: localhost\r\n${bearer === undefined ? "" : `Authorization: Bearer ${bearer}\r\n`}`)

describe("Admin authentication", () => {
  it.effect("allows the right token after any number of failures from the same address", () =>
    Effect.gen(function*() {
      for (let i = 0; i < 30; i++) {
        assertError(yield* list(), 401, "missing_admin_token")
        assertError(yield* list(`adm_${i}`), 401, "invalid_admin_token")
      }
      for (const invalid of [undefined, "adm_wrong", `${token}x`]) {
        const rejected = yield* list(invalid)
        assertError(rejected, 429, "too_many_attempts")
        assert.strictEqual(rejected.headers.get("retry-after"), "60")
        assert.strictEqual((yield* list(token)).status, 200)
      }
      yield* TestClock.adjust("59500 millis")
      assert.strictEqual((yield* list("adm_wrong")).headers.get("retry-after"), "1")
      yield* TestClock.adjust("500 millis")
      assertError(yield* list("adm_wrong"), 401, "invalid_admin_token")
    }).pipe(fresh))

  it.effect("counts failures by the peer and not by a forged X-Forwarded-For, also behind TRUSTED_PROXIES", () =>
    Effect.gen(function*() {
      const forged = (i: number, bearer = "adm_wrong") =>
        get("/admin/keys", `Host: localhost\r\nX-Forwarded-For: 203.0.113.${i}\r\nAuthorization: Bearer ${bearer}\r\n`)
      const statuses = yield* Effect.forEach(Array.from({ length: 150 }).keys(), (i) => forged(i))
      assert.deepStrictEqual([...new Set(statuses.slice(0, 60).map(({ status }) => status))], [401])
      assert.deepStrictEqual([...new Set(statuses.slice(60).map(({ status }) => status))], [429])
      const { admin } = yield* Management
      yield* admin("POST", "/keys", { name: "a", plan: "free" }, { "x-forwarded-for": "203.0.113.7" })
      assert.strictEqual((yield* admin("GET", "/audit")).body[0].address, "127.0.0.1")
    }).pipe(Effect.provide(Layer.fresh(serversOn(memory, { TRUSTED_PROXIES: "127.0.0.1" })))))

  it.effect("believes the X-Forwarded-For of MANAGEMENT_TRUSTED_PROXIES", () =>
    Effect.gen(function*() {
      const { admin } = yield* Management
      yield* admin("POST", "/keys", { name: "a", plan: "free" }, { "x-forwarded-for": "203.0.113.7" })
      assert.strictEqual((yield* admin("GET", "/audit")).body[0].address, "203.0.113.7")
    }).pipe(Effect.provide(Layer.fresh(serversOn(memory, { MANAGEMENT_TRUSTED_PROXIES: "127.0.0.1" })))))

  const [alice, board, later] = ["alice-0123456789", "board-0123456789", "later-0123456789"]
  const config = {
    ADMIN_TOKENS: `alice:${alice}, board:read:${board}, admin:${later}`,
    ENVIRONMENT: "staging"
  }
  it.effect("knows each operator by the name of a token, and a token after read: changes nothing", () =>
    Effect.gen(function*() {
      const { baseUrl } = yield* Management
      const as = (bearer: string) =>
        Effect.provide(AdminClient, AdminClient.layer({ baseUrl, token: Redacted.make(bearer), retry: { times: 0 } }))
      for (const bearer of [token, alice, later]) yield* (yield* as(bearer)).issue({ name: "a", plan: "free" })
      const session = (bearer: string) =>
        Effect.map(
          get("/admin/session", `Host: localhost\r\nAuthorization: Bearer ${bearer}\r\n`),
          ({ text }) => JSON.parse(text)
        )
      const environment = "staging"
      assert.deepStrictEqual(yield* session(alice), { operator: "alice", mayChange: true, environment })
      assert.deepStrictEqual(yield* session(board), { operator: "board", mayChange: false, environment })
      const reader = yield* as(board)
      const { entries } = yield* reader.audit()
      assert.deepStrictEqual(entries.map(({ operator }) => operator), ["admin", "alice", "admin"])
      const rejected = yield* Effect.flip(reader.issue({ name: "b", plan: "free" }))
      assert.deepInclude(rejected, { _tag: "ReadOnlyToken", code: "read_only_token", status: 403 })
      assert.lengthOf((yield* reader.list()).keys, 3)
      const unknown = yield* Effect.flip((yield* as("alice")).list())
      assert.deepInclude(unknown, { _tag: "InvalidAdminToken", code: "invalid_admin_token", status: 401 })
      const tagOf = (bearer: string) =>
        Effect.map(Effect.flip(Effect.flatMap(as(bearer), (client) => client.get("key_none"))), ({ _tag }) => _tag)
      assert.strictEqual(yield* tagOf(board), "NotFound")
      assert.strictEqual(yield* tagOf(""), "MissingAdminToken")
      assert.strictEqual(yield* tagOf("x".repeat(17_000)), "HeaderFieldsTooLarge")
      yield* Effect.replicateEffect(list(), 60)
      assert.strictEqual(yield* tagOf("alice"), "TooManyAttempts")
    }).pipe(Effect.provide(Layer.fresh(serversOn(memory, config)))))

  it.effect("counts each failure by its code, and logs one of an address a minute, as a warning without the token", () =>
    Effect.gen(function*() {
      const { lines } = yield* Management
      const metric = (code: string) =>
        Effect.map(
          get("/metrics", "Host: localhost\r\n"),
          ({ text }) => Number(new RegExp(`admin_authentication_failures_total{code="${code}"} (\\d+)`).exec(text)?.[1])
        )
      const [missing, invalid] = [yield* metric("missing_admin_token"), yield* metric("invalid_admin_token")]
      for (let minute = 0; minute < 2; minute++) {
        for (let i = 0; i < 70; i++) yield* list(`adm_wrong${i}`)
        yield* list()
        yield* list(token)
        yield* TestClock.adjust("1 minute")
      }
      assert.include((yield* get("/metrics", "Host: localhost\r\n")).text, "\npetstore_ready 0\n")
      assert.strictEqual(yield* metric("missing_admin_token"), missing + 2)
      assert.strictEqual(yield* metric("invalid_admin_token"), invalid + 140)
      const failures = lines.filter(({ message }) => String(message).includes("Admin authentication failed"))
      assert.lengthOf(failures, 2)
      for (const line of failures) {
        assert.deepInclude(line, { level: "Warn", address: "127.0.0.1", code: "invalid_admin_token" })
        assert.notInclude(JSON.stringify(line), "adm_wrong")
      }
    }).pipe(fresh))
})

const chunked =
  `Authorization: Bearer ${token}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n`
const rejections: ReadonlyArray<readonly [name: string, bytes: string, status: number, code: string]> = [
  ["bytes that are not HTTP", "\x16\x03\x01\x02\x00\r\n\r\n", 400, "invalid_request"],
  ["no Host", "GET /healthz HTTP/1.1\r\n\r\n", 400, "invalid_request"],
  ["an invalid Host", "GET /healthz HTTP/1.1\r\nHost: [::g]\r\n\r\n", 400, "invalid_request"],
  ["chunks in HTTP/1.0", `POST /admin/keys HTTP/1.0\r\n${chunked}`, 400, "invalid_request"],
  ["an invalid chunk", `POST /admin/keys HTTP/1.1\r\nHost: localhost\r\n${chunked}`, 400, "invalid_request"],
  ["CONNECT", "CONNECT localhost:1 HTTP/1.1\r\nHost: localhost\r\n\r\n", 405, "method_not_allowed"],
  ["HTTP/1.2", "GET /healthz HTTP/1.2\r\nHost: localhost\r\n\r\n", 505, "http_version_not_supported"]
]

describe("The management port", () => {
  const config = { MANAGEMENT_ALLOWED_HOSTS: "petstore.internal, Petstore-1", BUILD_REVISION: "79d1fb3" }
  layer(serversOn(memory, config))((it) => {
    const ofHost = (host: string, target = "/healthz") =>
      get(target, `Host: ${host}\r\nAuthorization: Bearer ${token}\r\n`)

    it.effect("listens on the loopback address alone, and neither port serves paths of the other", () =>
      Effect.gen(function*() {
        const { baseUrl } = yield* Management
        const { call } = yield* Service
        const other = baseUrl.replace("127.0.0.1", "127.0.0.2")
        assert.strictEqual((yield* Effect.exit(Effect.tryPromise(() => fetch(`${other}/healthz`))))._tag, "Failure")
        assertError(yield* ofHost("localhost", "/v1/pets"), 404, "not_found")
        for (const path of ["/admin/keys", "/healthz", "/readyz", "/metrics"]) {
          const { status, text } = yield* call(path, { key: token })
          assert.deepStrictEqual([status, JSON.parse(text).code], [404, "not_found"])
        }
        const labels = `http_request_method="GET",http_route="/v1/pets/:petId",http_response_status_code="401"`
        const sample = new RegExp(`petstore_http_server_request_duration_seconds_count{${labels}} (\\d+)`)
        const count = Effect.map(
          get("/metrics", "Host: localhost\r\n"),
          ({ text }) => Number(sample.exec(text)?.[1] ?? 0)
        )
        const before = yield* count
        assert.strictEqual((yield* call("/v1/pets/1")).status, 401)
        assert.strictEqual(yield* count, before + 1)
        const health = yield* get("/healthz", "Host: localhost\r\n")
        assert.strictEqual(JSON.parse(health.text).revision, "79d1fb3")
      }))

    it.effect.each(rejections)(
      "responds to %s with the Error body and no-store, and closes the connection",
      ([name, bytes, status, code]) =>
        Effect.gen(function*() {
          const response = yield* (yield* Management).send(bytes)
          assertError(response, status, code)
          assert.strictEqual(response.headers.get("connection"), "close")
          const allow = response.headers.get("allow")?.split(", ") ?? []
          if (name === "CONNECT") assert.includeMembers(allow, ["GET", "HEAD", "POST", "DELETE", "OPTIONS"])
        })
    )

    it.effect("serves IP addresses, localhost and the names in MANAGEMENT_ALLOWED_HOSTS", () =>
      Effect.gen(function*() {
        const hosts = ["127.0.0.1", "10.0.0.7:9090", "[::1]:9090", "[fd00::1]", "localhost", "LOCALHOST.:9090"]
        for (const host of [...hosts, "petstore.internal:9090", "PETSTORE-1"]) {
          assert.strictEqual((yield* ofHost(host)).status, 200, host)
        }
        assert.strictEqual((yield* ofHost("evil.example", "http://localhost/healthz")).status, 200)
        // HAProxy checks health with HTTP/1.0 and without a Host.
        const { send } = yield* Management
        assert.strictEqual((yield* send("GET /healthz HTTP/1.0\r\n\r\n")).status, 200)
      }))

    it.effect("rejects any other host with 421, even with the right token (DNS rebinding)", () =>
      Effect.gen(function*() {
        const hosts = ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:9090", "petstore-11"]
        for (const host of hosts) {
          for (const target of ["/healthz", "/metrics", "/admin/keys"]) {
            assertError(yield* ofHost(host, target), 421, "misdirected_request")
          }
        }
        for (const target of ["http://evil.example/metrics", "http://localhost@evil.example/"]) {
          assertError(yield* ofHost("localhost", target), 421, "misdirected_request")
        }
      }))
  })
})
