/** Tests the alert rules and the dashboard: their runbooks and descriptions, and when each rule fires. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { stringify } from "yaml"
import { anchorsOf, readPage } from "../support/Documents.ts"
import { temporaryDirectory } from "../support/Harness.ts"
import { alerts, alertsFile, metricsIn, missing, panels, queries, runPromtool } from "../support/Prometheus.ts"

const page = readPage("docs/monitoring.md")

/** Series by their selector, as values of one sample a minute in the notation of promtool. */
type Series = Readonly<Record<string, string>>

interface Case {
  readonly fires: ReadonlyArray<Series>
  readonly isSilent: ReadonlyArray<Series>
  /** The time of the evaluation. */
  readonly at: string
}

/** A series of one process. */
const of = (name: string, labels = "", instance = "a"): string =>
  `${name}{job="petstore", instance="${instance}"${labels}}`

const durations = "petstore_http_server_request_duration_seconds"
const requests = (status: number): string => of(`${durations}_count`, `, http_response_status_code="${status}"`)

/** A histogram in which all requests take between two bounds, which are those of `fires` or of `isSilent`. */
const takes = (
  name: string,
  ...cases: readonly [fires: readonly [string, string], isSilent: readonly [string, string]]
) => {
  const [fires, isSilent] = cases.map(([lower, upper]): Series => ({
    [of(`${name}_bucket`, `, le="${lower}"`)]: "0x30",
    [of(`${name}_bucket`, `, le="${upper}"`)]: "0+60x30",
    [of(`${name}_bucket`, `, le="+Inf"`)]: "0+60x30"
  }))
  return { fires: [fires ?? {}], isSilent: [isSilent ?? {}], at: "20m" }
}

/** A metric that has the values of `fires` or of `isSilent`. */
const values = (series: string, at: string, fires: string, isSilent: string): Case => ({
  fires: [{ [series]: fires }],
  isSilent: [{ [series]: isSilent }],
  at
})
const versions = (other: string): Series => ({
  [of("petstore_build_info", `, version="1.0.0"`)]: "1x40",
  [of("petstore_build_info", `, version="${other}"`, "b")]: "1x40"
})
const failedTask = of("petstore_background_failures_total", `, task="delete_rate_limits"`)
const failedLogins = of("petstore_admin_authentication_failures_total", `, code="invalid_admin_token"`)

const cases: Readonly<Record<string, Case>> = {
  // The second series is that of another job.
  PetstoreDown: { fires: [{ [of("up")]: "1 0x9" }, { up: "1x10" }], isSilent: [{ [of("up")]: "1x10" }], at: "5m" },
  PetstoreNotReady: values(of("petstore_ready"), "5m", "1 0x9", "1 0 1x8"),
  PetstoreDatabaseDown: {
    // No request arrives during the outage.
    fires: [{ [of("petstore_ready")]: "1 0x9", [of("petstore_ready", "", "b")]: "1 0x9", [requests(200)]: "60x10" }],
    isSilent: [{ [of("petstore_ready")]: "1 0x9", [of("petstore_ready", "", "b")]: "1x10" }],
    at: "5m"
  },
  PetstoreFails: {
    // The first failure creates the series.
    fires: [{ [requests(200)]: "0+60x20", [requests(500)]: "_x8 1x12" }],
    isSilent: [{ [requests(200)]: "0+60x20", [requests(500)]: "3x20" }],
    at: "10m"
  },
  PetstoreUnavailable: {
    fires: [{ [requests(200)]: "0+95x20", [requests(503)]: "0+5x20" }, { [requests(503)]: "0+5x20" }],
    isSilent: [{ [requests(200)]: "0+995x20", [requests(503)]: "0+5x20" }],
    at: "15m"
  },
  PetstoreSlow: takes(durations, ["0.5", "1"], ["0.1", "0.25"]),
  PetstoreQueues: values(of("petstore_http_server_requests_queued"), "5m", "0 3x9", "0 3 0x8"),
  PetstoreEventLoopBlocked: values(of("nodejs_eventloop_lag_p99_seconds"), "10m", "0.2x10", "0.2 0.01x9"),
  PetstoreMemoryHigh: values(of("process_resident_memory_bytes"), "15m", "700000000x20", "500000000x20"),
  PetstoreRestarts: values(of("process_start_time_seconds"), "6m", "0 120 240 360x7", "0 120 240x8"),
  PetstoreVersionsDiffer: { fires: [versions("1.1.0")], isSilent: [versions("1.0.0")], at: "35m" },
  // The second task failed only once.
  PetstoreBackgroundFails: values(failedTask, "25m", "0+1x30", "0x10 1x20"),
  PetstoreCountsWithoutRedis: values(of("petstore_rate_limit_fallback"), "5m", "0 1x9", "0x10"),
  PetstoreRedisSlow: takes("petstore_rate_limit_redis_duration_seconds", ["0.025", "0.05"], ["0.001", "0.0025"]),
  // A restart of the process resets the counter.
  PetstoreBans: values(of("petstore_rate_limit_bans_total", `, plan="free"`), "17m", "0x5 8x5 0 8x9", "0x5 8x15"),
  PetstoreAdminAuthenticationFails: values(failedLogins, "10m", "0 30x20", "0 15x20"),
  PetstoreLogLinesDropped: values(of("petstore_log_lines_dropped_total"), "10m", "0 5x20", "0x20")
}

const described = metricsIn([...page.matchAll(/^\| (`.*?) \|/gm)].map(([, names]) => names).join())

/** Writes a file of promtool and runs a command on it. */
const promtool = Effect.fnUntraced(function*(command: ReadonlyArray<string>, content: object) {
  const file = join(yield* temporaryDirectory, "file.yaml")
  writeFileSync(file, stringify(content))
  assert.include(runPromtool([...command, file]), "SUCCESS")
})

describe("The alert rules", () => {
  it("select the job, wait before they fire, and lead to a runbook with at least three steps", () => {
    const { homepage }: { readonly homepage: string } = JSON.parse(readPage("package/package.json"))
    for (const { alert, annotations, expr, for: wait, labels: { severity } } of alerts) {
      for (const [selector] of expr.matchAll(/\{[^}]*\}/g)) assert.include(selector, `{job="petstore"`, alert)
      assert.match(wait, /^\d+m$/, alert)
      assert.include(["critical", "warning", "info"], severity)
      assert.isNotEmpty(annotations.summary)
      const anchor = alert.toLowerCase()
      const url = `${homepage.replace("#readme", "")}/blob/main/docs/monitoring.md#${anchor}`
      assert.strictEqual(annotations.runbook_url, url)
      assert.include(anchorsOf(page), anchor)
      const runbook = page.split(`\n### ${alert}\n`)[1]?.split(/^##/m)[0] ?? ""
      assert.match(runbook, new RegExp(`^\n\\*.+\\.\\* Severity: ${severity}\\.[^]*^3\\. `, "m"), alert)
    }
    const runbooks = [...page.matchAll(/^### (Petstore\w+)$/gm)].map(([, name]) => name)
    assert.sameMembers(runbooks, alerts.map(({ alert }) => alert))
  })

  it.effect.skipIf(missing !== undefined)("fire in their case, and are silent otherwise", () => {
    assert.sameMembers(Object.keys(cases), alerts.map(({ alert }) => alert))
    const test = (alert: string, series: Series, at: string, isFiring: boolean) => ({
      interval: "1m",
      name: alert,
      input_series: Object.entries(series).map(([name, samples]) => ({ series: name, values: samples })),
      promql_expr_test: [{
        expr: `count(ALERTS{alertname="${alert}", alertstate="firing"})`,
        eval_time: at,
        exp_samples: isFiring ? [{ labels: "{}", value: 1 }] : []
      }]
    })
    const tests = Object.entries(cases).flatMap(([alert, { at, fires, isSilent }]) => [
      ...fires.map((series) => test(alert, series, at, true)),
      ...isSilent.map((series) => test(alert, series, at, false))
    ])
    return promtool(["test", "rules"], { rule_files: [alertsFile], evaluation_interval: "1m", tests })
  })

  it("name only metrics that docs/monitoring.md describes, like the dashboard", () => {
    for (const query of queries) assert.includeMembers([...described], [...metricsIn(query)])
  })
})

describe("The dashboard", () => {
  it.effect.skipIf(missing !== undefined)("has panels with a description, and queries that Prometheus can read", () => {
    for (const { description, title } of panels) assert.match(description, /^.{30,}\.$/, title)
    const expressions = panels.flatMap(({ targets }) => targets.map(({ expr }) => expr))
    const rules = expressions.map((expr, index) => {
      return { record: `query_${index}`, expr: expr.replaceAll("$__rate_interval", "1m") }
    })
    return promtool(["check", "rules"], { groups: [{ name: "panels", rules }] })
  })
})
