/** Says which suites a machine cannot run, and fails where none may be missing. */
import { existsSync } from "node:fs"
import * as Postgres from "./Postgres.ts"
import { missing } from "./Redis.ts"

/** A browser to look at the explorer page with. */
export const browser = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync)

/** A balancer to put processes behind. */
export const haproxy = ["/usr/sbin/haproxy", "/usr/local/sbin/haproxy"].find(existsSync)

/** To fill a disk takes one of its own. */
export const mayMount = process.getuid?.() === 0

export default (): void => {
  const notices = [
    ...process.env.TEST_DATABASE_URL === undefined
      ? ["Suites on PostgreSQL are skipped: TEST_DATABASE_URL is not set."]
      : [],
    ...browser === undefined ? ["The explorer page is skipped: there is no Chromium."] : [],
    ...haproxy === undefined ? ["The replacement of processes behind a balancer is skipped: there is no haproxy."] : [],
    ...mayMount ? [] : ["The full disk is skipped: only root may mount one."],
    ...Postgres.missing === undefined ? [] : [`Suites on a PostgreSQL that fails are skipped: ${Postgres.missing}.`],
    ...missing === undefined ? [] : [`Suites on Redis are skipped: ${missing}.`]
  ]
  if (process.env.CI !== undefined && notices.length > 0) throw new Error(notices.join("\n"))
  for (const notice of notices) console.warn(notice)
}
