/** Tests two processes that share a port by `REUSE_PORT`, on PostgreSQL and Redis. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { clientOn, temporaryDatabaseUrl } from "../support/Databases.ts"
import * as Load from "../support/Load.ts"
import { issue, metricsOf, start, stop } from "../support/Process.ts"
import * as Redis from "../support/Redis.ts"
import { freePort } from "../support/Temporary.ts"

const skip = Redis.missing !== undefined || process.env.TEST_DATABASE_URL === undefined

it.live.skipIf(skip)(
  "Processes on one port are replaced under load, and lose at most a reset connection",
  () =>
    Effect.gen(function*() {
      const { url } = yield* Redis.runStarted
      const DATABASE_URL = yield* temporaryDatabaseUrl
      const PORT = String(yield* freePort)
      const env = { DATABASE_URL, REDIS_URL: url, PORT, REUSE_PORT: "true", DRAIN_SECONDS: "1" }
      const before = [yield* start(env), yield* start(env)] as const
      const { key } = yield* issue(before[0])
      const load = yield* Load.run({ address: () => before[0].address, key, callers: 16 })
      yield* load.untilMore(200)
      // Linux spreads the connections of the callers over both processes.
      for (const service of before) {
        assert.match(yield* metricsOf(service), /^petstore_http_server_request_duration_seconds_count\{.*"200"/m)
      }
      for (const service of before) {
        assert.strictEqual(yield* stop(service, "SIGTERM"), 0)
        yield* start(env)
      }
      yield* load.untilMore(200)
      yield* load.stop

      // Status 0 stands for a reset connection, and there is no pet 1 before the first create.
      Load.assertStatuses(load.outcomes, 0, 200, 201, 404)
      yield* Load.assertStored(load.outcomes, clientOn(DATABASE_URL))
    }),
  180_000
)
