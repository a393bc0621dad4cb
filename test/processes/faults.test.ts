/**
 * Tests running processes under load while the database fails: no 500, no slow response, no lost pet.
 */
import { PgClient } from "@effect/sql-pg"
import { assert, describe, it, layer } from "@effect/vitest"
import { Context, Deferred, Effect, Layer, Redacted } from "effect"
import { execFileSync } from "node:child_process"
import { mkdirSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import * as EmbeddedDatabase from "../../src/database/EmbeddedDatabase.ts"
import * as EmbeddedTemplate from "../support/EmbeddedTemplate.ts"
import { issueKey, temporaryDirectory } from "../support/Harness.ts"
import * as Load from "../support/Load.ts"
import * as Postgres from "../support/Postgres.ts"
import { start, until } from "../support/Process.ts"
import * as Proxy from "../support/Proxy.ts"
import { mayMount } from "../support/setup.ts"

/** The maximum response time during a fault. */
const maxResponseMs = 10_000

const makeDeployment = Effect.gen(function*() {
  const postgres = yield* Postgres.run()
  yield* postgres.admin((sql) =>
    Effect.andThen(sql`CREATE ROLE petstore LOGIN`, sql`ALTER DATABASE postgres OWNER TO petstore`)
  )
  const proxy = yield* Proxy.run(postgres.port)
  const url = (port: number) => `postgres://petstore@127.0.0.1:${port}/postgres`
  const sql = PgClient.layer({ url: Redacted.make(url(postgres.port)) })
  const key = yield* issueKey(sql)
  const service = yield* start({ DATABASE_URL: url(proxy.port), LOG_LEVEL: "info" })
  yield* Load.request(service.address, key)
  return { postgres, proxy, service, sql, key }
})

class Deployment extends Context.Service<Deployment, Effect.Success<typeof makeDeployment>>()("test/Deployment") {
  static readonly layer = Layer.effect(Deployment, makeDeployment)
}

type Step = (deployment: Deployment["Service"]) => Effect.Effect<unknown, unknown>

/** A fault of the network between the service and the database. */
const network = (fault: Proxy.Fault): { readonly begin: Step; readonly end: Step } => ({
  begin: ({ proxy }) => Effect.sync(() => proxy.setFault(fault)),
  end: ({ proxy }) => Effect.sync(() => proxy.setFault(undefined))
})

/** Another session that locks the table of pets, for longer than the statement timeout. */
const tableLock = (mode: string): { readonly begin: Step; readonly end: Step } => {
  const [locked, released] = [Deferred.makeUnsafe<void, unknown>(), Deferred.makeUnsafe<void>()]
  return {
    begin: ({ postgres }) =>
      postgres.admin((sql) =>
        sql.withTransaction(Effect.gen(function*() {
          yield* sql.unsafe(`LOCK TABLE pets IN ${mode} MODE`)
          yield* Deferred.succeed(locked, undefined)
          yield* Deferred.await(released)
        }))
      ).pipe(
        Effect.catchCause((cause) => Deferred.failCause(locked, cause)),
        Effect.forkDetach,
        Effect.andThen(Deferred.await(locked))
      ),
    end: () => Deferred.succeed(released, undefined)
  }
}

/** The faults. Each lasts `seconds`, in which the requests that it affects are rejected. */
const faults: ReadonlyArray<{
  readonly name: string
  readonly seconds: number
  readonly begin: Step
  readonly end: Step
  /** Whether creates fail during the fault. */
  readonly stopsCreates: boolean
  /** Whether reads succeed during the fault. */
  readonly readsSucceed?: boolean
  readonly callers?: number
}> = [
  {
    name: "is restarted",
    seconds: 1,
    begin: ({ postgres }) => postgres.stop,
    end: ({ postgres }) => postgres.start,
    stopsCreates: true
  },
  {
    name: "is killed",
    seconds: 2,
    begin: ({ postgres }) => postgres.kill,
    end: ({ postgres }) => postgres.start,
    stopsCreates: true
  },
  {
    name: "hangs",
    // Longer than every timeout of a statement, a call or a silent connection.
    seconds: 6,
    begin: ({ postgres }) => postgres.freeze,
    end: ({ postgres }) => postgres.thaw,
    callers: 700,
    stopsCreates: true
  },
  {
    name: "accepts no more connections",
    seconds: 2,
    begin: ({ postgres }) =>
      postgres.admin((sql) =>
        Effect.andThen(
          sql`ALTER ROLE petstore CONNECTION LIMIT 0`,
          sql`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'petstore'`
        )
      ),
    end: ({ postgres }) => postgres.admin((sql) => sql`ALTER ROLE petstore CONNECTION LIMIT -1`),
    stopsCreates: true
  },
  {
    name: "is read-only",
    seconds: 2,
    begin: ({ postgres }) =>
      postgres.admin((sql) =>
        Effect.andThen(
          sql`ALTER SYSTEM SET default_transaction_read_only = on`,
          sql`SELECT pg_reload_conf()`
        )
      ),
    end: ({ postgres }) =>
      postgres.admin((sql) =>
        Effect.andThen(
          sql`ALTER SYSTEM RESET default_transaction_read_only`,
          sql`SELECT pg_reload_conf()`
        )
      ),
    stopsCreates: true
  },
  { name: "is slow", seconds: 3, ...network("slow"), stopsCreates: false },
  { name: "is cut off", seconds: 2, ...network("refusing"), stopsCreates: true },
  { name: "is behind a half-open connection", seconds: 6, ...network("hanging"), stopsCreates: true },
  { name: "has a locked table", seconds: 4, ...tableLock("ACCESS EXCLUSIVE"), stopsCreates: true },
  {
    name: "has a table that is locked for writes",
    seconds: 4,
    ...tableLock("SHARE"),
    stopsCreates: true,
    readsSucceed: true
  }
]

describe.skipIf(Postgres.missing !== undefined)("While the database", () => {
  layer(Deployment.layer, { excludeTestServices: true, timeout: 60_000 })((it) => {
    for (const fault of faults) {
      it.effect(
        `${fault.name}, requests succeed or get 503 with Retry-After, and no acknowledged pet is lost`,
        () =>
          Effect.gen(function*() {
            const deployment = yield* Deployment
            const { key, service, sql } = deployment
            const send = (path?: string) => Load.request(service.address, key, path)
            const load = yield* Load.run({ address: () => service.address, key, callers: fault.callers ?? 16 })
            yield* until(() => Load.acknowledged(load.outcomes).length > 50)

            yield* fault.begin(deployment)
            const faultStart = performance.now()
            yield* Effect.sleep(`${fault.seconds} seconds`)
            yield* fault.end(deployment)
            const faultEnd = performance.now()

            // The service has recovered when a create, a get and a list succeed in a row.
            let isRecovered = false
            while (!isRecovered) {
              const outcomes = [yield* send(), yield* send("/v1/pets/1"), yield* send("/v1/pets?limit=2")]
              isRecovered = outcomes.every(({ status }) => status === 200 || status === 201)
            }
            const recoveredAt = performance.now()
            const after = () => load.outcomes.filter(({ sentAt }) => sentAt > recoveredAt)
            yield* until(() => after().length > 20)
            yield* load.stop

            const { outcomes } = load
            if (outcomes.some(({ status }) => status === 500)) assert.fail(service.stderr())
            assert.deepStrictEqual(
              [...new Set(outcomes.map(({ status }) => status))].filter((status) => ![200, 201, 503].includes(status)),
              []
            )
            assert.isTrue(outcomes.every(({ retryAfter, status }) => status !== 503 || Number(retryAfter) > 0))
            assert.isBelow(Math.max(...outcomes.map(({ took }) => took)), maxResponseMs, "the longest response")
            // The fault had an effect.
            const within = outcomes.filter(({ sentAt, took }) => sentAt + took > faultStart && sentAt < faultEnd)
            const creates = within.filter(({ method }) => method === "POST")
            if (fault.stopsCreates) assert.isTrue(creates.some(({ status }) => status === 503))
            else {assert.isAbove(
                creates.map(({ took }) => took).toSorted((a, b) => a - b)[creates.length >> 1] ?? 0,
                400
              )}
            if (fault.readsSucceed === true) {
              const reads = within.filter(({ method }) => method === "GET")
              assert.isAbove(reads.length, 10)
              assert.deepStrictEqual([...new Set(reads.map(({ status }) => status))], [200])
            }
            // After the recovery every request succeeds.
            assert.isTrue(after().every(({ status }) => status === 200 || status === 201))

            // Each acknowledged pet exists once. No other pet exists twice.
            const names = Load.acknowledged(outcomes)
            const stored = yield* Effect.provide(
              Effect.flatMap(
                PgClient.PgClient,
                (client) =>
                  client<{ name: string; count: bigint }>`SELECT name, count(*) AS count FROM pets GROUP BY name`
              ),
              sql
            )
            const counts = new Map(stored.map(({ count, name }) => [name, Number(count)]))
            assert.deepStrictEqual(names.filter((name) => counts.get(name) !== 1), [])
            assert.deepStrictEqual([...counts].filter(([, count]) => count !== 1), [])
          }),
        60_000
      )
    }
  })
})

/** Starts a service on a disk of a few megabytes. */
const onDisk = Effect.gen(function*() {
  const disk = yield* temporaryDirectory
  yield* Effect.acquireRelease(
    Effect.sync(() => execFileSync("mount", ["-t", "tmpfs", "-o", "size=80m", "tmpfs", disk])),
    () => Effect.sync(() => execFileSync("umount", ["--lazy", disk]))
  )
  const DATA_DIR = join(disk, "data")
  mkdirSync(DATA_DIR)
  yield* EmbeddedTemplate.copyTo(DATA_DIR)
  const key = yield* issueKey(EmbeddedDatabase.layer(DATA_DIR))
  return { disk, DATA_DIR, key, service: yield* start({ DATA_DIR }) }
})

const create = (address: string, key: string, count: number) =>
  Effect.replicateEffect(Load.request(address, key), count, { concurrency: 8 })

describe.skipIf(!mayMount)("While the disk of the embedded database", () => {
  it.live(
    "is full, creates get 503 until there is space again, and no acknowledged pet is lost",
    () =>
      Effect.gen(function*() {
        const { DATA_DIR, disk, key, service } = yield* onDisk
        const outcomes = [...yield* create(service.address, key, 100)]
        const files: Array<string> = []
        const fill = () => {
          const file = join(disk, `file ${files.length}`)
          files.push(file)
          writeFileSync(file, Buffer.alloc(100_000))
        }
        yield* Effect.ignore(Effect.forever(Effect.try({ try: fill, catch: () => "full" })))
        const meanwhile = yield* create(service.address, key, 1_000)
        assert.isTrue(meanwhile.some(({ status }) => status === 503))
        for (const file of files) rmSync(file)
        yield* Effect.repeat(Load.request(service.address, key), { until: ({ status }) => status === 201 })
        const after = yield* create(service.address, key, 100)
        assert.isTrue(after.every(({ status }) => status === 201))
        outcomes.push(...meanwhile, ...after)
        assert.deepStrictEqual(outcomes.filter(({ status }) => status !== 201 && status !== 503), [])
        assert.isBelow(Math.max(...outcomes.map(({ took }) => took)), maxResponseMs)

        service.process.kill("SIGKILL")
        yield* Effect.promise(() => service.exit)
        const stored = yield* Effect.provide(
          Effect.flatMap(PgClient.PgClient, (sql) => sql<{ name: string }>`SELECT name FROM pets`),
          Layer.fresh(EmbeddedDatabase.layer(DATA_DIR))
        )
        const names = new Set(stored.map(({ name }) => name))
        assert.strictEqual(names.size, stored.length)
        assert.deepStrictEqual(Load.acknowledged(outcomes).filter((name) => !names.has(name)), [])
      })
  )
})
