/** Tests a running process behind PgBouncer in transaction mode: under load, with a locked table, and a lost server. */
import { PgClient } from "@effect/sql-pg"
import { assert, describe, layer } from "@effect/vitest"
import { Context, Effect, Layer, Redacted } from "effect"
import { issueKey } from "../support/Harness.ts"
import * as Load from "../support/Load.ts"
import * as PgBouncer from "../support/PgBouncer.ts"
import * as Postgres from "../support/Postgres.ts"
import { start, until } from "../support/Process.ts"

const ADMIN_TOKEN = "adm_0123456789abcdef"

/** A server, a PgBouncer in front of it, a process that uses it, and a key. */
const deploy = Effect.gen(function*() {
  const postgres = yield* Postgres.run()
  const pooler = yield* PgBouncer.run(postgres.url, "transaction", { server_login_retry: "1" })
  const service = yield* start({ DATABASE_URL: pooler.url, ADMIN_TOKEN })
  const key = yield* issueKey(PgClient.layer({ url: Redacted.make(postgres.url) }))
  return { postgres, pooler, service, key }
})

class Deployment extends Context.Service<Deployment, Effect.Success<typeof deploy>>()("test/Pooler/Deployment") {
  static readonly layer = Layer.effect(Deployment, deploy)
}

describe.skipIf(PgBouncer.missing !== undefined || Postgres.missing !== undefined)("Behind PgBouncer", () => {
  layer(Deployment.layer, { excludeTestServices: true, timeout: 60_000 })((it) => {
    it.effect("every request under load and every change of a key succeeds", () =>
      Effect.gen(function*() {
        const { key, service } = yield* Deployment
        const load = yield* Load.run({ address: () => service.address, key, callers: 16 })
        const headers = { "authorization": `Bearer ${ADMIN_TOKEN}`, "content-type": "application/json" }
        const admin = async (method: string, path: string, body?: string) => {
          const response = await fetch(service.management + path, {
            method,
            headers,
            ...body !== undefined && { body }
          })
          return { status: response.status, text: await response.text() }
        }
        const statuses = yield* Effect.forEach(
          Array.from({ length: 40 }, (_, index) => index),
          (index) =>
            Effect.promise(async () => {
              const issued = await admin("POST", "/admin/keys", JSON.stringify({ name: `key ${index}`, plan: "free" }))
              const { id }: { readonly id: string } = JSON.parse(issued.text)
              const rotated = await admin("POST", `/admin/keys/${id}/rotate`)
              const revoked = await admin("DELETE", `/admin/keys/${id}`)
              return [issued.status, rotated.status, revoked.status]
            }),
          { concurrency: 8 }
        )
        yield* load.stop
        assert.deepStrictEqual(statuses, Array.from({ length: 40 }, () => [201, 200, 204]))
        assert.deepStrictEqual(load.outcomes.filter(({ status }) => ![200, 201, 404].includes(status)), [])
      }))

    it.effect("a statement that waits for a lock is canceled, and its request gets 503", () =>
      Effect.gen(function*() {
        const { key, postgres, service } = yield* Deployment
        const { outcome, waiting } = yield* postgres.admin((sql) =>
          sql.withTransaction(Effect.gen(function*() {
            yield* sql`LOCK TABLE pets`
            const outcome = yield* Load.request(service.address, key)
            const waiting = sql`
              SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%INSERT%'`
            while ((yield* waiting).length > 0) yield* Effect.sleep("20 millis")
            return { outcome, waiting: (yield* waiting).length }
          }))
        )
        assert.strictEqual(outcome.status, 503)
        assert.strictEqual(waiting, 0)
        assert.strictEqual((yield* Load.request(service.address, key)).status, 201)
      }))

    it.effect("creates succeed after a killed server is back, and no acknowledged pet is lost", () =>
      Effect.gen(function*() {
        const { key, postgres, service } = yield* Deployment
        const load = yield* Load.run({ address: () => service.address, key, callers: 8 })
        yield* until(() => Load.acknowledged(load.outcomes).length > 20)
        yield* postgres.kill
        yield* until(() => load.outcomes.some(({ status }) => status === 503))
        yield* postgres.start
        const startedAt = performance.now()
        yield* until(() => load.outcomes.some(({ sentAt, status }) => sentAt > startedAt && status === 201))
        yield* load.stop
        assert.deepStrictEqual(load.outcomes.filter(({ status }) => ![200, 201, 404, 503].includes(status)), [])
        const stored = yield* postgres.admin((sql) => sql<{ readonly name: string }>`SELECT name FROM pets`)
        const names = new Set(stored.map(({ name }) => name))
        assert.strictEqual(names.size, stored.length)
        assert.deepStrictEqual(Load.acknowledged(load.outcomes).filter((name) => !names.has(name)), [])
      }))

    it.effect("a start without pgbouncer=true fails, and says what to set", () =>
      Effect.gen(function*() {
        const { pooler } = yield* Deployment
        const { stderr } = yield* Effect.flip(start({ DATABASE_URL: pooler.urlWithoutParameter, ADMIN_TOKEN }))
        assert.match(stderr, /pgbouncer=true/)
      }))
  })
})
