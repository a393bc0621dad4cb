/** Tests the list of a million keys in Chromium: no task of the page and no other request waits for it. */
import { PgClient } from "@effect/sql-pg"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { launch } from "../support/Chromium.ts"
import { isProgramMissing, openConsole, signIn, startService } from "../support/ConsolePage.ts"
import { issueKey } from "../support/Harness.ts"
import * as Load from "../support/Load.ts"

const keyCount = 1_000_000

const insertKeys = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  yield* sql`INSERT INTO api_keys (id, name, hint, plan, per_minute, per_day, created_at, revoked_at)
    SELECT 'key_' || md5(n::text), 'customer ' || n, substr(md5(n::text), 1, 4), 'free', 60, 1000,
      '2026-01-01T00:00:00Z'::timestamptz + n * interval '1 second',
      CASE WHEN n % 10 = 0 THEN '2026-06-01T00:00:00Z'::timestamptz END
    FROM generate_series(1, ${keyCount}::int) n`
  // Autovacuum does this in a table that has grown.
  yield* sql`VACUUM ANALYZE api_keys`
})

const mark = "sign-in"

interface TraceEvent {
  readonly name: string
  readonly pid: number
  readonly tid: number
  /** The begin, in microseconds. */
  readonly ts: number
  /** The time on the processor, in microseconds. */
  readonly tdur?: number
}

/**
 * Returns the tasks of the page's main thread after the mark, with their time on the processor. The task of the mark
 * itself compiles the scripts of Playwright. The API `longtask` has the wall-clock time, which on a busy machine includes
 * the time of other processes.
 */
const tasksOf = (trace: Buffer): ReadonlyArray<{ readonly cpuMs: number }> => {
  const { traceEvents }: { readonly traceEvents: ReadonlyArray<TraceEvent> } = JSON.parse(trace.toString())
  const page = traceEvents.find(({ name }) => name === mark)
  return traceEvents
    .filter(({ name, pid, tid, ts }) =>
      name === "RunTask" && page !== undefined && pid === page.pid && tid === page.tid && ts > page.ts
    )
    .map(({ tdur = 0 }) => ({ cpuMs: Math.round(tdur / 1_000) }))
}

describe.skipIf(isProgramMissing)("The console with a million keys", () => {
  it.live(
    "pages, filters and searches without a task over 50 ms, while the service answers other requests",
    () =>
      Effect.gen(function*() {
        const { address, databaseUrl, management } = yield* startService
        const database = PgClient.layer({ url: Redacted.make(databaseUrl) })
        yield* Effect.provide(insertKeys, database)
        const secret = yield* issueKey(database)
        const running = yield* launch()

        const browse = Effect.promise(async () => {
          const { errors, page } = await openConsole(running, management)
          await running.startTracing(page, {
            categories: ["disabled-by-default-devtools.timeline", "blink.user_timing"]
          })
          await page.evaluate(`performance.mark("${mark}")`)
          await signIn(page)
          const shown = (text: string) =>
            page.getByRole("link", { name: text, exact: true }).waitFor({ timeout: 60_000 })
          const took = async (name: string, action: Promise<unknown>): Promise<void> => {
            const begin = performance.now()
            await action
            console.info(`${name}: ${Math.round(performance.now() - begin)} ms`)
          }
          await took("the first page", shown("customer 1"))
          for (let pageNumber = 1; pageNumber <= 20; pageNumber++) {
            await page.getByRole("button", { name: "Next" }).click()
            await shown(`customer ${pageNumber * 20 + 1}`)
          }
          await page.getByRole("button", { name: "Previous" }).click()
          await shown("customer 381")
          const search = page.getByLabel("Search keys")
          await search.pressSequentially("customer 99", { delay: 30 })
          await took("a common text", shown("customer 99"))
          await search.fill(`customer ${keyCount}`)
          await took("a rare text, which needs all keys", shown(`customer ${keyCount}`))
          await search.fill("nowhere")
          await took("a text of no key", page.getByText("No key meets the filter.").waitFor({ timeout: 60_000 }))
          await search.fill("")
          await page.getByLabel("State").selectOption("revoked")
          await took("revoked keys", shown("customer 10"))

          const tasks = tasksOf(await running.stopTracing())
          assert.isAbove(tasks.length, 1_000)
          console.info(`The longest task: ${Math.max(...tasks.map(({ cpuMs }) => cpuMs))} ms`)
          assert.deepStrictEqual(tasks.filter(({ cpuMs }) => cpuMs > 50), [])
          assert.deepStrictEqual(errors, [])
        })
        const { latenciesMs } = yield* Load.readDuring({ address, key: secret, pauseMs: 20 }, browse)
        const sorted = latenciesMs.toSorted((a, b) => a - b)
        console.info(`${latenciesMs.length} other requests, the slowest ${Math.round(sorted.at(-1) ?? 0)} ms`)
        assert.isAbove(latenciesMs.length, 50)
        // The median shows the event loop; a single request may wait for the processor, which the search uses as well.
        assert.isBelow(sorted[Math.floor(sorted.length / 2)] ?? Infinity, 50)
      }),
    300_000
  )
})
