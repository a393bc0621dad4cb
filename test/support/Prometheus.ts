/** Prometheus's promtool, and the alerts and panels of the deployment files. */
import { execFileSync } from "node:child_process"
import { existsSync } from "node:fs"
import { parse } from "yaml"
import { readPage } from "./Documents.ts"

const promtool = ["/usr/bin/promtool", "/usr/local/bin/promtool"].find(existsSync)

export const isInstalled = promtool !== undefined

export const runPromtool = (args: ReadonlyArray<string>, input = ""): string =>
  execFileSync(promtool ?? "", args, { input }).toString()

type Texts<Name extends string> = Readonly<Record<Name, string>>
type Alert =
  & Texts<"alert" | "expr" | "for">
  & Readonly<{ labels: Texts<"severity">; annotations: Texts<"summary" | "runbook_url"> }>

/** The content of the file that Prometheus reads without its operator. */
export const rules: { readonly groups: ReadonlyArray<{ readonly rules: ReadonlyArray<Alert> }> } =
  parse(readPage("deploy/kubernetes/base/alerts.yaml")).spec

export const alerts = rules.groups.flatMap((group) => group.rules)

type Panel = Texts<"type" | "title" | "description"> & { readonly targets: ReadonlyArray<Texts<"expr">> }

const dashboard: { readonly panels: ReadonlyArray<Panel> } = JSON.parse(readPage("deploy/grafana-dashboard.json"))
/** The panels of the dashboard, without the headings of its rows. */
export const panels = dashboard.panels.filter(({ type }) => type !== "row")

export const queries = [...alerts, ...panels.flatMap(({ targets }) => targets)].map(({ expr }) => expr)

/** Returns the metrics that a query or a page names, without the suffixes of histograms. */
export const metricsIn = (text: string): ReadonlySet<string> =>
  new Set(text.match(/\b(?:petstore|process|nodejs)_\w+/g)?.map((name) => name.replace(/_(bucket|count|sum)$/, "")))

/** The first columns of the tables of metrics in the page. The metrics of the process have no kind and no labels. */
export const rows = [
  ...readPage("docs/monitoring.md").matchAll(/^\| (`(?:petstore|process|nodejs)_[^|]*) \| ([^|]*) \|([^|]*)/gm)
]

export const described = metricsIn(rows.map(([, names]) => names).join())
