/** Says which suites a machine cannot run, and fails where none may be missing. */
export default (): void => {
  if (process.env.TEST_DATABASE_URL !== undefined) return
  const notice = "Suites on PostgreSQL are skipped: TEST_DATABASE_URL is not set."
  if (process.env.CI !== undefined) throw new Error(notice)
  console.warn(notice)
}
