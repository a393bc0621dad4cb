/** Tests two processes that share a port by `REUSE_PORT`, on PostgreSQL and Redis. */
import { PgClient } from "@effect/sql-pg"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import * as Workload from "../../bench/Workload.ts"
import { freePort } from "../support/Harness.ts"
import * as Load from "../support/Load.ts"
import { start, until } from "../support/Process.ts"
import * as Redis from "../support/Redis.ts"

const namesOn = (url: string) =>
  Effect.flatMap(PgClient.PgClient, (sql) => sql<{ readonly name: string }>`SELECT name FROM pets`).pipe(
    Effect.map((pets) => new Set(pets.map(({ name }) => name))),
    Effect.provide(PgClient.layer({ url: Redacted.make(url) }))
  )

describe.skipIf(Redis.missing !== undefined || process.env.TEST_DATABASE_URL === undefined)(
  "Processes on one port",
  () => {
    it.live("are replaced one by one under load, which can only reset a connection", () =>
      Effect.gen(function*() {
        const redis = yield* Redis.run
        yield* redis.start
        const { key, url } = yield* Workload.database(10)
        const env = {
          DATABASE_URL: url,
          REDIS_URL: redis.url,
          ADMIN_TOKEN: "adm_0123456789abcdefghijklmnopqrstuvwxyz",
          PORT: String(yield* freePort),
          REUSE_PORT: "true",
          DRAIN_SECONDS: "1"
        }
        const before = yield* Effect.all([start(env), start(env)])
        const load = yield* Load.run({ address: () => before[0].address, key, callers: 16 })
        const served = (count: number) => until(() => load.outcomes.length > count)
        yield* served(200)
        // Linux spreads the connections of the callers over both processes.
        for (const { management } of before) {
          const metrics = yield* Effect.promise(() =>
            fetch(`${management}/metrics`).then((response) => response.text())
          )
          assert.match(metrics, /^petstore_http_server_request_duration_seconds_count\{.*"200".*\} [1-9]/m)
        }
        for (const service of before) {
          service.process.kill("SIGTERM")
          assert.strictEqual(yield* Effect.promise(() => service.exit), 0)
          yield* start(env)
        }
        yield* served(load.outcomes.length + 200)
        yield* load.stop

        // Status 0 stands for a reset connection.
        const statuses = new Map(Object.entries(Object.groupBy(load.outcomes, ({ status }) => status)))
        assert.isEmpty(new Set(statuses.keys()).difference(new Set(["0", "200", "201"])))
        const names = yield* namesOn(url)
        assert.deepStrictEqual(Load.acknowledged(load.outcomes).filter((name) => !names.has(name)), [])
      }), 180_000)
  }
)
