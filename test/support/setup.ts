/** Reports the suites that this machine cannot run, and creates the directory of the database template. */
import { existsSync, mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as PgBouncer from "./PgBouncer.ts"
import * as Postgres from "./Postgres.ts"
import { missing } from "./Redis.ts"

/** The browser for the explorer page and the console. */
export const browser = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync)

/** The balancer in front of processes. */
export const haproxy = ["/usr/sbin/haproxy", "/usr/local/sbin/haproxy"].find(existsSync)

/** Only root can mount the small disk that a test fills. */
export const mayMount = process.getuid?.() === 0

/** The suites that this machine cannot run, and what enables them. */
const skipped = (): ReadonlyArray<readonly [suites: string, enabledBy: string]> => [
  ...process.env.TEST_DATABASE_URL === undefined
    ? [["suites on a PostgreSQL server", "TEST_DATABASE_URL=postgres://user@host/database"]] as const
    : [],
  ...browser === undefined ? [["the explorer page and the console", "apt-get install chromium"]] as const : [],
  ...haproxy === undefined ? [["replacement of processes behind a balancer", "apt-get install haproxy"]] as const : [],
  ...mayMount ? [] : [["a full disk", "root, who can mount a small one"]] as const,
  ...Postgres.missing === undefined
    ? []
    : [["faults of PostgreSQL", `apt-get install postgresql (${Postgres.missing})`]] as const,
  ...PgBouncer.missing === undefined
    ? []
    : [["suites behind PgBouncer", `apt-get install pgbouncer (${PgBouncer.missing})`]] as const,
  ...missing === undefined
    ? []
    : [["suites on Redis", `apt-get install redis-server libfaketime (${missing})`]] as const
]

/**
 * Fails in CI if a suite cannot run. Creates the directory of the template. The returned function runs at the end: it
 * removes the directory and prints the table of skipped suites.
 */
export default (): () => void => {
  const suites = skipped()
  const width = Math.max(0, ...suites.map(([name]) => name.length))
  const table = suites.map(([name, enabledBy]) => `  ${name.padEnd(width)}   ${enabledBy}`).join("\n")
  if (process.env.CI !== undefined && suites.length > 0) throw new Error(`Skipped suites in CI:\n${table}`)
  const templates = mkdtempSync(join(tmpdir(), "petstore-templates-"))
  process.env.TEST_TEMPLATE_DIRECTORY = templates
  return () => {
    rmSync(templates, { recursive: true, force: true })
    if (suites.length > 0) console.warn(`\nSkipped on this machine, and what enables it:\n\n${table}\n`)
  }
}
