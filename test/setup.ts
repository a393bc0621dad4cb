/** Says which suites a machine cannot run, and fails where none may be missing. */
import { existsSync } from "node:fs"
import { missing } from "./Redis.ts"

/** A browser to look at the explorer page with. */
export const browser = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync)

export default (): void => {
  const notices = [
    ...process.env.TEST_DATABASE_URL === undefined
      ? ["Suites on PostgreSQL are skipped: TEST_DATABASE_URL is not set."]
      : [],
    ...browser === undefined ? ["The explorer page is skipped: there is no Chromium."] : [],
    ...missing === undefined ? [] : [`Suites on Redis are skipped: ${missing}.`]
  ]
  if (process.env.CI !== undefined && notices.length > 0) throw new Error(notices.join("\n"))
  for (const notice of notices) console.warn(notice)
}
