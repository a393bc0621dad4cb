/** Tests the management port of a process, its metrics, and revocation in another process. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { dataDirectory, temporaryDatabaseUrl } from "../support/Databases.ts"
import { readPage } from "../support/Documents.ts"
import { adminToken, issue, metricsOf, send, sendAdmin, start } from "../support/Process.ts"
import * as Prometheus from "../support/Prometheus.ts"
import * as Redis from "../support/Redis.ts"

describe("The management port", () => {
  it.live("requires its token, and serves no path of the API port", () =>
    Effect.gen(function*() {
      const { address, management } = yield* start({ DATA_DIR: yield* dataDirectory, BUILD_REVISION: "79d1fb3" })
      assert.match(management, /^http:\/\/127\.0\.0\.1:/)
      const responses = [
        [`${management}/admin/keys`, adminToken, [{ name: "first key" }]],
        [`${management}/admin/keys`, "", { code: "missing_admin_token" }],
        [`${management}/readyz`, "", { status: "ready" }],
        [`${management}/healthz`, "", { revision: "79d1fb3" }],
        ...["/admin/keys", "/healthz", "/readyz", "/metrics"].map((path) =>
          [address + path, adminToken, { code: "not_found" }] as const
        ),
        [`${management}/v1/pets`, adminToken, { code: "not_found" }]
      ] as const
      for (const [url, token, body] of responses) assert.containsSubset((yield* send(url, token)).body, body, url)

      for (let id = 0; id < 3; id++) yield* send(`${address}/v1/pets/${id}`, "none")
      const labels = `http_request_method="GET",http_route="/v1/pets/:petId",http_response_status_code="401"`
      const { text } = yield* send(`${management}/metrics`, "")
      assert.include(text, `petstore_http_server_request_duration_seconds_count{${labels}} 3`)
    }))
})

describe.skipIf(process.env.TEST_DATABASE_URL === undefined)("Two processes on one PostgreSQL", () => {
  it.live("reject a key within a second after another process revoked it, and fail no other request", () =>
    Effect.gen(function*() {
      const env = { DATABASE_URL: yield* temporaryDatabaseUrl }
      const [one, two] = [yield* start(env), yield* start(env)]
      const valid = yield* issue(one)
      const statusOf = (key: string) => Effect.map(send(`${two.address}/v1/pets`, key), ({ status }) => status)
      const statuses = new Set<number>()
      const load = Effect.forever(Effect.map(statusOf(valid.key), (status) => statuses.add(status)))
      const revocation = Effect.gen(function*() {
        const revoked = yield* issue(one)
        assert.strictEqual(yield* statusOf(revoked.key), 200)
        yield* sendAdmin(one, "DELETE", `/keys/${revoked.id}`)
        const revokedAt = performance.now()
        let status = 200
        while (status === 200) {
          const sentAt = performance.now()
          status = yield* statusOf(revoked.key)
          if (status === 200) assert.isBelow(sentAt - revokedAt, 1000)
        }
        assert.strictEqual(status, 401)
      })
      yield* Effect.raceFirst(
        Effect.replicateEffect(revocation, 2),
        Effect.replicateEffect(load, 8, { concurrency: "unbounded" })
      )
      assert.deepStrictEqual([...statuses], [200])
    }))
})

/** Sends requests with several outcomes to a process. Returns its metrics, once the counts of the limits are stored. */
const metricsAfterRequests = Effect.fnUntraced(function*(env: Readonly<Record<string, string>>, stored: string) {
  const service = yield* start(env)
  yield* send(`${service.address}/v1/pets`, (yield* issue(service)).key)
  yield* send(`${service.address}/v1/pets`, "none")
  yield* send(`${service.management}/admin/keys`, "none")
  return yield* Effect.repeat(metricsOf(service), { until: (text) => text.includes(stored) })
})

const skip = Prometheus.missing !== undefined || Redis.missing !== undefined ||
  process.env.TEST_DATABASE_URL === undefined

describe.skipIf(skip)("The metrics of a process", () => {
  it.live("match docs/monitoring.md, and have the labels of the alerts and the dashboard", () =>
    Effect.gen(function*() {
      const redis = yield* Redis.run
      yield* redis.start
      const shared = { DATABASE_URL: yield* temporaryDatabaseUrl, REDIS_URL: redis.url, BUILD_REVISION: "79d1fb3" }
      const texts = [
        yield* metricsAfterRequests(shared, "redis_duration_seconds"),
        yield* metricsAfterRequests({ DATA_DIR: yield* dataDirectory }, "write_duration_seconds")
      ]
      for (const text of texts) Prometheus.runPromtool(["check", "metrics"], text)
      const samples = [
        ...["cpu_seconds_total 0*", "start_time_seconds ", "resident_memory_bytes "].map((name) =>
          `process_${name}[1-9.]`
        ),
        "nodejs_heap_size_used_bytes [1-9]",
        "nodejs_eventloop_lag_p99_seconds \\d",
        "nodejs_gc_duration_seconds_total \\d",
        "petstore_ready 1",
        `petstore_build_info{node="v\\d.*",revision="79d1fb3",version="\\d.*"} 1`,
        ...["enterprise", "none"].map((plan) =>
          `petstore_rate_limit_decisions_total{outcome="allowed",plan="${plan}"} 1`
        )
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
    }))
})
