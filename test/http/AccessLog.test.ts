/** Tests the log line of a request, in which the direct JSON equals the line of the general logger, and its metric. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Logger, Metric, References } from "effect"
import { TestClock } from "effect/testing"
import { type ApiError, Conflict, InvalidRequest } from "../../src/api/Errors.ts"
import { PetstoreApi } from "../../src/api/PetstoreApi.ts"
import { redactAlso } from "../../src/api/Secrets.ts"
import * as AccessLog from "../../src/http/AccessLog.ts"
import { makeRequestContext } from "../../src/http/RequestContext.ts"
import { AccessLogEnabled, JsonLines } from "../../src/observability/LogReferences.ts"
import { memory } from "../support/Databases.ts"
import { Service, service } from "../support/Service.ts"

type Options = Readonly<{ error?: ApiError; isDirect?: boolean; isEnabled?: boolean; level?: "Info" | "Warn" }>

/** Returns the lines of a request, with a target if it has no route. They are direct or from the general logger. */
const linesOf = (keyId?: string, url?: string, options: Options = {}) =>
  Effect.gen(function*() {
    const { error, isDirect = true, isEnabled = true, level = "Info" } = options
    const lines: Array<string> = []
    const write = (line: string) => void lines.push(line)
    const logger = Logger.map(Logger.formatJson, write)
    const context = makeRequestContext("id:1.2-3_4", 0n)
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
})
