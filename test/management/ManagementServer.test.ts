import { assert, describe, it, layer } from "@effect/vitest"
import { Effect, FileSystem, Layer, Metric, Redacted, Ref } from "effect"
import { HttpRouter } from "effect/http"
import { OpenApi } from "effect/http-api"
import { TestClock } from "effect/testing"
import { basename } from "node:path"
import { AdminApi } from "../../src/api/AdminApi.ts"
import { databaseErrors } from "../../src/api/DatabaseErrors.ts"
import { AdminClient } from "../../src/client/AdminClient.ts"
import { newestVersion } from "../../src/database/Database.ts"
import { make as makeReadiness, Readiness } from "../../src/database/Readiness.ts"
import { GracefulShutdown } from "../../src/http/RequestLifecycle.ts"
import { maxFailures } from "../../src/management/AdminAuthentication.ts"
import * as ConsoleFiles from "../../src/management/ConsoleFiles.ts"
import * as Policy from "../../src/rate-limit/Policy.ts"
import { RateLimiter } from "../../src/rate-limit/RateLimiter.ts"
import { memory } from "../support/Databases.ts"
import { codeBlocks, readPage } from "../support/Documents.ts"
import { adminToken as token } from "../support/Process.ts"
import { Service } from "../support/Service.ts"
import { assertError, Management, serversOn } from "./Management.ts"

/** A new management port for each test, so that no failure has been counted. */
const fresh = (config: Readonly<Record<string, string>> = {}) => Effect.provide(Layer.fresh(serversOn(memory, config)))

const get = (target: string, fields = "Host: localhost\r\n") =>
  Effect.flatMap(Management, ({ send }) => send(`GET ${target} HTTP/1.1\r\nConnection: close\r\n${fields}\r\n`))

/** Calls a path with an admin token, or without one. */
const getAs = (bearer?: string, target = "/admin/keys", fields = "Host: localhost\r\n") =>
  get(target, bearer === undefined ? fields : `${fields}Authorization: Bearer ${bearer}\r\n`)

it.effect("The database is checked for /readyz, which names it in an outage, for /metrics, and every 15 seconds", () =>
  Effect.gen(function*() {
    let [isDown, pings] = [true, 0]
    const ping = Effect.suspend(() => ++pings && isDown ? Effect.fail(databaseErrors.unavailable) : Effect.void)
    const readiness = Layer.effect(Readiness, makeReadiness(ping))
    yield* Effect.gen(function*() {
      const { lines } = yield* Management
      const back = () => lines.filter(({ message }) => message === "The database responds again").length
      for (let i = 0; i < 2; i++) {
        yield* TestClock.adjust("1 second")
        assertError(yield* get("/readyz"), 503, "service_unavailable", "The database does not respond.")
      }
      isDown = false
      // A failure is not cached.
      const { status, text } = yield* get("/readyz")
      const ready = { status: "ready", limits: "own", environment: "staging" }
      assert.deepStrictEqual([status, JSON.parse(text)], [200, ready])
      assert.strictEqual(back(), 0)
      yield* TestClock.adjust("5 seconds")
      assert.strictEqual(back(), 1)
      const start = lines.find(({ message }) => String(message).startsWith("Management API"))
      assert.strictEqual(start?.environment, "staging")
      pings = 0
      yield* TestClock.adjust("30 seconds")
      assert.strictEqual(pings, 2)
      yield* get("/metrics")
      assert.strictEqual(pings, 3)
    }).pipe(Effect.provide(serversOn(Layer.merge(memory, readiness), { ENVIRONMENT: "staging" })))
  }))

it.effect("/readyz says whether requests are counted in Redis, or in this process while Redis fails", () =>
  Effect.gen(function*() {
    const readiness = Layer.succeed(Readiness, Effect.void)
    for (const counting of ["shared", "fallback"] as const) {
      const limiter = Layer.effect(
        RateLimiter,
        Effect.map(RateLimiter, (own) => ({ ...own, counting: Effect.succeed(counting) }))
      )
      const store = Layer.mergeAll(memory, readiness, Layer.provide(limiter, RateLimiter.layerMemory))
      const { status, text } = yield* Effect.provide(get("/readyz"), serversOn(store))
      assert.deepStrictEqual([status, JSON.parse(text)], [200, { status: "ready", limits: counting }])
    }
  }))

it.effect("While the service drains, /readyz is 503, and connections close after a response", () =>
  Effect.gen(function*() {
    const { send } = yield* Management
    const [ready, health] = yield* Effect.forEach(
      ["readyz", "healthz"],
      (path) => send(`GET /${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`)
    )
    assertError(ready ?? assert.fail(), 503, "service_unavailable", "The service is shutting down.")
    assert.strictEqual(ready?.headers.get("retry-after"), "1")
    assert.strictEqual(health?.status, 200)
    for (const response of [ready, health]) assert.strictEqual(response?.headers.get("connection"), "close")
  }).pipe(Effect.provide(serversOn(
    Layer.merge(memory, Layer.succeed(Readiness, Effect.void)),
    {},
    { draining: Layer.effect(GracefulShutdown, Ref.make(true)) }
  ))))

it.effect("A defect on the management port is a 500, and the error in the log has the id of its request", () => {
  const defect = Layer.succeed(Readiness, Effect.die("a defect"))
  return Effect.gen(function*() {
    const { lines } = yield* Management
    const response = yield* get("/readyz")
    assertError(response, 500, "internal_error")
    const requestId = response.headers.get("x-request-id")
    assert.deepInclude(lines.at(-1), { level: "Error", message: "The request failed", requestId })
  }).pipe(Effect.provide(Layer.fresh(serversOn(Layer.merge(memory, defect)))))
})

it.effect("The command in the log needs no DATA_DIR beside ADMIN_TOKEN, from which alone it reads the token", () =>
  Effect.gen(function*() {
    const { baseUrl, lines } = yield* Management
    const command = `MANAGEMENT_PORT=${new URL(baseUrl).port} npm run petstore -- keys issue --name NAME`
    assert.strictEqual(lines.at(-1)?.message, `Issue API keys with the same ADMIN_TOKEN and: ${command}`)
  }).pipe(fresh({ DATA_DIR: "/srv/petstore/data" })))

const countings = [["single", {}], ["own", { DATABASE_URL: "postgres://localhost/a" }]] as const
it.effect.each(countings)(
  "A key shows that its requests are counted as %s",
  ([counting, config]) =>
    Effect.gen(function*() {
      const client = yield* AdminClient
      const { id } = yield* client.issue({ name: "a", plan: "free" })
      assert.strictEqual((yield* client.get(id)).counting, counting)
    }).pipe(fresh(config))
)

it.effect("The log of the start has the lines in docs/install.md: both ports, the token's file, and the command", () =>
  Effect.gen(function*() {
    const [{ baseUrl, lines }, { port }] = [yield* Management, yield* Service]
    const shown = codeBlocks(readPage("docs/install.md")).find(({ code }) => code.startsWith("Listening on"))?.code
    const variables = `MANAGEMENT_PORT=${new URL(baseUrl).port} DATA_DIR='/srv/petstore/data' `
    const expected = shown?.replaceAll("8080", String(port)).replace("http://127.0.0.1:9090", baseUrl)
      .replace("npm run", `${variables}npm run`)
    assert.strictEqual(lines.map(({ message }) => `${String(message)}\n`).join(""), expected)
  }).pipe(Effect.provide(Layer.fresh(serversOn(memory, { HOST: "0.0.0.0", DATA_DIR: "/srv/petstore/data" }, {
    source: "/srv/petstore/data/admin-token"
  })))))

it.effect("A management port that is in use ends the start with the name of its setting", () =>
  Effect.gen(function*() {
    const { port } = new URL((yield* Management).baseUrl)
    const failure = yield* Effect.flip(Effect.scoped(Layer.build(Layer.fresh(serversOn(memory, {
      MANAGEMENT_PORT: port
    })))))
    assert.include(failure.message, `MANAGEMENT_PORT: port ${port} on 127.0.0.1 is already in use.`)
  }).pipe(fresh({ REUSE_PORT: "true" })))

it.effect("The pages of the console cannot be embedded, and connect only to the service", () =>
  Effect.gen(function*() {
    const files = FileSystem.layerNoop({ readFileString: (path) => Effect.succeed(basename(path)) })
    const { dispose, handler } = HttpRouter.toWebHandler(Layer.provide(ConsoleFiles.layer, files), {
      disableLogger: true
    })
    yield* Effect.addFinalizer(() => Effect.promise(dispose))
    const types = { "/": "text/html", "/console.js": "text/javascript", "/console.css": "text/css" }
    for (const [path, type] of Object.entries(types)) {
      const { headers } = yield* Effect.promise(() => handler(new Request(`http://localhost${path}`)))
      assert.strictEqual(headers.get("content-type"), `${type}; charset=utf-8`)
      assert.strictEqual(headers.get("x-frame-options"), "DENY")
      const policy = headers.get("content-security-policy")?.split("; ")
      assert.includeMembers(policy ?? [], ["default-src 'none'", "connect-src 'self'", "frame-ancestors 'none'"])
    }
  }))

describe("Admin authentication", () => {
  it.effect("limits failures by peer address, even with a forged X-Forwarded-For, and always allows the right token", () =>
    Effect.gen(function*() {
      for (let i = 0; i < 30; i++) {
        const forged = `Host: localhost\r\nX-Forwarded-For: 203.0.113.${i}\r\n`
        assertError(yield* getAs(), 401, "missing_admin_token")
        assertError(yield* getAs(`adm_${i}`, "/admin/keys", forged), 401, "invalid_admin_token")
      }
      for (const invalid of [undefined, "adm_wrong", `${token}x`]) {
        const rejected = yield* getAs(invalid)
        assertError(rejected, 429, "too_many_attempts")
        assert.strictEqual(rejected.headers.get("retry-after"), "60")
        assert.strictEqual((yield* getAs(token)).status, 200)
      }
      // The metric also counts the failures beyond the limit.
      const { text } = yield* get("/metrics")
      for (const count of [`{code="missing_admin_token"} 31`, `{code="invalid_admin_token"} 32`]) {
        assert.include(text, `\npetstore_admin_authentication_failures_total${count}\n`)
      }
      yield* TestClock.adjust("59500 millis")
      assert.strictEqual((yield* getAs("adm_wrong")).headers.get("retry-after"), "1")
      yield* TestClock.adjust("500 millis")
      assertError(yield* getAs("adm_wrong"), 401, "invalid_admin_token")
      assertError(yield* getAs(`"${token}"`), 401, "invalid_admin_token", "is in quotation marks.")
    }).pipe(fresh({ TRUSTED_PROXIES: "127.0.0.1" }), Effect.provideService(Metric.MetricRegistry, new Map())))

  it("has no limit of failures beside that of a minute, however long an address fails", () => {
    let state: Policy.State = Policy.noCounts
    for (let at = 0; at < 2 * 86_400_000; at += 1_000) {
      const { decision, next } = Policy.decide(state, maxFailures, at, false)
      state = next
      assert.isTrue(decision.allowed, `${at} ms`)
    }
  })

  const proxies = [["TRUSTED_PROXIES", "127.0.0.1"], ["MANAGEMENT_TRUSTED_PROXIES", "203.0.113.7"]] as const
  it.effect.each(proxies)("records operators behind %s by the address %s", ([name, address]) =>
    Effect.gen(function*() {
      const { admin } = yield* Management
      yield* admin("POST", "/keys", { name: "a", plan: "free" }, { "x-forwarded-for": "203.0.113.7" })
      assert.strictEqual((yield* admin("GET", "/audit")).body[0].address, address)
    }).pipe(fresh({ [name]: "127.0.0.1" })))

  it.effect("serves more connections of a trusted proxy than MAX_CONNECTIONS_PER_ADDRESS", () =>
    Effect.gen(function*() {
      const responses = yield* Effect.replicateEffect(get("/healthz"), 5, { concurrency: 5 })
      for (const { status } of responses) assert.strictEqual(status, 200)
    }).pipe(fresh({ MANAGEMENT_TRUSTED_PROXIES: "127.0.0.1", MAX_CONNECTIONS_PER_ADDRESS: "1" })))

  // No other test uses these two, because a token stays hidden for as long as its process runs.
  const [logged, alsoLogged] = ["logged-0123456789", "also-logged-0123"]
  const [alice, board, later] = ["alice-0123456789", "board-0123456789", "later-0123456789"]
  it.effect("identifies each operator by token name, and a token with the prefix read: can change nothing", () =>
    Effect.gen(function*() {
      const { baseUrl } = yield* Management
      const as = (bearer: string) =>
        Effect.provide(AdminClient, AdminClient.layer({ baseUrl, token: Redacted.make(bearer), retry: { times: 0 } }))
      for (const bearer of [token, alice, later]) yield* (yield* as(bearer)).issue({ name: "a", plan: "free" })
      const environment = "staging"
      assert.deepStrictEqual(yield* (yield* as(alice)).session(), { operator: "alice", mayChange: true, environment })
      const reader = yield* as(board)
      assert.deepStrictEqual(yield* reader.session(), { operator: "board", mayChange: false, environment })
      const { entries } = yield* reader.audit()
      assert.deepStrictEqual(entries.map(({ operator }) => operator), ["admin", "alice", "admin"])
      const { endFormerSecrets, issue, revoke, rotate, unban, update } = reader
      const ofKey = [revoke, rotate, unban, endFormerSecrets].map((change) => change("key_none"))
      for (const change of [issue({ name: "b", plan: "free" }), update("key_none", { name: "b" }), ...ofKey]) {
        const rejected = yield* Effect.flip<unknown, unknown, never>(change)
        assert.deepInclude(rejected, { _tag: "ReadOnlyToken", code: "read_only_token", status: 403 })
      }
      assert.lengthOf((yield* reader.list()).keys, 3)
      const tagOf = (bearer: string) =>
        Effect.map(Effect.flip(Effect.flatMap(as(bearer), (client) => client.get("key_none"))), ({ _tag }) => _tag)
      const tags = yield* Effect.forEach(["alice", board, "", "x".repeat(17_000)], tagOf)
      assert.deepStrictEqual(tags, ["InvalidAdminToken", "NotFound", "MissingAdminToken", "HeaderFieldsTooLarge"])
    }).pipe(fresh({ ADMIN_TOKENS: `alice:${alice}, board:read:${board}, admin:${later}`, ENVIRONMENT: "staging" })))

  it.effect("hides every token of ADMIN_TOKENS in the paths of the access log", () =>
    Effect.gen(function*() {
      const [{ lines }, { call }] = [yield* Management, yield* Service]
      for (const secret of [logged, alsoLogged]) yield* call(`/${secret}`)
      assert.deepStrictEqual(lines.flatMap(({ path = [] }) => path), ["/…", "/…"])
    }).pipe(fresh({ ADMIN_TOKENS: `alice:${logged}, board:read:${alsoLogged}` })))

  it.effect("logs at most one warning for the failures of an address in a minute, without the token", () =>
    Effect.gen(function*() {
      const { lines } = yield* Management
      const other = "Host: localhost\r\nX-Forwarded-For: 203.0.113.7\r\n"
      for (let minute = 0; minute < 2; minute++) {
        for (let i = 0; i < 70; i++) yield* getAs(`adm_wrong${i}`)
        yield* getAs()
        yield* getAs(token)
        // The limit of the proxy's address is used up, and each client behind the proxy has its own.
        assertError(yield* getAs("adm_wrong", "/admin/keys", other), 401, "invalid_admin_token")
        yield* TestClock.adjust("1 minute")
      }
      const failures = lines.filter(({ message }) => String(message).includes("Admin authentication failed"))
      const addresses = ["127.0.0.1", "203.0.113.7"]
      assert.deepStrictEqual(failures.map(({ address }) => address), [...addresses, ...addresses])
      for (const line of failures) {
        assert.deepInclude(line, { level: "Warn", code: "invalid_admin_token" })
        assert.notInclude(JSON.stringify(line), "adm_wrong")
      }
    }).pipe(fresh({ MANAGEMENT_TRUSTED_PROXIES: "127.0.0.1" })))
})

/** `127.1` is a name to the service, and the address 127.0.0.1 to the system. */
const hosts = { MANAGEMENT_HOST: "127.1", MANAGEMENT_ALLOWED_HOSTS: "petstore.internal, Petstore-1" }

layer(serversOn(memory, { ...hosts, BUILD_REVISION: "79d1fb3" }))("The management port", (it) => {
  const ofHost = (host: string, target = "/healthz") => getAs(token, target, `Host: ${host}\r\n`)

  it.effect("listens on the loopback address alone", () =>
    Effect.gen(function*() {
      const other = (yield* Management).baseUrl.replace("127.0.0.1", "127.0.0.2")
      assert.strictEqual((yield* Effect.exit(Effect.tryPromise(() => fetch(`${other}/healthz`))))._tag, "Failure")
    }))

  it.effect("serves no path of the API port, nor the API port one of its own", () =>
    Effect.gen(function*() {
      const { call } = yield* Service
      const missing = yield* ofHost("localhost", "/v1/pets")
      assertError(missing, 404, "not_found")
      assert.include(missing.text, "/v1 is on the API port. Paths are case-sensitive and begin with /admin.")
      assertError(yield* ofHost("localhost", "/keys"), 404, "not_found", "Did you mean /admin/keys?")
      for (const path of ["/admin/keys", "/healthz", "/readyz", "/metrics"]) {
        const { status, text } = yield* call(path, { key: token })
        assert.deepStrictEqual([status, JSON.parse(text).code], [404, "not_found"])
      }
    }))

  it.effect("names the API port in the 404 of each path that is there", () =>
    Effect.gen(function*() {
      for (const path of ["/v1", "/v1/pets/1", "/openapi.json", "/docs"]) {
        assertError(yield* ofHost("localhost", path), 404, "not_found", " is on the API port.")
      }
    }))

  it.effect("serves the console at its root", () =>
    Effect.gen(function*() {
      const { headers, status, text } = yield* get("/")
      assert.deepStrictEqual([status, headers.get("content-type")], [200, "text/html; charset=utf-8"])
      for (const [name, type] of [["console.js", "text/javascript"], ["console.css", "text/css"]] as const) {
        assert.include(text, name)
        const file = yield* get(`/${name}`)
        assert.deepStrictEqual([file.status, file.headers.get("content-type")], [200, `${type}; charset=utf-8`])
      }
    }))

  it.effect("allows HEAD and OPTIONS of its paths, without a token", () =>
    Effect.gen(function*() {
      const { send } = yield* Management
      const call = (line: string) => send(`${line} HTTP/1.1\r\nConnection: close\r\nHost: localhost\r\n\r\n`)
      const head = yield* call("HEAD /healthz")
      assert.deepStrictEqual([head.status, head.text], [200, ""])
      const paths = [["/", "GET"], ["/healthz", "GET"], ["/admin/openapi.json", "GET"], ["/admin/keys", "POST, GET"]]
      for (const [path, methods] of paths) {
        const { headers, status } = yield* call(`OPTIONS ${path}`)
        assert.deepStrictEqual([status, headers.get("allow")], [204, `${methods}, HEAD, OPTIONS`], path)
      }
    }))

  it.effect("has the versions of the process in /healthz, even without a database", () =>
    Effect.gen(function*() {
      assert.include((yield* get("/metrics")).text, "\npetstore_ready 0\n")
      const health = { status: "healthy", version: "1.0.0", revision: "79d1fb3", schemaVersion: newestVersion }
      assert.deepStrictEqual(JSON.parse((yield* get("/healthz")).text), health)
    }))

  it.effect("describes its API in /admin/openapi.json, and serves the console, without a token", () =>
    Effect.gen(function*() {
      const { status, text } = yield* get("/admin/openapi.json")
      assert.deepStrictEqual([status, text], [200, JSON.stringify(OpenApi.fromApi(AdminApi))])
      for (const path of ["/", "/console.js", "/console.css"]) assert.strictEqual((yield* get(path)).status, 200, path)
    }))

  const unsupported = (line: string) => `${line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`
  it.effect.each<readonly [name: string, bytes: string, status: number, code: string, allow: RegExp]>([
    ["bytes that are not HTTP", "\x16\x03\x01\x02\x00\r\n\r\n", 400, "invalid_request", /^$/],
    ["CONNECT", "CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", 405, "method_not_allowed", /^(?=.*HEAD)(?=.*DELETE)/],
    ["POST of a report", unsupported("POST /healthz"), 405, "method_not_allowed", /^GET, HEAD, OPTIONS$/],
    ["DELETE of the keys", unsupported("DELETE /admin/keys"), 405, "method_not_allowed", /^POST, GET, HEAD, OPTIONS$/]
  ])("responds to %s with the Error body, and closes", ([, bytes, status, code, allow]) =>
    Effect.gen(function*() {
      const response = yield* (yield* Management).send(bytes)
      assertError(response, status, code)
      assert.strictEqual(response.headers.get("connection"), "close")
      assert.match(response.headers.get("allow") ?? "", allow)
    }))

  it.effect("serves IP addresses, localhost, MANAGEMENT_HOST and the names in MANAGEMENT_ALLOWED_HOSTS", () =>
    Effect.gen(function*() {
      const addresses = ["127.0.0.1", "10.0.0.7:9090", "[::1]:9090", "[fd00::1]"]
      const names = ["localhost", "LOCALHOST.:9090", "127.1", "petstore.internal:9090", "PETSTORE-1"]
      for (const host of [...addresses, ...names]) assert.strictEqual((yield* ofHost(host)).status, 200, host)
      assert.strictEqual((yield* ofHost("evil.example", "http://localhost/healthz")).status, 200)
      // HAProxy checks health with HTTP/1.0 and without a Host.
      assert.strictEqual((yield* (yield* Management).send("GET /healthz HTTP/1.0\r\n\r\n")).status, 200)
    }))

  const foreign = ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:9090", "petstore-11"]
  it.effect.each([
    ...foreign.flatMap((host) => ["/healthz", "/metrics", "/admin/keys"].map((target) => [host, target])),
    ["localhost", "http://evil.example/metrics"],
    ["localhost", "http://localhost@evil.example/"]
  ])(
    "rejects host %s with 421, even with the right token (DNS rebinding): %s",
    ([host = "", target]) =>
      Effect.map(ofHost(host, target), (response) => assertError(response, 421, "misdirected_request"))
  )
})
