/** Tests the metrics of running processes: their names, their labels and their format. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { readPage } from "../support/Documents.ts"
import { dataDirectory, temporaryDatabaseUrl, unlimitedKeyOptions } from "../support/Harness.ts"
import { start } from "../support/Process.ts"
import * as Prometheus from "../support/Prometheus.ts"
import * as Redis from "../support/Redis.ts"

const ADMIN_TOKEN = "adm_0123456789abcdefghijklmnopqrstuvwxyz"

const send = (url: string, token: string, body?: unknown) =>
  Effect.promise(async () => {
    const response = await fetch(url, {
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      ...body !== undefined && { method: "POST", body: JSON.stringify(body) }
    })
    return response.text()
  })

/** Sends requests with several outcomes to a process. Returns its metrics, once the counts of the limits are stored. */
const metricsOf = Effect.fnUntraced(function*(env: Readonly<Record<string, string>>, stored: string) {
  const { address, management } = yield* start({ ...env, DATA_DIR: yield* dataDirectory, ADMIN_TOKEN })
  const { key }: { readonly key: string } = JSON.parse(
    yield* send(`${management}/admin/keys`, ADMIN_TOKEN, unlimitedKeyOptions)
  )
  yield* send(`${address}/v1/pets`, key)
  yield* send(`${address}/v1/pets`, "none")
  yield* send(`${management}/admin/keys`, "none")
  return yield* Effect.repeat(send(`${management}/metrics`, ""), { until: (text) => text.includes(stored) })
})

const skip = Prometheus.missing !== undefined || Redis.missing !== undefined ||
  process.env.TEST_DATABASE_URL === undefined

describe.skipIf(skip)("The metrics of a process", () => {
  it.live(
    "are those of docs/monitoring.md, with the labels of the alerts and the dashboard",
    () =>
      Effect.gen(function*() {
        const redis = yield* Redis.run
        yield* redis.start
        const texts = yield* Effect.all([
          metricsOf({ DATABASE_URL: yield* temporaryDatabaseUrl, REDIS_URL: redis.url }, "redis_duration_seconds"),
          metricsOf({}, "write_duration_seconds")
        ], { concurrency: 2 })
        for (const text of texts) Prometheus.runPromtool(["check", "metrics"], text)

        const exposed = new Set(
          texts.flatMap((text) => [...text.matchAll(/^# TYPE (\S+)/gm)].map(([, name = ""]) => name))
        )
        const rows = [...readPage("docs/monitoring.md").matchAll(/^\| (`.*?) \|/gm)]
        const described = new Set(rows.flatMap(([, names = ""]) => [...Prometheus.metricsIn(names)]))
        assert.deepStrictEqual([...exposed.symmetricDifference(described)], [])

        const labelsIn = (text: string) => [...text.matchAll(/(\w+)=~?"/g)].map(([, label = ""]) => label)
        // Prometheus adds the first two.
        const labels = new Set(["job", "instance", ...texts.flatMap(labelsIn)])
        const queries = [...Prometheus.alerts, ...Prometheus.panels.flatMap(({ targets }) => targets)]
        for (const { expr } of queries) assert.isEmpty(labelsIn(expr).filter((label) => !labels.has(label)), expr)
      }),
    120_000
  )
})
