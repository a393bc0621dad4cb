import { assert, describe, layer } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { newestVersion } from "../../src/database/Database.ts"
import { dataDirectory, temporaryDatabaseUrl } from "../support/Databases.ts"
import { issue, metricsOf, send, start, untilTrue } from "../support/Process.ts"
import * as Prometheus from "../support/Prometheus.ts"
import * as Redis from "../support/Redis.ts"

const ownLimits = { name: "a", plan: "enterprise", limits: { perMinute: 1, perDay: 9 } }

/** Sends requests with several outcomes to a process. Returns its metrics, once the counts of the limits are stored. */
const metricsAfterRequests = Effect.fnUntraced(function*(env: Readonly<Record<string, string>>, stored: string) {
  const service = yield* start(env)
  // Other counters that start at 0 are in `expected`.
  assert.include(yield* metricsOf(service), `{code="invalid_admin_token"} 0\n`)
  yield* Effect.replicateEffect(send(`${service.address}/v1/pets`, (yield* issue(service, ownLimits)).key), 6)
  yield* send(`${service.address}/v1/pets`, "none")
  for (const token of ["none", ""]) yield* send(`${service.management}/admin/keys`, token)
  yield* untilTrue(Effect.map(metricsOf(service), (text) => text.includes(stored)), stored)
  assert.include(service.stderr(), `"message":"Admin action"`)
  assert.strictEqual(service.stderr().includes(`"message":"request"`), env.ACCESS_LOG !== "false")
  return yield* metricsOf(service)
})

const durations = "petstore_http_server_request_duration_seconds"
const route = `http_request_method="GET",http_route="/v1/pets",http_response_status_code`

const now = Date.now() / 1_000

/** Series of each metric, with their value, or with the lowest and the highest plausible value on a busy machine. */
const expected: ReadonlyArray<readonly [series: string, least: number, most?: number]> = [
  [`${durations}_count{${route}="429"}`, 5],
  [`${durations}_sum{${route}="200"}`, 1e-5, 2],
  ["petstore_http_server_requests_queued", 0],
  [`petstore_rate_limit_decisions_total{outcome="allowed",plan="enterprise",window="none"}`, 1],
  [`petstore_rate_limit_decisions_total{outcome="rejected",plan="enterprise",window="minute"}`, 2],
  [`petstore_rate_limit_decisions_total{outcome="banned",plan="enterprise",window="ban"}`, 3],
  [`petstore_rate_limit_decisions_total{outcome="allowed",plan="none",window="none"}`, 1],
  [`petstore_rate_limit_bans_total{plan="free"}`, 0],
  [`petstore_rate_limit_bans_total{plan="enterprise"}`, 1],
  ["petstore_rate_limit_fallback", 0],
  ["petstore_rate_limit_fallback_decisions_total", 0],
  ["petstore_rate_limit_redis_duration_seconds_sum", 1e-5, 0.6],
  ["petstore_rate_limit_write_duration_seconds_sum", 1e-5, 2],
  ["petstore_database_connections", 1, 7],
  ["petstore_database_max_connections", 7],
  [`petstore_background_failures_total{task="write_key_limits"}`, 0],
  [`petstore_api_key_rejections_total{reason="malformed"}`, 1],
  [`petstore_api_key_rejections_total{reason="unknown"}`, 0],
  [`petstore_admin_authentication_failures_total{code="invalid_admin_token"}`, 1],
  [`petstore_admin_authentication_failures_total{code="missing_admin_token"}`, 1],
  ["petstore_log_lines_dropped_total", 0],
  ["petstore_ready", 1],
  [
    `petstore_build_info{node="${process.version}",revision="79d1fb3",schema_version="${newestVersion}",version="1.0.0"}`,
    1
  ],
  ["process_cpu_seconds_total", 0.1, 60],
  ["process_start_time_seconds", now, now + 600],
  ["process_resident_memory_bytes", 80e6, 4e9],
  ["nodejs_heap_size_used_bytes", 10e6, 1e9],
  ["nodejs_external_memory_bytes", 1e6, 1e9],
  ["nodejs_eventloop_lag_p50_seconds", 0],
  ["nodejs_eventloop_lag_p99_seconds", 0],
  // In milliseconds, the value would be higher.
  ["nodejs_gc_duration_seconds_total", 0, 2]
]

const makeTexts = Effect.gen(function*() {
  const limits = { REDIS_URL: (yield* Redis.runStarted()).url, REDIS_TIMEOUT_MS: "10000" }
  const database = { DATABASE_URL: yield* temporaryDatabaseUrl, DATABASE_MAX_CONNECTIONS: "7" }
  return [
    yield* metricsAfterRequests({ ...limits, ...database, BUILD_REVISION: "79d1fb3" }, "redis_duration_seconds"),
    yield* metricsAfterRequests({ DATA_DIR: yield* dataDirectory, ACCESS_LOG: "false" }, "write_duration_seconds")
  ]
})
const Texts = Context.Service<ReadonlyArray<string>>("test/processes/Texts")

const labelsIn = (text: string) => [...new Set([...text.matchAll(/(\w+)=~?"/g)].map(([, label = ""]) => label))]

const skip = !Prometheus.isInstalled || !Redis.isInstalled || process.env.TEST_DATABASE_URL === undefined

describe.skipIf(skip)("The metrics of a process", () => {
  layer(Layer.effect(Texts, makeTexts), { excludeTestServices: true })((it) => {
    it.effect("have plausible values in the unit of their name", () =>
      Effect.gen(function*() {
        const text = (yield* Texts).join("\n")
        for (const [series, least, most = least] of expected) {
          const [, line = ""] = text.split(`\n${series} `)
          const value = Number.parseFloat(line)
          assert.isTrue(value >= least && value <= most, `${series} ${value}`)
        }
        assert.sameMembers([...Prometheus.metricsIn(expected.join())], [...Prometheus.described])
      }))

    it.effect("count the failures of the expiry of each table, from zero", () =>
      Effect.gen(function*() {
        const text = (yield* Texts).join("\n")
        const usage = ["key_usage", "key_usage_minutes", "key_usage_totals"]
        const tables = ["api_key_secrets", "audit_log", "idempotency_keys", "key_limits", "rate_limits", ...usage]
        for (const table of tables) {
          assert.include(text, `\npetstore_background_failures_total{task="delete_${table}"} 0\n`)
        }
      }))

    it.effect("have the names, kinds and labels of docs/monitoring.md", () =>
      Effect.gen(function*() {
        const texts = yield* Texts
        for (const text of texts) Prometheus.runPromtool(["check", "metrics"], text)
        const lines = texts.join("\n").split("\n")
        const exposed = lines.flatMap((line) => /^# TYPE (\w+)/.exec(line)?.[1] ?? [])
        assert.sameMembers([...new Set(exposed)], [...Prometheus.described])
        const rows = Prometheus.rows.filter(([, cell]) => cell?.startsWith("`petstore"))
        for (const [, cell = "", kind, labels = ""] of rows) {
          const name = cell.replaceAll("`", "")
          assert.include(lines, `# TYPE ${name} ${kind}`)
          const samples = lines.filter((line) => Prometheus.metricsIn(line.split("{")[0] ?? "").has(name))
          const own = labelsIn(samples.join()).filter((label) => label !== "le")
          assert.sameMembers(own, labels.match(/\w+/g) ?? [], name)
        }
      }))

    it.effect("include those of the alerts and the dashboard, with their labels", () =>
      Effect.gen(function*() {
        // Prometheus adds the first three.
        const labels = ["job", "namespace", "instance", ...labelsIn((yield* Texts).join())]
        for (const query of Prometheus.queries) {
          assert.includeMembers([...Prometheus.described], [...Prometheus.metricsIn(query)])
          assert.includeMembers(labels, labelsIn(query), query)
        }
      }))
  })
})
