/** Tests the metrics of `/metrics` on stores in memory, against the tables of docs/monitoring.md. */
import { assert, describe, it } from "@effect/vitest"
import { ConfigProvider, Effect, Layer, Metric } from "effect"
import { redisMetrics } from "../../src/config/RedisSettings.ts"
import { databaseOptions, savedStatesOptions } from "../../src/config/RoomOptions.ts"
import { newestVersion } from "../../src/database/Database.ts"
import { Readiness } from "../../src/database/Readiness.ts"
import * as Logging from "../../src/observability/Logging.ts"
import { makeCountFailure } from "../../src/observability/MetricConstructors.ts"
import * as ProcessMetrics from "../../src/observability/ProcessMetrics.ts"
import { memory } from "../support/Databases.ts"
import { send } from "../support/Process.ts"
import { described, metricsIn, rows } from "../support/Prometheus.ts"
import { Service } from "../support/Service.ts"
import { Management, serversOn } from "./Management.ts"

/** Metrics that only Redis, a database or a background task change. */
const registerOthers = Effect.gen(function*() {
  const { connections, maxConnections } = (yield* databaseOptions).metrics
  for (const gauge of [connections, maxConnections, redisMetrics.fallback]) yield* Metric.update(gauge, 0)
  for (const histogram of [redisMetrics.durations, savedStatesOptions.writeDurations]) {
    yield* Metric.update(histogram, 1)
  }
  yield* Metric.update(redisMetrics.localDecisions, 0)
  yield* Effect.asVoid(makeCountFailure("task"))
})

const ofProcess = Layer.merge(ProcessMetrics.layer(newestVersion), Layer.effectDiscard(Layer.build(Logging.layer)))

/** Both ports with the metrics of a process, in a registry of their own. */
const servers = Layer.provideMerge(serversOn(memory, { BUILD_REVISION: "79d1fb3" }), ofProcess).pipe(
  Layer.provide(ConfigProvider.layer(ConfigProvider.fromUnknown({ BUILD_REVISION: "79d1fb3" })))
)
const withServers = <A, E>(test: Effect.Effect<A, E, Management | Service>) =>
  test.pipe(Effect.provide(Layer.fresh(servers)), Effect.provideService(Metric.MetricRegistry, new Map()))

const metrics = Effect.flatMap(
  Management,
  ({ baseUrl }) => Effect.map(send(`${baseUrl}/metrics`, ""), ({ text }) => text)
)

describe("/metrics", () => {
  it.effect("has the names, kinds and labels of docs/monitoring.md, and no others", () =>
    Effect.gen(function*() {
      yield* registerOthers
      yield* (yield* Service).call("/v1/pets")
      const text = yield* metrics
      const exposed = [...text.matchAll(/^# TYPE (\w+) (\w+)$/gm)].map(([, name = "", kind = ""]) => [name, kind])
      assert.sameMembers(exposed.map(([name]) => name), [...described])
      for (const [, cell = "", kind = "", labels = ""] of rows) {
        if (!cell.startsWith("`petstore")) continue
        const name = cell.replaceAll("`", "")
        assert.deepInclude(exposed, [name, kind.trim()])
        const samples = text.split("\n").filter((line) => metricsIn(line.split("{")[0] ?? "").has(name))
        const own = [...samples.join().matchAll(/(\w+)="/g)].map(([, label]) => label)
        assert.sameMembers([...new Set(own)].filter((label) => label !== "le"), labels.match(/\w+/g) ?? [], name)
      }
    }).pipe(withServers))

  it.effect("starts the counters of failures and bans at 0", () =>
    Effect.gen(function*() {
      yield* registerOthers
      const text = yield* metrics
      const series = [
        ...["free", "pro", "business", "enterprise"].map((plan) => `rate_limit_bans_total{plan="${plan}"}`),
        ...["admin_token", "disabled", "expired", "malformed", "revoked", "rotated", "unknown"].map((reason) =>
          `api_key_rejections_total{reason="${reason}"}`
        ),
        ...["missing_admin_token", "invalid_admin_token"].map((code) =>
          `admin_authentication_failures_total{code="${code}"}`
        ),
        `background_failures_total{task="task"}`,
        "log_lines_dropped_total"
      ]
      for (const each of series) assert.include(text, `\npetstore_${each} 0\n`)
    }).pipe(withServers))

  it.effect("counts the decisions on keys by their plan, and those on addresses by the plan none", () =>
    Effect.gen(function*() {
      const { call } = yield* Service
      const { admin } = yield* Management
      const limits = { perMinute: 1, perDay: 9 }
      const { body: { key } } = yield* admin("POST", "/keys", { name: "a", plan: "enterprise", limits })
      yield* Effect.replicateEffect(call("/v1/pets", { key }), 6)
      yield* call("/none")
      const counts = (yield* metrics).matchAll(/^petstore_rate_limit_decisions_total(.*)$/gm).map(([, count]) => count)
      assert.sameMembers([...counts], [
        `{outcome="allowed",plan="enterprise",window="none"} 1`,
        `{outcome="rejected",plan="enterprise",window="minute"} 2`,
        `{outcome="banned",plan="enterprise",window="ban"} 3`,
        `{outcome="allowed",plan="none",window="none"} 1`
      ])
    }).pipe(withServers))

  it.effect("has no durations of requests on the management port, and the log no lines of them", () =>
    Effect.gen(function*() {
      const { admin, baseUrl, lines } = yield* Management
      yield* admin("GET", "/keys")
      for (const path of ["/readyz", "/none", "/admin/keys"]) yield* send(`${baseUrl}${path}`, "")
      const durations = "petstore_http_server_request_duration_seconds_count"
      assert.notInclude(yield* metrics, durations)
      yield* (yield* Service).call("/none")
      assert.lengthOf((yield* metrics).split(`\n${durations}`), 2)
      assert.lengthOf(lines.filter(({ message }) => message === "request"), 1)
    }).pipe(withServers))

  it.effect("has petstore_ready 1 while the database responds", () =>
    Effect.map(metrics, (text) => assert.include(text, "\npetstore_ready 1\n")).pipe(
      Effect.provide(Layer.fresh(serversOn(Layer.merge(memory, Layer.succeed(Readiness, Effect.void)))))
    ))

  it.effect("has histograms with buckets that end at the thresholds of the alerts", () =>
    Effect.gen(function*() {
      yield* registerOthers
      yield* (yield* Service).call("/none")
      const text = yield* metrics
      const name = "petstore_http_server_request_duration_seconds"
      assert.match(text, new RegExp(`^${name}_bucket\\{.*le="0.5"`, "m"))
      assert.include(text, `\npetstore_rate_limit_redis_duration_seconds_bucket{le="0.025"} `)
    }).pipe(withServers))
})
