/** Says which suites a machine cannot run, and fails where none may be missing. */
import { missing } from "./Redis.ts"

export default (): void => {
  const notices = [
    ...process.env.TEST_DATABASE_URL === undefined
      ? ["Suites on PostgreSQL are skipped: TEST_DATABASE_URL is not set."]
      : [],
    ...missing === undefined ? [] : [`Suites on Redis are skipped: ${missing}.`]
  ]
  if (process.env.CI !== undefined && notices.length > 0) throw new Error(notices.join("\n"))
  for (const notice of notices) console.warn(notice)
}
