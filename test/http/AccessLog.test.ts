/** Tests the log line of a request, in which the direct JSON equals the line of the general logger, and its metric. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer, Logger, Metric, References } from "effect"
import { TestClock } from "effect/testing"
import { type ApiError, Conflict, InvalidRequest } from "../../src/api/Errors.ts"
import { PetstoreApi } from "../../src/api/PetstoreApi.ts"
import { redactAlso } from "../../src/api/Secrets.ts"
import * as AccessLog from "../../src/http/AccessLog.ts"
import { makeRequestContext } from "../../src/http/RequestContext.ts"
import { AccessLogEnabled, JsonLines } from "../../src/observability/LogReferences.ts"
import { RateLimiter } from "../../src/rate-limit/RateLimiter.ts"
import { memory } from "../support/Databases.ts"
import { Service, service } from "../support/Service.ts"

type Options = Readonly<
  { error?: ApiError; isDirect?: boolean; isEnabled?: boolean; level?: "Info" | "Warn"; requestId?: string }
>

/** Returns the lines of a request, with a target if it has no route. They are direct or from the general logger. */
const linesOf = (keyId?: string, url?: string, options: Options = {}) =>
  Effect.gen(function*() {
    const { error, isDirect = true, isEnabled = true, level = "Info", requestId = "id:1.2-3_4" } = options
    const lines: Array<string> = []
    const write = (line: string) => void lines.push(line)
    const logger = Logger.map(Logger.formatJson, write)
    const context = makeRequestContext(requestId, 0n)
    if (url === undefined) context.routed(PetstoreApi.groups.pets.endpoints.getPet)
    if (keyId !== undefined) context.authenticated(keyId)
    if (error !== undefined) context.failed(error)
    const head = { method: "GET", url: url ?? "/v1/pets/1" }
    yield* Effect.flatMap(AccessLog.make, (record) => record(head, context, { status: error?.status ?? 200 })).pipe(
      Effect.provideService(JsonLines, isDirect ? { logger, write } : undefined),
      Effect.provideService(References.MinimumLogLevel, level),
      Effect.provideService(AccessLogEnabled, isEnabled),
      Effect.provide(Logger.layer([logger]))
    )
    return lines
  })

/** An admin token that an operator chose. */
const chosenSecret = "correct;horse?battery"
redactAlso(chosenSecret)
/** Another one, which looks percent-encoded. */
const encodedSecret = "correct%41horse%20battery"
redactAlso(encodedSecret)
/** One that begins like those that the service makes, with characters that a URL encodes. */
const prefixedSecret = "adm_ops+team/Zq81kfPw93mNx0"
redactAlso(prefixedSecret)

/** The id of the key and the target of a request without a route, and fields of its line. */
const requests: ReadonlyArray<readonly [keyId: string | undefined, url: string | undefined, fields: object]> = [
  ["key_0123456789abcdef", undefined, { keyId: "key_0123456789abcdef", route: "/v1/pets/:petId" }],
  ["a \"key\" of an operator\n", undefined, { keyId: "a \"key\" of an operator\n", route: "/v1/pets/:petId" }],
  [undefined, undefined, { keyId: "none", route: "/v1/pets/:petId" }],
  [undefined, "/v1/pet", { keyId: "none", route: "none", path: "/v1/pet" }],
  [undefined, "/login?password=secret", { path: "/login" }],
  [undefined, `/psk_${"a".repeat(38)}/adm_${"b".repeat(32)}`, { path: "/psk_…/adm_…" }],
  [undefined, `/ps%6b%5F${"a".repeat(38)}/%61dm_${"b".repeat(32)}`, { path: "/psk_…/adm_…" }],
  [undefined, `/psk%255F${"a".repeat(38)}/adm%25255f${"b".repeat(32)}`, { path: "/psk_…/adm_…" }],
  [undefined, `/${chosenSecret}/x`, { path: "/…/x" }],
  [undefined, `/${encodeURIComponent(prefixedSecret)}`, { path: "/…" }],
  [undefined, `/psk_abc%41${"B".repeat(34)}`, { path: "/psk_…" }],
  [undefined, `/${encodedSecret}/x`, { path: "/…/x" }],
  [undefined, `/${encodeURIComponent(encodedSecret)}/x`, { path: "/…/x" }],
  [undefined, `/a${encodeURIComponent(encodeURIComponent(chosenSecret))}`, { path: "/a…" }],
  [undefined, "http://user:password@host/x", { path: "/x" }],
  [undefined, "/\u001b[2J\u0085\"\u00e4", { path: `/%1B[2J%85"%E4` }],
  [undefined, "/%0a%22", { path: "/%0a%22" }],
  [undefined, `/${"x".repeat(200)}`, { path: `/${"x".repeat(199)}…` }]
]

describe("The access log", () => {
  it.effect("describes each request at level Info, without secrets, unless ACCESS_LOG is false", () =>
    Effect.gen(function*() {
      yield* TestClock.adjust("40 millis")
      for (const [keyId, url, fields] of requests) {
        const [line = "", ...others] = yield* linesOf(keyId, url)
        assert.isEmpty(others)
        assert.deepStrictEqual([line], yield* linesOf(keyId, url, { isDirect: false }))
        const { annotations }: { readonly annotations: Record<string, unknown> } = JSON.parse(line)
        const names = ["method", "route", ...url === undefined ? [] : ["path"], "status", "durationMs", "keyId"]
        assert.deepStrictEqual(Object.keys(annotations), [...names, "requestId"])
        const expected = { method: "GET", status: 200, durationMs: 40, requestId: "id:1.2-3_4", ...fields }
        assert.deepInclude(annotations, expected)
        for (const isDirect of [true, false]) {
          assert.isEmpty(yield* linesOf(keyId, url, { isDirect, level: "Warn" }))
          assert.isEmpty(yield* linesOf(keyId, url, { isDirect, isEnabled: false }))
        }
      }
    }))

  it.effect("has the code and the request id of each error response, and the invalid fields of a 400", () => {
    const lines: Array<Readonly<Record<string, unknown>>> = []
    const logger = Logger.make(({ fiber, message }) => {
      if (String(message) === "request") lines.push(fiber.getRef(References.CurrentLogAnnotations))
    })
    return Effect.gen(function*() {
      const { call, newKey, send } = yield* Service
      const key = yield* newKey
      const requests = [
        [call("/nowhere"), { error: "not_found" }],
        [call("/v1/pets", { method: "DELETE" }), { error: "method_not_allowed" }],
        [call("/v1/pets"), { error: "missing_api_key" }],
        [send("garbage\r\n\r\n"), { error: "invalid_request" }],
        [call("/v1/pets?limit=0&status=x", { key }), { error: "invalid_request", fields: "query.limit,query.status" }]
      ] as const
      for (const [request, fields] of requests) {
        const { headers, text } = yield* request
        assert.strictEqual(JSON.parse(text).code, fields.error)
        assert.deepInclude(lines.at(-1), { ...fields, requestId: headers.get("x-request-id") })
      }
    }).pipe(Effect.provide(service(memory, {}, { loggers: [logger] })))
  })

  it.effect("has the code of an error and the names of the invalid fields, without secrets", () =>
    Effect.gen(function*() {
      const message = `Invalid request: body.name: expected string; body.psk_${"a".repeat(38)}: query.limit.`
      const [line = ""] = yield* linesOf("key_a", undefined, { error: new InvalidRequest({ message }) })
      const expected = { status: 400, error: "invalid_request", fields: "body.name,body.psk_…" }
      assert.deepInclude(JSON.parse(line).annotations, expected)
      // Only a 400 is about fields.
      assert.notInclude((yield* linesOf("key_a", undefined, { error: new Conflict({ message }) })).join(), "fields")
    }))

  it.effect("has about 270 bytes a request", () =>
    Effect.gen(function*() {
      const [line = ""] = yield* linesOf("key_0123456789abcdef", undefined, { requestId: crypto.randomUUID() })
      assert.closeTo(line.length, 270, 15)
    }))

  it.effect("has one metric series, in seconds, for all unknown methods and paths, also if ACCESS_LOG is false", () =>
    Effect.gen(function*() {
      yield* TestClock.adjust("40 millis")
      for (const [method, isEnabled] of [["PROPFIND", true], ["MKCOL", false], ["LOCK", false]] as const) {
        const record = yield* Effect.provideService(AccessLog.make, AccessLogEnabled, isEnabled)
        yield* record({ method, url: `/${method}` }, makeRequestContext("id", 0n), { status: 404 })
      }
      const labels = { "http.request.method": "_OTHER", "http.route": "none", "http.response.status_code": "404" }
      const series = (yield* Metric.snapshot).filter(({ id }) => id === "petstore_http_server_request_duration_seconds")
      assert.deepStrictEqual(series.map(({ attributes }) => attributes), [{ ...labels, unit: "s" }])
      assert.deepInclude(series[0]?.state, { count: 3, sum: 0.12 })
    }).pipe(Effect.provideService(Metric.MetricRegistry, new Map())))

  /** Counts requests as the service does, but allows a key only three a minute, and an address one. */
  const strict = Layer.effect(
    RateLimiter,
    Effect.map(RateLimiter, (own): RateLimiter["Service"] => ({
      ...own,
      charge: (caller) => own.charge(caller, { perMinute: caller.startsWith("address:") ? 1 : 3, perDay: 9 })
    }))
  ).pipe(Layer.provide(RateLimiter.layerMemory))

  it.effect("has the client's address for 401 and 429 of an address, the window for 429, and the X-Request-Id", () => {
    const lines: Array<Readonly<Record<string, unknown>>> = []
    const logger = Logger.map(Logger.formatStructured, ({ annotations, level, message }) => {
      if (message === "request") lines.push({ level, ...annotations })
    })
    const own = { TRUSTED_PROXIES: "127.0.0.1" }
    return Effect.gen(function*() {
      const { call, newKey, send } = yield* Service
      const key = yield* newKey
      yield* call("/v1/pets", { key })
      const keyId = lines.pop()?.["keyId"]
      assert.match(String(keyId), /^key_\w{16}$/)
      const requestOf = (path: string, address: string, sentKey?: string) =>
        call(path, { headers: { "x-forwarded-for": address }, ...sentKey !== undefined && { key: sentKey } })
      const [pets, all] = ["/v1/pets", { level: "INFO", method: "GET", route: "/v1/pets", durationMs: 0 }]
      const ofKey = { ...all, keyId }
      const exceeded = { ...ofKey, status: 429, error: "rate_limit_exceeded", window: "minute" }
      const noKey = { ...all, keyId: "none" }
      const address = "2001:db8::1"
      const rows = [
        [
          requestOf(`${pets}?limit=0&status=x`, address, key),
          { ...ofKey, status: 400, error: "invalid_request", fields: "query.limit,query.status" }
        ],
        [requestOf(`${pets}/9`, address, key), { ...ofKey, route: "/v1/pets/:petId", status: 404, error: "not_found" }],
        ...[1, 2].map(() => [requestOf(pets, address, key), exceeded] as const),
        [requestOf(pets, address, key), { ...exceeded, error: "api_key_banned", window: "ban" }],
        [requestOf(pets, address), { ...noKey, status: 401, error: "missing_api_key", address }],
        [requestOf(pets, "2001:db8::2"), { ...exceeded, ...noKey, address: "2001:db8::2" }],
        [
          requestOf("/none", "2001:db8::3"),
          { ...exceeded, ...noKey, route: "none", path: "/none", address: "2001:db8::3" }
        ],
        [
          send("garbage\r\n\r\n"),
          { ...noKey, method: "none", route: "none", status: 400, error: "invalid_request" }
        ],
        [requestOf("/none", "192.0.2.1"), { ...noKey, route: "none", path: "/none", status: 404, error: "not_found" }]
      ] as const
      for (const [request, expected] of rows) {
        const { headers } = yield* request
        assert.deepStrictEqual(lines, [{ ...expected, requestId: headers.get("x-request-id") }])
        lines.length = 0
      }
    }).pipe(Effect.provide(service(Layer.merge(memory, strict), own, { loggers: [logger] })))
  })
})
