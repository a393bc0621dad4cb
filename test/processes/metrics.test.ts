/** Tests the metrics of a process, and its log without requests. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { dataDirectory, temporaryDatabaseUrl } from "../support/Databases.ts"
import { readPage } from "../support/Documents.ts"
import { issue, metricsOf, send, start, untilTrue } from "../support/Process.ts"
import * as Prometheus from "../support/Prometheus.ts"
import * as Redis from "../support/Redis.ts"

/** Sends requests with several outcomes to a process. Returns its metrics, once the counts of the limits are stored. */
const metricsAfterRequests = Effect.fnUntraced(function*(env: Readonly<Record<string, string>>, stored: string) {
  const service = yield* start(env)
  yield* send(`${service.address}/v1/pets`, (yield* issue(service)).key)
  yield* send(`${service.address}/v1/pets`, "none")
  yield* send(`${service.management}/admin/keys`, "none")
  yield* untilTrue(Effect.map(metricsOf(service), (text) => text.includes(stored)), stored)
  const metrics = yield* metricsOf(service)
  assert.include(service.stderr(), `"message":"Admin action"`)
  assert.strictEqual(service.stderr().includes(`"message":"request"`), env.ACCESS_LOG !== "false")
  return metrics
})

const skip = !Prometheus.isInstalled || !Redis.isInstalled || process.env.TEST_DATABASE_URL === undefined

it.live.skipIf(skip)(
  "The metrics of a process match docs/monitoring.md, the alerts and the dashboard",
  () =>
    Effect.gen(function*() {
      const redis = yield* Redis.runStarted
      const shared = { DATABASE_URL: yield* temporaryDatabaseUrl, REDIS_URL: redis.url, BUILD_REVISION: "79d1fb3" }
      const texts = [
        yield* metricsAfterRequests(shared, "redis_duration_seconds"),
        yield* metricsAfterRequests({ DATA_DIR: yield* dataDirectory, ACCESS_LOG: "false" }, "write_duration_seconds")
      ]
      for (const text of texts) Prometheus.runPromtool(["check", "metrics"], text)
      const samples = [
        "process_cpu_seconds_total 0*[1-9.]",
        "process_start_time_seconds [1-9]",
        "process_resident_memory_bytes [1-9]",
        "nodejs_heap_size_used_bytes [1-9]",
        "nodejs_eventloop_lag_p99_seconds \\d",
        "nodejs_gc_duration_seconds_total \\d",
        "petstore_ready 1",
        `petstore_build_info{node="v\\d.*",revision="79d1fb3",schema_version="2",version="\\d.*"} 1`,
        `petstore_rate_limit_decisions_total{outcome="allowed",plan="enterprise"} 1`,
        `petstore_rate_limit_decisions_total{outcome="allowed",plan="none"} 1`
      ]
      for (const sample of samples) assert.match(texts[0] ?? "", new RegExp(`^${sample.replace(/[{}]/g, "\\$&")}`, "m"))

      const exposed = texts.flatMap((text) => [...text.matchAll(/^# TYPE (\S+)/gm)].map(([, name]) => name))
      const rows = [...readPage("docs/monitoring.md").matchAll(/^\| (`.*?) \|/gm)].map(([, names]) => names)
      const described = Prometheus.metricsIn(rows.join())
      assert.sameMembers([...new Set(exposed)], [...described])

      const labelsIn = (text: string) => [...text.matchAll(/(\w+)=~?"/g)].map(([, label = ""]) => label)
      // Prometheus adds the first three.
      const labels = ["job", "namespace", "instance", ...texts.flatMap(labelsIn)]
      for (const query of Prometheus.queries) {
        assert.includeMembers([...described], [...Prometheus.metricsIn(query)])
        assert.includeMembers(labels, labelsIn(query), query)
      }
    })
)
