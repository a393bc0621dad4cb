/** Tests the metrics, the alert rules and the dashboard with a Prometheus that scrapes services under load. */
import { PgClient } from "@effect/sql-pg"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { readPage } from "../support/Documents.ts"
import { temporaryDatabaseUrl, temporaryDirectory } from "../support/Harness.ts"
import { start } from "../support/Process.ts"
import * as Prometheus from "../support/Prometheus.ts"
import * as Redis from "../support/Redis.ts"

const ADMIN_TOKEN = "adm_0123456789abcdefghijklmnopqrstuvwxyz"

const get = (url: string, token: string) =>
  Effect.promise(async () => {
    const response = await fetch(url, { headers: { authorization: `Bearer ${token}` } })
    return { status: response.status, text: await response.text() }
  })

/** Issues a key on plan Enterprise. */
const issue = (management: string, perMinute: number) =>
  Effect.promise(async () => {
    const response = await fetch(`${management}/admin/keys`, {
      method: "POST",
      headers: { authorization: `Bearer ${ADMIN_TOKEN}`, "content-type": "application/json" },
      body: JSON.stringify({ name: "load", plan: "enterprise", limits: { perMinute, perDay: 1_000_000 } })
    })
    const { key }: { readonly key: string } = JSON.parse(await response.text())
    return key
  })

interface QueryResult {
  readonly status: string
  readonly error?: string
  readonly data: { readonly result: ReadonlyArray<{ readonly value: readonly [number, string] }> }
}

const missing = Prometheus.missing ?? Redis.missing
const skip = missing !== undefined || process.env.TEST_DATABASE_URL === undefined

describe.skipIf(skip)(
  "A Prometheus with the documented configuration, the alert rules and the dashboard's queries",
  () => {
    it.live(
      "scrapes all documented metrics, evaluates all rules, and has data for each panel",
      () =>
        Effect.gen(function*() {
          const redis = yield* Redis.run
          yield* redis.start
          const broken = yield* temporaryDatabaseUrl
          const env = { DATA_DIR: yield* temporaryDirectory, ADMIN_TOKEN }
          const [shared, alone] = yield* Effect.all([
            start({ ...env, DATABASE_URL: yield* temporaryDatabaseUrl, REDIS_URL: redis.url }),
            start({ ...env, DATABASE_URL: broken })
          ], { concurrency: 2 })
          const query = yield* Prometheus.run([shared.management, alone.management])
          for (const { address, management } of [shared, alone]) {
            const [key, limited] = [yield* issue(management, 1_000_000), yield* issue(management, 2)]
            const calls = Effect.all([
              get(`${address}/v1/pets`, key),
              get(`${address}/v1/pets/1`, key),
              get(`${address}/v1/pets`, limited),
              get(`${address}/v1/pets`, "none"),
              get(`${management}/admin/keys`, "none")
            ])
            yield* Effect.forkScoped(Effect.repeat(Effect.andThen(calls, Effect.sleep("50 millis")), {
              until: () => false
            }))
          }
          yield* Effect.sleep("8 seconds")
          // Requests of `alone` fail with 500 from here on, and `shared` counts without Redis.
          const dropPets = Effect.flatMap(PgClient.PgClient, (sql) => sql`DROP TABLE pets CASCADE`)
          yield* Effect.provide(dropPets, PgClient.layer({ url: Redacted.make(broken), maxConnections: 1 }))
          yield* redis.kill
          yield* Effect.sleep("4 seconds")

          const texts = yield* Effect.forEach([shared, alone], ({ management }) => get(`${management}/metrics`, ""))
          const exposed = new Set(
            texts.flatMap(({ text }) => [...text.matchAll(/^# TYPE (\S+)/gm)].map(([, name = ""]) => name))
          )
          const page = readPage("docs/monitoring.md")
          const described = new Set(
            [...page.matchAll(/^\| (`.*?) \|/gm)].flatMap(([, names = ""]) => [...Prometheus.metricsIn(names)])
          )
          assert.sameMembers([...exposed], [...described])

          for (const { targets, title } of Prometheus.panels) {
            for (const { expr } of targets) {
              const text = expr.replaceAll("$instance", ".*").replaceAll("$__rate_interval", "10s")
              const { data, error, status }: QueryResult = yield* query(`query?query=${encodeURIComponent(text)}`)
              assert.strictEqual(status, "success", error)
              assert.isTrue(data.result.some(({ value: [, value] }) => value !== "NaN"), `${title}: ${text}`)
            }
          }

          const { data } = yield* query("rules")
          const rules: ReadonlyArray<{ readonly name: string; readonly health: string; readonly state: string }> = data
            .groups.flatMap(({ rules: each }: { readonly rules: ReadonlyArray<unknown> }) => each)
          assert.lengthOf(rules, Prometheus.alerts.length)
          for (const { health, name } of rules) assert.strictEqual(health, "ok", name)
          const states = Object.fromEntries(rules.map(({ name, state }) => [name, state]))
          assert.containsSubset(states, {
            PetstoreDown: "inactive",
            PetstoreFails: "firing",
            PetstoreAdminAuthenticationFails: "firing",
            PetstoreCountsWithoutRedis: "pending",
            PetstoreBackgroundFails: "inactive",
            PetstoreLogLinesDropped: "inactive",
            PetstoreVersionsDiffer: "inactive"
          })
        }),
      90_000
    )
  }
)
