/** Tests a running process behind PgBouncer in transaction mode: under load, with a locked table, and a lost server. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { clientOn } from "../support/Databases.ts"
import * as Load from "../support/Load.ts"
import * as PgBouncer from "../support/PgBouncer.ts"
import * as Postgres from "../support/Postgres.ts"
import { issue, sendAdmin, start, until } from "../support/Process.ts"

const skip = PgBouncer.missing !== undefined || Postgres.missing !== undefined

it.live.skipIf(skip)(
  "Behind PgBouncer, requests get 503 only during an outage or a lock, and no pet is lost",
  () =>
    Effect.gen(function*() {
      const postgres = yield* Postgres.run()
      const pooler = yield* PgBouncer.run(postgres.url, "transaction")
      const { stderr } = yield* Effect.flip(start({ DATABASE_URL: pooler.urlWithoutParameter }))
      assert.match(stderr, /pgbouncer=true/)
      const service = yield* start({ DATABASE_URL: pooler.url })
      const { key } = yield* issue(service)

      yield* postgres.admin((sql) =>
        sql.withTransaction(Effect.gen(function*() {
          yield* sql`LOCK TABLE pets`
          assert.strictEqual((yield* Load.request(service.address, key)).status, 503)
          // The statement that waits for the lock is canceled.
          const waiting = sql`SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%INSERT%'`
          yield* Effect.repeat(waiting, { until: (statements) => statements.length === 0 })
        }))
      )
      const load = yield* Load.run({ address: () => service.address, key, callers: 16 })
      const change = Effect.gen(function*() {
        const { id } = yield* issue(service)
        const rotated = yield* sendAdmin(service, "POST", `/keys/${id}/rotate`)
        const revoked = yield* sendAdmin(service, "DELETE", `/keys/${id}`)
        assert.deepStrictEqual([rotated.status, revoked.status], [200, 204])
      })
      yield* Effect.replicateEffect(change, 40, { concurrency: 8 })
      assert.isAbove(Load.acknowledged(load.outcomes).length, 20)
      Load.assertStatuses(load.outcomes, 200, 201, 404)
      yield* postgres.kill
      yield* until(() => load.outcomes.some(({ status }) => status === 503))
      yield* postgres.start
      yield* load.untilCreated
      yield* load.stop
      Load.assertStatuses(load.outcomes, 200, 201, 404, 503)
      yield* Load.assertStored(load.outcomes, clientOn(postgres.url))
    })
)
