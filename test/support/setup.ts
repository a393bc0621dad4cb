/** Reports the suites that this machine cannot run, and creates the directory of the database template. */
import { existsSync, mkdtempSync, rmSync } from "node:fs"
import { join } from "node:path"
import * as PgBouncer from "./PgBouncer.ts"
import * as Postgres from "./Postgres.ts"
import * as Prometheus from "./Prometheus.ts"
import * as Redis from "./Redis.ts"
import { inMemory } from "./Temporary.ts"

export const browser = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync)

export const haproxy = ["/usr/sbin/haproxy", "/usr/local/sbin/haproxy"].find(existsSync)

/** The suites, whether this machine can run them, and what enables them. */
const suites: ReadonlyArray<readonly [name: string, canRun: boolean, enabledBy: string]> = [
  ["PostgreSQL", process.env.TEST_DATABASE_URL !== undefined, "TEST_DATABASE_URL=postgres://user@host/database"],
  ["the explorer page and the console", browser !== undefined, "apt-get install chromium"],
  ["replacement of processes behind a balancer", haproxy !== undefined, "apt-get install haproxy"],
  ["a full disk", process.getuid?.() === 0, "root, who can mount a small one"],
  ["faults of PostgreSQL", Postgres.isInstalled, "apt-get install postgresql"],
  ["suites behind PgBouncer", PgBouncer.isInstalled, "apt-get install pgbouncer"],
  ["suites on Redis", Redis.isInstalled, "apt-get install redis-server libfaketime"],
  ["alerts, dashboard and metrics", Prometheus.isInstalled, "promtool, from Debian's package prometheus"]
]

/** Fails in CI if a suite cannot run. The returned function runs at the end, and prints the table of skipped suites. */
export default (): () => void => {
  const skipped = suites.filter(([, canRun]) => !canRun)
  const table = skipped.map(([name, , enabledBy]) => `  ${name.padEnd(42)}   ${enabledBy}`).join("\n")
  if (process.env.CI !== undefined && skipped.length > 0) throw new Error(`Skipped suites in CI:\n${table}`)
  const templates = mkdtempSync(join(inMemory, "petstore-templates-"))
  process.env.TEST_TEMPLATE_DIRECTORY = templates
  return () => {
    rmSync(templates, { recursive: true, force: true })
    if (skipped.length > 0) console.warn(`\nSkipped on this machine, and what enables it:\n\n${table}\n`)
  }
}
