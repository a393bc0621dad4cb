/** Tests a running process behind PgBouncer: under load, with a locked table, and while PgBouncer or its server is lost. */
import { PgClient } from "@effect/sql-pg"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Redacted } from "effect"
import { issueKey } from "../support/Harness.ts"
import * as Load from "../support/Load.ts"
import * as PgBouncer from "../support/PgBouncer.ts"
import * as Postgres from "../support/Postgres.ts"
import { start } from "../support/Process.ts"

const ADMIN_TOKEN = "adm_0123456789abcdef"

/** A server, a PgBouncer in front of it, a process that uses it, and a key. */
const deploy = Effect.fnUntraced(function*(mode: typeof PgBouncer.modes[number]) {
  const postgres = yield* Postgres.run()
  const pooler = yield* PgBouncer.run(postgres.url, mode, { server_login_retry: "1" })
  const service = yield* start({ DATABASE_URL: pooler.url, ADMIN_TOKEN })
  const key = yield* issueKey(PgClient.layer({ url: Redacted.make(postgres.url) }))
  yield* Load.request(service.address, key)
  return { postgres, pooler, service, key }
})
type Deployment = Effect.Success<ReturnType<typeof deploy>>

/** Loses a part of the deployment under load and brings it back. */
const recover = Effect.fnUntraced(function*(
  { key, postgres, service }: Deployment,
  part: { readonly kill: Effect.Effect<unknown>; readonly start: Effect.Effect<unknown> }
) {
  const load = yield* Load.run({ address: () => service.address, key, callers: 8 })
  yield* Effect.sleep("1 second")
  yield* part.kill
  yield* Effect.sleep("2 seconds")
  yield* part.start
  const startedAt = performance.now()
  while (!load.outcomes.some(({ sentAt, status }) => sentAt > startedAt && status === 201)) {
    yield* Effect.sleep("20 millis")
  }
  assert.isBelow(performance.now() - startedAt, 5_000)
  yield* Effect.sleep("1 second")
  yield* load.stop
  const statuses = new Set(load.outcomes.map(({ status }) => status))
  assert.deepStrictEqual([...statuses].filter((status) => ![200, 201, 503].includes(status)), [])
  const stored = yield* postgres.admin((sql) => sql<{ readonly name: string }>`SELECT name FROM pets`)
  const names = new Set(stored.map(({ name }) => name))
  assert.strictEqual(names.size, stored.length)
  assert.deepStrictEqual(Load.acknowledged(load.outcomes).filter((name) => !names.has(name)), [])
})

describe.skipIf(PgBouncer.missing !== undefined || Postgres.missing !== undefined)("Behind PgBouncer", () => {
  for (const mode of PgBouncer.modes) {
    describe(`in ${mode} mode`, () => {
      it.live("every request under load and every change of a key succeeds", () =>
        Effect.gen(function*() {
          const { key, service } = yield* deploy(mode)
          const load = yield* Load.run({ address: () => service.address, key, callers: 32 })
          const statuses = yield* Effect.forEach(
            Array.from({ length: 150 }, (_, index) => index),
            (index) =>
              Effect.promise(async () => {
                const response = await fetch(`${service.management}/admin/keys`, {
                  method: "POST",
                  headers: { "authorization": `Bearer ${ADMIN_TOKEN}`, "content-type": "application/json" },
                  body: JSON.stringify({ name: `key ${index}`, plan: "free" })
                })
                const { id } = await response.json() as { readonly id: string }
                const headers = { authorization: `Bearer ${ADMIN_TOKEN}` }
                const rotated = await fetch(`${service.management}/admin/keys/${id}/rotate`, {
                  method: "POST",
                  headers
                })
                const revoked = await fetch(`${service.management}/admin/keys/${id}`, { method: "DELETE", headers })
                return [response.status, rotated.status, revoked.status]
              }),
            { concurrency: 8 }
          )
          yield* Effect.sleep("1 second")
          yield* load.stop
          assert.deepStrictEqual(statuses, Array.from({ length: 150 }, () => [201, 200, 204]))
          assert.isAbove(load.outcomes.length, 500)
          assert.deepStrictEqual(load.outcomes.filter(({ status }) => ![200, 201].includes(status)), [])
        }), 60_000)

      it.live(
        "a statement that waits for a lock is canceled before 4 s, and its request gets 503",
        () =>
          Effect.gen(function*() {
            const { key, postgres, service } = yield* deploy(mode)
            yield* Load.request(service.address, key)
            const { outcome, waiting } = yield* postgres.admin((sql) =>
              sql.withTransaction(Effect.gen(function*() {
                yield* sql`LOCK TABLE pets`
                const outcome = yield* Load.request(service.address, key)
                yield* Effect.sleep("200 millis")
                const [row] = yield* sql<{ readonly count: number }>`
                SELECT count(*)::int FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%INSERT%'`
                return { outcome, waiting: row?.count }
              }))
            )
            assert.strictEqual(outcome.status, 503)
            assert.isBelow(outcome.took, 5_000)
            assert.strictEqual(waiting, 0)
            assert.strictEqual((yield* Load.request(service.address, key)).status, 201)
          }),
        60_000
      )

      it.live(
        "creates succeed within 5 s after a killed PgBouncer is back, and no acknowledged pet is lost",
        () => Effect.flatMap(deploy(mode), (deployment) => recover(deployment, deployment.pooler)),
        60_000
      )

      it.live(
        "creates succeed within 5 s after a killed server is back, and no acknowledged pet is lost",
        () => Effect.flatMap(deploy(mode), (deployment) => recover(deployment, deployment.postgres)),
        60_000
      )

      it.live("a start waits for the server", () =>
        Effect.gen(function*() {
          const postgres = yield* Postgres.run()
          const pooler = yield* PgBouncer.run(postgres.url, mode, { server_login_retry: "1" })
          yield* postgres.kill
          const starting = yield* Effect.forkChild(start({ DATABASE_URL: pooler.url, ADMIN_TOKEN }))
          yield* Effect.sleep("3 seconds")
          yield* postgres.start
          yield* Fiber.join(starting)
        }), 60_000)

      it.live("a start without pgbouncer=true fails and says what to set", () =>
        Effect.gen(function*() {
          const postgres = yield* Postgres.run()
          const strict = yield* PgBouncer.run(postgres.url, mode)
          const lenient = yield* PgBouncer.run(postgres.url, mode, { ignore_startup_parameters: "statement_timeout" })
          for (const { urlWithoutParameter } of [strict, lenient]) {
            const { stderr } = yield* Effect.flip(start({ DATABASE_URL: urlWithoutParameter, ADMIN_TOKEN }))
            assert.match(stderr, /pgbouncer=true/)
          }
        }), 60_000)
    })
  }
})
