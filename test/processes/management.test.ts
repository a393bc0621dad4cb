/** Tests the management port over HTTP, and revocation in other processes. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { readFileSync, statSync } from "node:fs"
import { request } from "node:http"
import { join } from "node:path"
import { temporaryDatabaseUrl, temporaryDirectory } from "../support/Harness.ts"
import { start } from "../support/Process.ts"

const ADMIN_TOKEN = "adm_test"

const send = (url: string, token: string, options: RequestInit = {}) =>
  Effect.promise(async () => {
    const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" }
    const response = await fetch(url, { ...options, headers })
    const text = await response.text()
    return {
      status: response.status,
      headers: response.headers,
      text,
      body: text === "" ? undefined : JSON.parse(text)
    }
  })

/** Returns the response to a request with `Expect`, which `fetch` cannot send. */
const sendExpect = (url: string) =>
  Effect.callback<{ readonly status: number; readonly body: unknown }>((resume) => {
    const headers = { authorization: `Bearer ${ADMIN_TOKEN}`, expect: "tea" }
    request(url, { headers }, (response) => {
      let text = ""
      response.setEncoding("utf8").on("data", (chunk: string) => text += chunk)
      response.on("end", () => resume(Effect.succeed({ status: response.statusCode ?? 0, body: JSON.parse(text) })))
    }).on("error", (error) => resume(Effect.die(error))).end()
  })

const post = (body: unknown): RequestInit => ({ method: "POST", body: JSON.stringify(body) })

const assertError = (
  response: { readonly status: number; readonly body: unknown },
  status: number,
  code: string
): void => {
  assert.strictEqual(response.status, status)
  assert.containsSubset(response.body, { status, code })
  assert.hasAllKeys(response.body, ["code", "message", "status"])
}

describe("The management port", () => {
  it.live("issues, lists, shows, rotates and revokes keys, and rejects invalid requests", () =>
    Effect.gen(function*() {
      const { address, management, stderr, stdout } = yield* start({ DATA_DIR: yield* temporaryDirectory, ADMIN_TOKEN })
      const admin = (path: string, options?: RequestInit) => send(`${management}/admin${path}`, ADMIN_TOKEN, options)
      const list = (key: string) => Effect.map(send(`${address}/v1/pets`, key), ({ status }) => status)

      const issued = yield* admin("/keys", post({ name: "acme", plan: "pro" }))
      assert.strictEqual(issued.status, 201)
      const { id, key, ...rest } = issued.body
      assert.containsSubset(rest, { name: "acme", plan: "pro", limits: { perMinute: 300, perDay: 10_000 } })
      assert.strictEqual(yield* list(key), 200)
      const own = { perMinute: 5, perDay: 7 }
      const enterprise = yield* admin("/keys", post({ name: "big", plan: "enterprise", limits: own }))
      assert.deepStrictEqual(enterprise.body.limits, own)

      assertError(yield* sendExpect(`${management}/admin/keys`), 417, "expectation_failed")
      const all = yield* admin("/keys")
      assert.deepStrictEqual(all.body.map(({ name }: { name: string }) => name), ["first key", "acme", "big"])
      assert.notInclude(all.text, "psk_")
      const shown = yield* admin(`/keys/${id}`)
      assert.containsSubset(shown.body, { id, usage: { minute: { limit: 300, remaining: 299 } } })
      assert.notInclude(shown.text, "psk_")

      const graced = yield* admin(`/keys/${id}/rotate`, post({ gracePeriodSeconds: 60 }))
      assert.deepStrictEqual([yield* list(key), yield* list(graced.body.key)], [200, 200])
      const rotated = yield* admin(`/keys/${id}/rotate`, { method: "POST" })
      assert.deepStrictEqual([yield* list(key), yield* list(graced.body.key), yield* list(rotated.body.key)], [
        401,
        401,
        200
      ])
      const revoked = yield* admin(`/keys/${id}`, { method: "DELETE" })
      assert.deepStrictEqual([revoked.status, revoked.text], [204, ""])
      assert.strictEqual(yield* list(rotated.body.key), 401)

      assertError(yield* admin(`/keys/${id}`, { method: "DELETE" }), 409, "conflict")
      assertError(yield* admin(`/keys/${id}/rotate`, { method: "POST" }), 409, "conflict")
      for (const [path, method] of [["", "GET"], ["", "DELETE"], ["/rotate", "POST"]]) {
        assertError(yield* admin(`/keys/key_none${path}`, { method: method ?? "" }), 404, "not_found")
      }
      const free = { name: "a", plan: "free" }
      const invalid: ReadonlyArray<readonly [unknown, string]> = [
        [{}, "body.name"],
        [{ ...free, plan: "gold" }, "body.plan: expected free, pro, business or enterprise"],
        [{ ...free, plan: "enterprise" }, "body.limits: required"],
        [{ ...free, limits: own }, "body.limits: fixed on plan free"],
        [{ ...free, plan: "enterprise", limits: { perMinute: 0, perDay: 1.5 } }, "body.limits.perMinute"],
        [{ ...free, expiresAt: "2020-01-01T00:00:00Z" }, "body.expiresAt"],
        [{ ...free, expiresAt: "tomorrow" }, "body.expiresAt"],
        [{ ...free, expiresAt: "2100-02-30" }, "body.expiresAt: expected a day that the calendar has"],
        [{ ...free, expiresat: "2100-02-20" }, "body.expiresat"],
        [{ ...free, name: "" }, "body.name"],
        [{ ...free, name: "x".repeat(10_000) }, "body.name"],
        [{ ...free, name: "\0" }, "body.name"],
        [{ ...free, name: "a\nkey_forged" }, "body.name"],
        [{ ...free, name: "  " }, "body.name"],
        [{ ...free, expiresAt: "12/31/2100" }, "body.expiresAt: expected an instant like"],
        [{ ...free, expiresAt: "2100-01-01T00:00:00" }, "body.expiresAt: expected an instant like"]
      ]
      for (const [body, message] of invalid) {
        const response = yield* admin("/keys", post(body))
        assertError(response, 400, "invalid_request")
        assert.include(response.body.message, message)
      }
      for (const method of ["GET", "DELETE"]) assertError(yield* admin("/keys/%00", { method }), 400, "invalid_request")
      assertError(yield* admin(`/keys/${id}/rotate`, post({ gracePeriodSeconds: -1 })), 400, "invalid_request")
      for (const body of ["{", `{"name":"a","plan":"free","expiresAt":"2100-01-01","expiresAt":"2200-01-01"}`]) {
        assertError(yield* admin("/keys", { method: "POST", body }), 400, "invalid_request")
      }
      assertError(yield* admin("/keys", { method: "POST", body: "x".repeat(65_537) }), 413, "payload_too_large")
      assertError(yield* admin("/keys", { method: "PUT" }), 405, "method_not_allowed")

      for (const secret of [key, graced.body.key, rotated.body.key, ADMIN_TOKEN]) {
        assert.notInclude(stderr() + stdout(), secret)
      }
      assert.include(stderr(), "ADMIN_TOKEN is short")
    }))

  it.live(
    "lists keys in pages with a Link to the next, and rejects an invalid limit or cursor",
    () =>
      Effect.gen(function*() {
        const { management } = yield* start({ DATA_DIR: yield* temporaryDirectory, ADMIN_TOKEN })
        const admin = (path: string, options?: RequestInit) => send(`${management}/admin${path}`, ADMIN_TOKEN, options)
        const issued = yield* Effect.forEach(
          Array.from({ length: 24 }, (_, index) => index),
          (index) => admin("/keys", post({ name: `key ${index}`, plan: "free" }))
        )
        const names = ["first key", ...issued.map(({ body }) => String(body.name))]
        const named = ({ body }: { readonly body: ReadonlyArray<{ readonly name: string }> }) =>
          body.map(({ name }) => name)

        const first = yield* admin("/keys")
        assert.deepStrictEqual(named(first), names.slice(0, 20))
        const walked: Array<string> = []
        let path: string | undefined = "/keys?limit=12"
        while (path !== undefined) {
          const page: typeof first = yield* admin(path)
          walked.push(...named(page))
          const link = page.headers.get("link")
          path = link === null
            ? undefined
            : /^<\/admin(\/keys\?limit=12&cursor=[\w-]+)>; rel="next"$/.exec(link)?.[1] ?? link
        }
        assert.deepStrictEqual(walked, names)
        assert.isNull((yield* admin("/keys?limit=25")).headers.get("link"))
        assert.isNotNull((yield* admin("/keys?limit=24")).headers.get("link"))

        const cursor = (text: string) => `cursor=${Buffer.from(text).toString("base64url")}`
        const wrong: ReadonlyArray<readonly [string, string]> = [
          ["limit=0", "query.limit: expected an integer from 1 to 100"],
          ["limit=101", "query.limit"],
          ["limit=1.5", "query.limit"],
          ["limit=", "query.limit"],
          ["limit=1&limit=2", "query.limit"],
          ["cursor=", "query.cursor: expected a cursor of a Link header"],
          ["cursor=MQ", "query.cursor"],
          ["cursor=%00", "query.cursor"],
          [cursor("1 key_\0"), "query.cursor"],
          [cursor("1e3 key_a"), "query.cursor"],
          [cursor("9223372036854775807 key_a"), "query.cursor"],
          [cursor("-9223372036854775808 key_a"), "query.cursor"],
          ["limit=0&cursor=MQ", "query.cursor"]
        ]
        for (const [query, message] of wrong) {
          const rejected = yield* admin(`/keys?${query}`)
          assertError(rejected, 400, "invalid_request")
          assert.include(rejected.body.message, message)
        }
        // The first and the last instant of the range.
        assert.lengthOf(named(yield* admin(`/keys?limit=100&${cursor("-210866803200000000 key_a")}`)), 25)
        assert.lengthOf(named(yield* admin(`/keys?${cursor("8640000000000000000 key_a")}`)), 0)
      }),
    30_000
  )

  it.live("shows and lifts the ban of a key that keeps sending requests after 429", () =>
    Effect.gen(function*() {
      const { address, management } = yield* start({ DATA_DIR: yield* temporaryDirectory, ADMIN_TOKEN })
      const admin = (path: string, options?: RequestInit) => send(`${management}/admin${path}`, ADMIN_TOKEN, options)
      const limits = { perMinute: 4, perDay: 100 }
      const { body: { id, key } } = yield* admin("/keys", post({ name: "eager", plan: "enterprise", limits }))
      const list = send(`${address}/v1/pets`, key)
      const codes = []
      for (let i = 0; i < 9; i++) codes.push((yield* list).body.code ?? "none")
      assert.deepStrictEqual(codes, [
        ...Array.from({ length: 4 }, () => "none"),
        ...Array.from({ length: 3 }, () => "rate_limit_exceeded"),
        ...Array.from({ length: 2 }, () => "api_key_banned")
      ])
      const { headers } = yield* list
      const end = Math.ceil(Date.parse((yield* admin(`/keys/${id}`)).body.ban.until) / 1000)
      assert.strictEqual(headers.get("x-ratelimit-remaining"), "0")
      assert.strictEqual(Number(headers.get("x-ratelimit-reset")), end)
      assert.closeTo(Number(headers.get("retry-after")), end - Date.now() / 1000, 2)
      // The operator sees the real usage of the key.
      const { usage } = (yield* admin(`/keys/${id}`)).body
      assert.deepStrictEqual([usage.minute.remaining, usage.day.remaining], [0, 96])
      assert.isAbove(Date.parse(usage.day.resetAt), Date.now() + 80_000_000)
      const metrics = yield* Effect.promise(() => fetch(`${management}/metrics`).then((response) => response.text()))
      // The fourth rejection begins the ban, which rejects every later request.
      for (
        const line of [
          `bans_total{plan="enterprise"} 1`,
          `decisions_total{outcome="allowed",plan="enterprise"} 4`,
          `decisions_total{outcome="rejected",plan="enterprise"} 3`,
          `decisions_total{outcome="banned",plan="enterprise"} 3`
        ]
      ) assert.include(metrics, `petstore_rate_limit_${line}`)

      assert.strictEqual((yield* admin(`/keys/${id}/ban`, { method: "DELETE" })).status, 204)
      assert.isNull((yield* admin(`/keys/${id}`)).body.ban)
      assertError(yield* list, 429, "rate_limit_exceeded")
      assertError(yield* admin("/keys/key_none/ban", { method: "DELETE" }), 404, "not_found")
    }))

  it.live("requires its token and serves no path of the API port", () =>
    Effect.gen(function*() {
      const DATA_DIR = yield* temporaryDirectory
      const { address, management } = yield* start({ DATA_DIR, BUILD_REVISION: "79d1fb3" })
      const file = join(DATA_DIR, "admin-token")
      assert.strictEqual(statSync(file).mode & 0o777, 0o600)
      const token = readFileSync(file, "utf8").trim()
      assert.match(management, /^http:\/\/127\.0\.0\.1:/)
      assert.strictEqual((yield* send(`${management}/admin/keys`, token)).status, 200)

      for (const path of ["/admin/keys", "/healthz", "/readyz", "/metrics"]) {
        assertError(yield* send(address + path, token), 404, "not_found")
      }
      assertError(yield* send(`${management}/v1/pets`, token), 404, "not_found")
      for (const path of ["/healthz", "/readyz"]) assert.strictEqual((yield* send(management + path, "")).status, 200)
      assert.include((yield* send(`${management}/healthz`, "")).body, { revision: "79d1fb3" })

      assertError(yield* send(`${management}/admin/keys`, ""), 401, "missing_admin_token")
      assertError(yield* send(`${management}/admin/keys`, "adm_x"), 401, "invalid_admin_token")
    }))

  it.live("counts requests by route and status for Prometheus", () =>
    Effect.gen(function*() {
      const { address, management } = yield* start({ DATA_DIR: yield* temporaryDirectory, ADMIN_TOKEN })
      for (let i = 0; i < 3; i++) yield* send(`${address}/v1/pets/${i}`, "none")
      const metrics = yield* Effect.promise(() => fetch(`${management}/metrics`).then((response) => response.text()))
      assert.include(
        metrics,
        `petstore_http_server_request_duration_seconds_count{http_request_method="GET",http_route="/v1/pets/:petId",http_response_status_code="401"} 3`
      )
      assert.isBelow(Number(/duration_seconds_sum\{[^}]*"401"\} (\S+)/.exec(metrics)?.[1]), 1)
    }))
})

describe.skipIf(process.env.TEST_DATABASE_URL === undefined)("Two processes on one PostgreSQL", () => {
  it.live("reject a key within a second after the other revoked it, under load, and fail no other request", () =>
    Effect.gen(function*() {
      const env = { DATABASE_URL: yield* temporaryDatabaseUrl, DATA_DIR: yield* temporaryDirectory, ADMIN_TOKEN }
      const [one, two] = yield* Effect.all([start(env), start(env)])
      const limits = { perMinute: 1_000_000, perDay: 1_000_000 }
      const issue = send(`${one.management}/admin/keys`, ADMIN_TOKEN, post({ name: "a", plan: "enterprise", limits }))
      const { body: valid } = yield* issue

      const others = new Map<number, number>()
      const load = send(`${two.address}/v1/pets`, valid.key).pipe(
        Effect.map(({ status }) => others.set(status, (others.get(status) ?? 0) + 1)),
        Effect.forever
      )
      const revocations = Effect.gen(function*() {
        for (let round = 0; round < 5 || (others.get(200) ?? 0) <= 500; round++) {
          const { body: revoked } = yield* issue
          assert.strictEqual((yield* send(`${two.address}/v1/pets`, revoked.key)).status, 200)
          yield* send(`${one.management}/admin/keys/${revoked.id}`, ADMIN_TOKEN, { method: "DELETE" })
          const revokedAt = performance.now()
          let status = 200
          while (status === 200) {
            const askedAt = performance.now()
            status = (yield* send(`${two.address}/v1/pets`, revoked.key)).status
            if (status === 200) assert.isBelow(askedAt - revokedAt, 1000)
          }
          assert.strictEqual(status, 401)
          assert.strictEqual((yield* send(`${two.address}/v1/pets`, revoked.key)).status, 401)
        }
      })
      const loads = Effect.all(Array.from({ length: 8 }, () => load), { concurrency: "unbounded" })
      yield* Effect.raceFirst(revocations, loads)
      assert.deepStrictEqual([...others.keys()], [200])
      assert.isAbove(others.get(200) ?? 0, 500)
    }))
})
