import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { stringify } from "yaml"
import { readPage } from "../support/Documents.ts"
import { alerts, described, isInstalled, metricsIn, panels, rules, runPromtool } from "../support/Prometheus.ts"
import { temporaryDirectory } from "../support/Temporary.ts"

const page = readPage("docs/monitoring.md")

/** Series by their selector, as values of one sample a minute in the notation of promtool. */
type Series = Readonly<Record<string, string>>

const of = (name: string, labels = "", instance = "a"): string =>
  `${name}{job="petstore", instance="${instance}"${labels}}`

const durations = "petstore_http_server_request_duration_seconds"
const redis = "petstore_rate_limit_redis_duration_seconds"
const requests = (status: number): string => of(`${durations}_count`, `, http_response_status_code="${status}"`)
const unavailable = { [requests(503)]: "0+11x20" }
const ready = (one: string, other: string) => ({ [of("petstore_ready")]: one, [of("petstore_ready", "", "b")]: other })
const failedTask = of("petstore_background_failures_total", `, task="delete_key_limits"`)
const bans = of("petstore_rate_limit_bans_total", `, plan="free"`)
const failedLogins = of("petstore_admin_authentication_failures_total", `, code="invalid_admin_token"`)
const version = (name: string, instance: string) => of("petstore_build_info", `, version="${name}"`, instance)
const versions = (other: string): Series => ({ [version("1.0.0", "a")]: "1x40", [version(other, "b")]: "1x40" })

const histogram = (name: string, lower: string, upper: string): Series => ({
  [of(`${name}_bucket`, `, le="${lower}"`)]: "0x30",
  [of(`${name}_bucket`, `, le="${upper}"`)]: "0+60x30",
  [of(`${name}_bucket`, `, le="+Inf"`)]: "0+60x30"
})

const values = (series: string, ...each: readonly [fires: string, isSilent: string]) =>
  each.map((samples) => ({ [series]: samples })) as [Series, Series]

/**
 * For each alert the minute at which it begins to fire, a minute at which it is silent with the other series, the series
 * with which it fires, and the other ones.
 */
const cases: ReadonlyArray<
  readonly [alert: string, firesFrom: number, silentAt: number, fires: Series, isSilent: Series]
> = [
  // The processes of the namespace end, and service discovery drops them.
  ["PetstoreMissing", 10, 15, ...values(of("up"), "1x3 _x12", "1x15")],
  ["PetstoreDown", 2, 5, ...values(of("up"), "1 0x9", "1x10")],
  ["PetstoreNotReady", 2, 5, ...values(of("petstore_ready"), "1 0x9", "1 0 1x8")],
  // No request arrives during the outage.
  ["PetstoreDatabaseDown", 2, 5, { ...ready("1 0x9", "1 0x9"), [requests(200)]: "60x10" }, ready("1 0x9", "1x10")],
  // The first failure creates the series.
  ["PetstoreFails", 9, 10, ...values(requests(500), "_x8 1x12", "3x20")],
  ["PetstoreUnavailable", 3, 15, { ...unavailable, [requests(200)]: "0+989x20" }, {}],
  ["PetstoreUnavailable", 3, 15, unavailable, { ...unavailable, [requests(200)]: "0+1095x20" }],
  ["PetstoreSlow", 6, 20, histogram(durations, "0.5", "1"), histogram(durations, "0.25", "0.5")],
  ["PetstoreQueues", 2, 5, ...values(of("petstore_http_server_requests_queued"), "0 3x9", "0 3 0x8")],
  ["PetstoreEventLoopBlocked", 5, 10, ...values(of("nodejs_eventloop_lag_p99_seconds"), "0.101x10", "0.2 0.099x9")],
  ["PetstoreMemoryHigh", 10, 15, ...values(of("process_resident_memory_bytes"), "641000000x20", "639000000x20")],
  // Within 15 minutes, and not within 20.
  ["PetstoreRestarts", 14, 19, ...values(of("process_start_time_seconds"), "0 1x5 2x5 3x7", "0 1 2x14 3x5")],
  ["PetstoreVersionsDiffer", 30, 35, versions("1.1.0"), versions("1.0.0")],
  // The second series failed only once.
  ["PetstoreBackgroundFails", 11, 25, ...values(failedTask, "0+1x30", "0x10 1x20")],
  ["PetstoreCountsWithoutRedis", 2, 5, ...values(of("petstore_rate_limit_fallback"), "0 1x9", "0x10")],
  ["PetstoreRedisInterrupted", 5, 10, ...values(of("petstore_rate_limit_fallback_decisions_total"), "0x3 9x9", "9x12")],
  ["PetstoreRedisSlow", 6, 20, histogram(redis, "0.025", "0.05"), histogram(redis, "0.01", "0.025")],
  // A restart of the process resets the counter.
  ["PetstoreBans", 14, 19, ...values(bans, "0 8x10 0 8x9", "0 8x14 0 8x9")],
  ["PetstoreAdminAuthenticationFails", 14, 19, ...values(failedLogins, "0 10x11 21x9", "0 5x15 23x9")],
  ["PetstoreLogLinesDropped", 2, 10, ...values(of("petstore_log_lines_dropped_total"), "0 5x20", "0x20")]
]

const promtool = Effect.fnUntraced(function*(command: ReadonlyArray<string>, content: object) {
  const file = join(yield* temporaryDirectory, "file.yaml")
  writeFileSync(file, stringify(content))
  assert.include(runPromtool([...command, file]), "SUCCESS")
})

describe("The alert rules", () => {
  it("select the job petstore, and wait for minutes before they fire", () => {
    for (const { expr, for: wait } of alerts) {
      for (const [selector] of expr.matchAll(/\{[^}]*\}/g)) assert.include(selector, `{job="petstore"`)
      assert.match(wait, /^\d+m$/)
    }
  })

  it("link to a runbook of at least three steps, which names only panels of the dashboard", () => {
    const { homepage }: { readonly homepage: string } = JSON.parse(readPage("package/package.json"))
    const pageUrl = `${homepage.replace("#readme", "")}/blob/main/docs/monitoring.md`
    for (const { alert, annotations, labels: { severity } } of alerts) {
      assert.include(["critical", "warning", "info"], severity)
      assert.isNotEmpty(annotations.summary)
      assert.strictEqual(annotations.runbook_url, `${pageUrl}#${alert.toLowerCase()}`)
      const runbook = page.split(`\n### ${alert}\n`)[1]?.split(/^##/m)[0] ?? ""
      assert.match(runbook, new RegExp(`^\n\\*.+\\.\\* Severity: ${severity}\\.[^]*^3\\. `, "m"), alert)
      for (const [, name = ""] of runbook.matchAll(/panel "([^"]+)"/g)) {
        assert.include(panels.map(({ title }) => title), name)
      }
    }
    const runbooks = [...page.matchAll(/^### (Petstore\w+)$/gm)].map(([, name]) => name)
    assert.sameMembers(runbooks, alerts.map(({ alert }) => alert))
  })

  it.effect.skipIf(!isInstalled)("fire for their namespace alone, after the rule's time", () =>
    Effect.gen(function*() {
      assert.sameMembers([...new Set(cases.map(([alert]) => alert))], alerts.map(({ alert }) => alert))
      const inNamespace = (name: string, series: Series) =>
        Object.entries(series).map(([key, values]) => ({ series: key.replace("{", `{namespace="${name}", `), values }))
      const test = (alert: string, minute: number, production: Series, staging: Series, isFiring: boolean) => {
        const expr = `count by (namespace) (ALERTS{alertname="${alert}", alertstate="firing"})`
        const exp_samples = isFiring ? [{ labels: `{namespace="production"}`, value: 1 }] : []
        const input_series = [...inNamespace("production", production), ...inNamespace("staging", staging)]
        const promql_expr_test = [{ expr, eval_time: `${minute}m`, exp_samples }]
        return { interval: "1m", name: alert, input_series, promql_expr_test }
      }
      const tests = cases.flatMap(([alert, firesFrom, silentAt, fires, isSilent]) => [
        test(alert, firesFrom - 1, fires, isSilent, false),
        test(alert, firesFrom, fires, isSilent, true),
        test(alert, silentAt, isSilent, isSilent, false)
      ])
      // Staging is ahead of production.
      tests.push(test("PetstoreVersionsDiffer", 35, versions("1.0.0"), { [version("1.1.0", "b")]: "1x40" }, false))
      // One event keeps these alerts firing for 15 minutes.
      const once = [
        ["PetstoreRedisInterrupted", of("petstore_rate_limit_fallback_decisions_total")],
        ["PetstoreLogLinesDropped", of("petstore_log_lines_dropped_total")]
      ] as const
      for (const [alert, series] of once) {
        const event = { [series]: "0 5x20" }
        tests.push(test(alert, 14, event, {}, true), test(alert, 17, event, {}, false))
      }
      const file = join(yield* temporaryDirectory, "alerts.yaml")
      // As the overlays do.
      writeFileSync(file, stringify(rules).replace(`namespace="petstore"`, `namespace="production"`))
      yield* promtool(["test", "rules"], { rule_files: [file], evaluation_interval: "1m", tests })
    }))
})

describe("The dashboard", () => {
  it("shows each metric of docs/monitoring.md in one panel (durations in five), and only one namespace", () => {
    const shown = panels.flatMap(({ targets }) => [...metricsIn(targets.map(({ expr }) => expr).join())])
    const inLogOrAlerts = ["petstore_api_key_rejections_total", "petstore_ready"]
    assert.sameMembers([...shown, ...inLogOrAlerts], [...described, ...Array.from({ length: 4 }, () => durations)])
    for (const { expr } of panels.flatMap(({ targets }) => targets)) {
      for (const [selector] of expr.matchAll(/\{[^}]*\}/g)) assert.include(selector, `namespace="$namespace"`)
    }
  })

  it.effect.skipIf(!isInstalled)("describes each panel, and has only queries that Prometheus accepts", () => {
    for (const { description, title } of panels) assert.match(description, /^.{30,}\.$/, title)
    const rules = panels.flatMap(({ targets }) => targets).map(({ expr }, index) => (
      { record: `query_${index}`, expr: expr.replaceAll("$__rate_interval", "1m") }
    ))
    return promtool(["check", "rules"], { groups: [{ name: "panels", rules }] })
  })
})
