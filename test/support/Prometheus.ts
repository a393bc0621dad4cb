/** The programs of Prometheus, and what the deployment files hold for them. */
import { Effect } from "effect"
import { execFileSync, spawn } from "node:child_process"
import { existsSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { parse } from "yaml"
import { readPage, root } from "./Documents.ts"
import { freePort, temporaryDirectory } from "./Harness.ts"

const find = (name: string): string | undefined =>
  ["/usr/bin", "/usr/local/bin"].map((directory) => join(directory, name)).find((path) => existsSync(path))

const server = find("prometheus")
const promtool = find("promtool")

/** Names the programs that are missing on this machine for suites with Prometheus. */
export const missing: string | undefined = server === undefined
  ? "there is no prometheus"
  : promtool === undefined
  ? "there is no promtool"
  : undefined

/** Runs promtool, and throws its output if it fails. */
export const runPromtool = (...args: ReadonlyArray<string>): string => execFileSync(promtool ?? "", args).toString()

export const alertsFile = join(root, "deploy/alerts.yaml")

export interface Alert {
  readonly alert: string
  readonly expr: string
  readonly labels: { readonly severity: string }
  readonly annotations: { readonly summary: string; readonly runbook_url: string }
}

export const alerts: ReadonlyArray<Alert> = parse(readPage("deploy/alerts.yaml")).groups.flatMap(
  ({ rules }: { readonly rules: ReadonlyArray<Alert> }) => rules
)

export interface Panel {
  readonly id: number
  readonly type: string
  readonly title: string
  readonly description: string
  readonly gridPos: Readonly<Record<"x" | "y" | "w" | "h", number>>
  readonly targets: ReadonlyArray<{ readonly expr: string }>
}

/** The panels of the dashboard, without the headings of its rows. */
export const panels: ReadonlyArray<Panel> = JSON.parse(readPage("deploy/grafana-dashboard.json")).panels.filter(
  ({ type }: Panel) => type !== "row"
)

/** Returns the metrics that a query or a page names, without the suffixes of histograms. */
export const metricsIn = (text: string): ReadonlySet<string> =>
  new Set(
    [...text.matchAll(/\b(?:petstore|process|nodejs)_\w+_\w+/g)].map(([name]) =>
      name.replace(/_(bucket|count|sum)$/, "")
    )
  )

/**
 * Runs a Prometheus with the configuration in docs/monitoring.md, each second, on other targets. Returns a function that
 * calls its API.
 */
export const run = Effect.fnUntraced(function*(targets: ReadonlyArray<string>) {
  const directory = yield* temporaryDirectory
  const port = yield* freePort
  const [, documented = ""] = /^```yaml\n(scrape_configs:.*?)^```/ms.exec(readPage("docs/monitoring.md")) ?? []
  const config = documented
    .replace(`["localhost:9090"]`, JSON.stringify(targets.map((target) => new URL(target).host)))
    .replace("- alerts.yaml", `- ${alertsFile}`)
  const file = join(directory, "prometheus.yml")
  writeFileSync(file, `global:\n  scrape_interval: 1s\n  evaluation_interval: 1s\n${config}`)
  yield* Effect.acquireRelease(
    Effect.sync(() =>
      spawn(server ?? "", [
        `--config.file=${file}`,
        `--storage.tsdb.path=${directory}/data`,
        `--web.listen-address=127.0.0.1:${port}`
      ], { stdio: "ignore" })
    ),
    (child) => Effect.sync(() => child.kill("SIGKILL"))
  )
  const address = `http://127.0.0.1:${port}`
  yield* Effect.promise(async () => {
    while (!await fetch(`${address}/-/ready`).then(({ ok }) => ok, () => false)) {
      await new Promise((resolve) => setTimeout(resolve, 50))
    }
  })
  return (path: string) =>
    Effect.promise(async () => {
      const response = await fetch(`${address}/api/v1/${path}`)
      return JSON.parse(await response.text())
    })
})
