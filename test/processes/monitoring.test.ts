/** Tests the metrics of running processes: their names, their labels and their format. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { readPage } from "../support/Documents.ts"
import { dataDirectory, temporaryDatabaseUrl } from "../support/Harness.ts"
import { issue, send, start } from "../support/Process.ts"
import * as Prometheus from "../support/Prometheus.ts"
import * as Redis from "../support/Redis.ts"

/** Sends requests with several outcomes to a process. Returns its metrics, once the counts of the limits are stored. */
const metricsOf = Effect.fnUntraced(function*(env: Readonly<Record<string, string>>, stored: string) {
  const service = yield* start(env)
  yield* send(`${service.address}/v1/pets`, (yield* issue(service)).key)
  yield* send(`${service.address}/v1/pets`, "none")
  yield* send(`${service.management}/admin/keys`, "none")
  const metrics = Effect.map(send(`${service.management}/metrics`, ""), ({ text }) => text)
  return yield* Effect.repeat(metrics, { until: (text) => text.includes(stored) })
})

const skip = Prometheus.missing !== undefined || Redis.missing !== undefined ||
  process.env.TEST_DATABASE_URL === undefined

describe.skipIf(skip)("The metrics of a process", () => {
  it.live("are those of docs/monitoring.md, with the labels of the alerts and the dashboard", () =>
    Effect.gen(function*() {
      const redis = yield* Redis.run
      yield* redis.start
      const shared = { DATABASE_URL: yield* temporaryDatabaseUrl, REDIS_URL: redis.url }
      const texts = [
        yield* metricsOf(shared, "redis_duration_seconds"),
        yield* metricsOf({ DATA_DIR: yield* dataDirectory }, "write_duration_seconds")
      ]
      for (const text of texts) Prometheus.runPromtool(["check", "metrics"], text)

      const exposed = texts.flatMap((text) => [...text.matchAll(/^# TYPE (\S+)/gm)].map(([, name]) => name))
      const rows = [...readPage("docs/monitoring.md").matchAll(/^\| (`.*?) \|/gm)].map(([, names]) => names)
      const described = Prometheus.metricsIn(rows.join())
      assert.sameMembers([...new Set(exposed)], [...described])

      const labelsIn = (text: string) => [...text.matchAll(/(\w+)=~?"/g)].map(([, label = ""]) => label)
      // Prometheus adds the first two.
      const labels = ["job", "instance", ...texts.flatMap(labelsIn)]
      for (const query of Prometheus.queries) {
        assert.includeMembers([...described], [...Prometheus.metricsIn(query)])
        assert.includeMembers(labels, labelsIn(query), query)
      }
    }))
})
