/** Tests a running process behind PgBouncer in transaction mode: under load, with a locked table, and a lost server. */
import { assert, describe, layer } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { clientOn } from "../support/Databases.ts"
import * as Load from "../support/Load.ts"
import * as PgBouncer from "../support/PgBouncer.ts"
import * as Postgres from "../support/Postgres.ts"
import { issue, sendAdmin, start, until } from "../support/Process.ts"

/** A server, a PgBouncer in front of it, a process that uses it, and a key. */
const deploy = Effect.gen(function*() {
  const postgres = yield* Postgres.run()
  const pooler = yield* PgBouncer.run(postgres.url, "transaction")
  const service = yield* start({ DATABASE_URL: pooler.url })
  const { key } = yield* issue(service)
  return { postgres, pooler, service, key }
})

const Deployment = Context.Service<Effect.Success<typeof deploy>>("test/Pooler/Deployment")

const assertStatuses = (outcomes: ReadonlyArray<Load.Outcome>, expected: ReadonlyArray<number>) =>
  assert.isEmpty(outcomes.filter(({ status }) => !expected.includes(status)))

describe.skipIf(PgBouncer.missing !== undefined || Postgres.missing !== undefined)("Behind PgBouncer", () => {
  layer(Layer.effect(Deployment, deploy), { excludeTestServices: true })((it) => {
    it.effect("a statement that waits for a lock is canceled, and its request gets 503", () =>
      Effect.gen(function*() {
        const { key, postgres, service } = yield* Deployment
        const { status } = yield* postgres.admin((sql) =>
          sql.withTransaction(Effect.gen(function*() {
            yield* sql`LOCK TABLE pets`
            const outcome = yield* Load.request(service.address, key)
            const waiting = sql`
              SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%INSERT%'`
            yield* Effect.repeat(waiting, { until: (statements) => statements.length === 0 })
            return outcome
          }))
        )
        assert.strictEqual(status, 503)
        assert.strictEqual((yield* Load.request(service.address, key)).status, 201)
      }))

    it.effect("every request under load succeeds, and a killed server loses no pet", () =>
      Effect.gen(function*() {
        const { key, postgres, service } = yield* Deployment
        const load = yield* Load.run({ address: () => service.address, key, callers: 16 })
        const change = Effect.gen(function*() {
          const { id } = yield* issue(service)
          const rotated = yield* sendAdmin(service, "POST", `/keys/${id}/rotate`)
          const revoked = yield* sendAdmin(service, "DELETE", `/keys/${id}`)
          assert.deepStrictEqual([rotated.status, revoked.status], [200, 204])
        })
        yield* Effect.replicateEffect(change, 40, { concurrency: 8 })
        assert.isAbove(Load.acknowledged(load.outcomes).length, 20)
        assertStatuses(load.outcomes, [200, 201, 404])
        yield* postgres.kill
        yield* until(() => load.outcomes.some(({ status }) => status === 503))
        yield* postgres.start
        yield* load.untilCreated
        yield* load.stop
        assertStatuses(load.outcomes, [200, 201, 404, 503])
        yield* Load.assertStored(load.outcomes, clientOn(postgres.url))
      }))

    it.effect("a start without pgbouncer=true fails and names the parameter", () =>
      Effect.gen(function*() {
        const { pooler } = yield* Deployment
        const { stderr } = yield* Effect.flip(start({ DATABASE_URL: pooler.urlWithoutParameter }))
        assert.match(stderr, /pgbouncer=true/)
      }))
  })
})
