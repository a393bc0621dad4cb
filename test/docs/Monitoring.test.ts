/** Tests the alert rules and the dashboard: their runbooks and descriptions, and when each rule fires. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { stringify } from "yaml"
import { anchorsOf, readPage } from "../support/Documents.ts"
import { temporaryDirectory } from "../support/Harness.ts"
import { alerts, alertsFile, metricsIn, missing, panels, runPromtool } from "../support/Prometheus.ts"

const page = readPage("docs/monitoring.md")

/** Series by their selector, as values of one sample a minute in the notation of promtool. */
type Series = Readonly<Record<string, string>>

interface Case {
  readonly fires: Series
  readonly isSilent: ReadonlyArray<Series>
  /** The time of the evaluation. */
  readonly at: string
}

const requests = (status: number): string =>
  `petstore_http_server_request_duration_seconds_count{instance="a", http_response_status_code="${status}"}`

/** A histogram in which all requests take between two bounds, and those between them. */
const histogram = (name: string, lower: string, upper: string): Series => ({
  [`${name}_bucket{instance="a", le="${lower}"}`]: "0x30",
  [`${name}_bucket{instance="a", le="${upper}"}`]: "0+60x30",
  [`${name}_bucket{instance="a", le="+Inf"}`]: "0+60x30"
})

const a = `{job="petstore", instance="a"}`
const lag = `nodejs_eventloop_lag_seconds{job="petstore", instance="a", quantile="0.99"}`
const durations = "petstore_http_server_request_duration_seconds"
const redisDurations = "petstore_rate_limit_redis_duration_seconds"
const bans = `petstore_rate_limit_bans_total{instance="a", plan="free"}`
const failedLogins = `petstore_admin_authentication_failures_total{instance="a", code="invalid_admin_token"}`
const failedTask = `petstore_background_failures_total{instance="a", task="delete_rate_limits"}`

const cases: Readonly<Record<string, Case>> = {
  PetstoreDown: { fires: { [`up${a}`]: "1 0x9" }, isSilent: [{ [`up${a}`]: "1x10" }], at: "5m" },
  PetstoreFails: {
    // The first failure creates the series.
    fires: { [requests(200)]: "0+60x20", [requests(500)]: "_x8 1x12" },
    isSilent: [{ [requests(200)]: "0+60x20", [requests(500)]: "3x20" }],
    at: "10m"
  },
  PetstoreUnavailable: {
    fires: { [requests(200)]: "0+95x20", [requests(503)]: "0+5x20" },
    isSilent: [{ [requests(200)]: "0+995x20", [requests(503)]: "0+5x20" }],
    at: "15m"
  },
  PetstoreSlow: {
    fires: histogram(durations, "0.5", "1"),
    isSilent: [histogram(durations, "0.1", "0.25")],
    at: "20m"
  },
  PetstoreQueues: {
    fires: { [`petstore_http_server_requests_queued{instance="a"}`]: "0 3x9" },
    isSilent: [{ [`petstore_http_server_requests_queued{instance="a"}`]: "0 3 0x8" }],
    at: "5m"
  },
  PetstoreEventLoopBlocked: { fires: { [lag]: "0.2x10" }, isSilent: [{ [lag]: "0.2 0.01x9" }], at: "10m" },
  PetstoreMemoryHigh: {
    fires: { [`process_resident_memory_bytes${a}`]: "700000000x20" },
    isSilent: [{ [`process_resident_memory_bytes${a}`]: "500000000x20" }],
    at: "15m"
  },
  PetstoreRestarts: {
    fires: { [`process_start_time_seconds${a}`]: "0 120 240 360x7" },
    isSilent: [{ [`process_start_time_seconds${a}`]: "0 120 240x8" }],
    at: "5m"
  },
  PetstoreVersionsDiffer: {
    fires: {
      [`petstore_build_info{instance="a", version="1.0.0"}`]: "1x40",
      [`petstore_build_info{instance="b", version="1.1.0"}`]: "1x40"
    },
    isSilent: [{
      [`petstore_build_info{instance="a", version="1.0.0"}`]: "1x40",
      [`petstore_build_info{instance="b", version="1.0.0"}`]: "1x40"
    }],
    at: "35m"
  },
  PetstoreBackgroundFails: {
    fires: { [failedTask]: "0+1x30" },
    // The second task failed only once.
    isSilent: [{ [failedTask]: "0x30" }, { [failedTask]: "0x10 1x20" }],
    at: "25m"
  },
  PetstoreCountsWithoutRedis: {
    fires: { [`petstore_rate_limit_fallback{instance="a"}`]: "0 1x9" },
    isSilent: [{ [`petstore_rate_limit_fallback{instance="a"}`]: "0x10" }],
    at: "5m"
  },
  PetstoreRedisSlow: {
    fires: histogram(redisDurations, "0.025", "0.05"),
    isSilent: [histogram(redisDurations, "0.001", "0.0025")],
    at: "20m"
  },
  PetstoreBans: {
    // A restart of the process resets the counter.
    fires: { [bans]: "0x5 8x5 0 8x9" },
    isSilent: [{ [bans]: "0x5 8x15" }],
    at: "16m"
  },
  PetstoreAdminAuthenticationFails: {
    fires: { [failedLogins]: "0 30x20" },
    // The second failures are old.
    isSilent: [{ [failedLogins]: "0 15x20" }, { [failedLogins]: "30x20" }],
    at: "10m"
  },
  PetstoreLogLinesDropped: {
    fires: { [`petstore_log_lines_dropped_total{instance="a"}`]: "0 5x20" },
    isSilent: [{ [`petstore_log_lines_dropped_total{instance="a"}`]: "0x20" }],
    at: "10m"
  }
}

/** The text of the section of the runbook. */
const runbook = (alert: string): string => page.split(`\n### ${alert}\n`)[1]?.split(/^##/m)[0] ?? ""

describe("The alert rules", () => {
  it("have a severity, and a URL that leads to a runbook with its meaning and at least three steps", () => {
    assert.isAbove(alerts.length, 10)
    const { homepage }: { readonly homepage: string } = JSON.parse(readPage("package/package.json"))
    const anchors = anchorsOf(page)
    for (const { alert, annotations, labels } of alerts) {
      assert.include(["critical", "warning", "info"], labels.severity)
      assert.isNotEmpty(annotations.summary)
      const anchor = alert.toLowerCase()
      assert.strictEqual(
        annotations.runbook_url,
        `${homepage.replace("#readme", "")}/blob/main/docs/monitoring.md#${anchor}`
      )
      assert.include(anchors, anchor)
      assert.match(runbook(alert), /^\n\*.+\.\* Severity: \w+\./)
      assert.include(runbook(alert), `Severity: ${labels.severity}.`)
      assert.match(runbook(alert), /^3\. /m, alert)
    }
  })

  it("each have a runbook, and each runbook has its rule", () => {
    const runbooks = [...page.matchAll(/^### (Petstore\w+)$/gm)].map(([, name]) => name)
    assert.sameMembers(runbooks, alerts.map(({ alert }) => alert))
  })

  it.effect.skipIf(missing !== undefined)("fire in their case, and are silent otherwise", () =>
    Effect.gen(function*() {
      assert.sameMembers(Object.keys(cases), alerts.map(({ alert }) => alert))
      const test = (alert: string, series: Series, at: string, firing: boolean) => ({
        interval: "1m",
        name: alert,
        input_series: Object.entries(series).map(([name, values]) => ({ series: name, values })),
        promql_expr_test: [{
          expr: `count(ALERTS{alertname="${alert}", alertstate="firing"})`,
          eval_time: at,
          exp_samples: firing ? [{ labels: "{}", value: 1 }] : []
        }]
      })
      const tests = Object.entries(cases).flatMap(([alert, { at, fires, isSilent }]) => [
        test(alert, fires, at, true),
        ...isSilent.map((series) => test(alert, series, at, false))
      ])
      const file = join(yield* temporaryDirectory, "tests.yaml")
      writeFileSync(file, stringify({ rule_files: [alertsFile], evaluation_interval: "1m", tests }))
      assert.include(runPromtool("test", "rules", file), "SUCCESS")
    }))
})

describe("The dashboard", () => {
  it("has panels that each say in a sentence what they show", () => {
    assert.isAbove(panels.length, 15)
    for (const { description, title } of panels) assert.match(description, /^.{30,}\.$/, title)
  })

  it("has panels with different ids that do not overlap", () => {
    assert.strictEqual(new Set(panels.map(({ id }) => id)).size, panels.length)
    const cells = panels.flatMap(({ gridPos: { h, w, x, y } }) =>
      Array.from({ length: w * h }, (_, index) => `${x + index % w} ${y + Math.floor(index / w)}`)
    )
    assert.strictEqual(new Set(cells).size, cells.length)
  })
})

describe("The alert rules and the dashboard", () => {
  it("name only metrics that docs/monitoring.md describes", () => {
    const described = new Set([...page.matchAll(/^\| (`.*?) \|/gm)].flatMap(([, names = ""]) => [...metricsIn(names)]))
    assert.isAbove(described.size, 20)
    const queries = [...alerts, ...panels.flatMap(({ targets }) => targets)].map(({ expr }) => expr)
    for (const query of queries) {
      for (const name of metricsIn(query)) assert.isTrue(described.has(name), name)
    }
  })
})
