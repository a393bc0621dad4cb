import { assert, describe, it, layer } from "@effect/vitest"
import { Context, Deferred, Duration, Effect, Fiber, Layer } from "effect"
import { join } from "node:path"
import { clientOn, hasServer, temporaryDatabaseUrl } from "../support/Databases.ts"
import * as Load from "../support/Load.ts"
import * as PgBouncer from "../support/PgBouncer.ts"
import * as Postgres from "../support/Postgres.ts"
import { adminToken, issue, type Running, send, sendAdmin, start, until, untilTrue } from "../support/Process.ts"
import * as Proxy from "../support/Proxy.ts"
import { temporaryDirectory } from "../support/Temporary.ts"

const makeDeployment = Effect.gen(function*() {
  const postgres = yield* Postgres.run()
  yield* postgres.admin((sql) => sql`CREATE ROLE petstore LOGIN`)
  yield* postgres.admin((sql) => sql`ALTER DATABASE postgres OWNER TO petstore`)
  const proxy = yield* Proxy.run(postgres.port)
  const service = yield* start({ DATABASE_URL: `postgres://petstore@127.0.0.1:${proxy.port}/postgres` })
  const { key } = yield* issue(service)
  yield* Load.request(service.address, key)
  return { postgres, proxy, service, key }
})
type Deployment = Effect.Success<typeof makeDeployment>
const Deployment = Context.Service<Deployment>("test/Deployment")

type Fault = (deployment: Deployment) => Readonly<Record<"begin" | "end", Effect.Effect<unknown, unknown>>>

const statements = (begin: ReadonlyArray<string>, end: ReadonlyArray<string>): Fault => ({ postgres }) => {
  const run = (each: ReadonlyArray<string>) => postgres.admin((sql) => Effect.forEach(each, (line) => sql.unsafe(line)))
  return { begin: run(begin), end: run(end) }
}

const network = (fault: Proxy.Fault): Fault => ({ proxy }) => ({
  begin: Effect.sync(() => proxy.setFault(fault)),
  end: Effect.sync(() => proxy.setFault(undefined))
})

const tableLock = (mode: string): Fault => ({ postgres }) => {
  const released = Deferred.makeUnsafe<void>()
  const lock = postgres.admin((sql) =>
    sql.withTransaction(Effect.andThen(sql.unsafe(`LOCK TABLE pets IN ${mode} MODE`), Deferred.await(released)))
  )
  return { begin: Effect.forkDetach(lock), end: Deferred.succeed(released, undefined) }
}

const disconnect = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'petstore'"
const limit = "ALTER ROLE petstore CONNECTION LIMIT"
const [alter, readOnly, reload] = ["ALTER SYSTEM", "default_transaction_read_only", "SELECT pg_reload_conf()"]

type Options = { readonly callers?: number; readonly readsSucceed?: true }

/** The faults. A silent one lasts longer than every timeout of a statement or a connection. */
const faults: ReadonlyArray<readonly [name: string, Fault, seconds: number, Options?]> = [
  ["is killed", ({ postgres }) => ({ begin: postgres.kill, end: postgres.start }), 2],
  ["hangs", ({ postgres }) => ({ begin: postgres.freeze, end: postgres.thaw }), 8, { callers: 200 }],
  ["accepts no more connections", statements([`${limit} 0`, disconnect], [`${limit} -1`]), 2],
  ["is read-only", statements([`${alter} SET ${readOnly} = on`, reload], [`${alter} RESET ${readOnly}`, reload]), 2],
  ["is cut off", network("refusing"), 2],
  ["is behind half-open connections", network("hanging"), 8],
  ["falls silent and refuses new connections", network("severed"), 8],
  ["has a locked table", tableLock("ACCESS EXCLUSIVE"), 4],
  ["has a table that is locked for writes", tableLock("SHARE"), 4, { readsSucceed: true }]
]

const operate = ({ management }: Running, longest: Map<string, number>) =>
  Effect.forever(
    Effect.forEach(["/readyz", "/admin/keys?state=banned", "/admin/usage", "/admin/audit"], (path) =>
      Effect.map(Effect.timed(send(`${management}${path}`, adminToken)), ([took]) =>
        longest.set(path, Math.max(longest.get(path) ?? 0, Duration.toMillis(took)))))
  )

const isSuccess = ({ status }: Load.Outcome): boolean => status === 200 || status === 201

/**
 * Each response is a success or a 503 with Retry-After. The log has the times, because the callers can be slow. `from`
 * is the length of the log before the requests.
 */
const assertBounded = Effect.fnUntraced(function*(all: ReadonlyArray<Load.Outcome>, service: Running, from: number) {
  const isRejection = ({ retryAfter, status }: Load.Outcome) => status === 503 && Number(retryAfter) > 0
  assert.deepStrictEqual(all.filter((each) => !isSuccess(each) && !isRejection(each)), [], service.stderr())
  // The log can arrive after the responses. The line of this request is the last one.
  yield* send(`${service.address}/end`, "")
  const log = () => service.stderr().slice(from)
  yield* until(() => log().includes(`"path":"/end"`))
  const durations = Array.from(log().matchAll(/"durationMs":([\d.]+)/g), ([, duration]) => Number(duration))
  assert.isAtLeast(durations.length, all.length)
  assert.isBelow(Math.max(...durations), 6_000, "the longest response")
})

describe.skipIf(!Postgres.isInstalled)("While the database", () => {
  layer(Layer.effect(Deployment, makeDeployment), { excludeTestServices: true })((it) => {
    for (const [name, fault, seconds, { callers = 16, readsSucceed = false } = {}] of faults) {
      it.effect(`${name}, requests succeed or get 503 with Retry-After, and no acknowledged pet is lost`, () =>
        Effect.gen(function*() {
          const deployment = yield* Deployment
          const [{ key, postgres, service }, { begin, end }] = [deployment, fault(deployment)]
          const from = service.stderr().length
          const load = yield* Load.run(service.address, key, callers)
          yield* until(() => Load.acknowledged(load.outcomes).length > 50)
          yield* begin
          const beganAt = performance.now()
          const longest = new Map<string, number>()
          const operator = yield* Effect.forkChild(operate(service, longest))
          yield* Effect.sleep(`${seconds} seconds`)
          const isRejectedCreate = ({ method, sentAt, status, took }: Load.Outcome) =>
            method === "POST" && status === 503 && sentAt + took > beganAt
          yield* until(() => load.outcomes.some(isRejectedCreate))
          yield* end
          const endedAt = performance.now()

          const paths = [undefined, "/v1/pets/1", "/v1/pets?limit=2"]
          const requests = Effect.forEach(paths, (path) => Load.request(service.address, key, path))
          const isRecovered = Effect.map(requests, (responses) => responses.every(isSuccess))
          yield* untilTrue(isRecovered, "the service has recovered", 10)
          const recoveredAt = performance.now()
          const after = () => load.outcomes.filter(({ sentAt }) => sentAt > recoveredAt)
          yield* until(() => after().length > 20)
          yield* load.stop
          yield* Fiber.interrupt(operator)
          yield* assertBounded(load.outcomes, service, from)
          assert.isTrue(after().every(isSuccess))
          for (const [path, took] of longest) assert.isBelow(took, path === "/readyz" ? 2_000 : 6_000, path)

          const reads = load.outcomes.filter(({ method, sentAt, took }) =>
            method === "GET" && sentAt + took > beganAt && sentAt < endedAt
          )
          if (readsSucceed) assert.isTrue(reads.length > 10 && reads.every(isSuccess))
          yield* Load.assertStored(load.outcomes, clientOn(postgres.url))
        }))
    }

    // The last test, because its requests take longer than those of a fault may.
    it.effect("responds late, a process that was stopped for 3.5 seconds with statements in flight sends no 503", () =>
      Effect.gen(function*() {
        const { key, proxy, service } = yield* Deployment
        proxy.setFault("slow")
        const load = yield* Load.run(service.address, key, 50)
        yield* load.untilMore(200)
        // Longer than the timeout of a read. A connection that opens meanwhile has five seconds.
        service.process.kill("SIGSTOP")
        yield* Effect.sleep("3500 millis")
        service.process.kill("SIGCONT")
        yield* load.untilMore(200)
        yield* load.stop
        Load.assertStatuses(load.outcomes, 200, 201)
        assert.isAbove(Math.max(...load.outcomes.map(({ took }) => took)), 3_500)
      }))
  })
})

describe.skipIf(!Postgres.isInstalled)("A process", () => {
  it.live("accepts only the restored keys one second after a restore", () =>
    Effect.gen(function*() {
      const { url } = yield* Postgres.run()
      const service = yield* start({ DATABASE_URL: url })
      const [valid, revoked] = [yield* issue(service), yield* issue(service)]
      const dump = join(yield* temporaryDirectory, "petstore.dump")
      yield* Postgres.command("pg_dump", ["-Fc", "-f", dump, url])
      yield* sendAdmin(service, "DELETE", `/keys/${revoked.id}`)
      const keys = [valid, revoked, yield* issue(service)]
      const responses = Effect.forEach(keys, ({ key }) => send(`${service.address}/v1/pets`, key))
      // After too many requests without a valid key, a 429 stands for a 401.
      const statuses = Effect.map(responses, (each) => each.map(({ status }) => status === 429 ? 401 : status))
      assert.deepStrictEqual(yield* statuses, [200, 401, 200])
      // The keys stay in use, so that the process reads them again before their leases end.
      const requesting = yield* Effect.forkChild(Effect.forever(Effect.andThen(statuses, Effect.sleep("20 millis"))))
      yield* Postgres.command("pg_restore", ["--clean", "--if-exists", "--single-transaction", "-d", url, dump])
      yield* Effect.sleep("1 second")
      assert.deepStrictEqual(yield* statuses, [200, 200, 401])
      yield* Fiber.interrupt(requesting)
    }))

  const title = "behind PgBouncer responds with 503 only during an outage or a lock, and loses no pet"
  it.live.skipIf(!PgBouncer.isInstalled)(title, () =>
    Effect.gen(function*() {
      const postgres = yield* Postgres.run()
      const pooler = yield* PgBouncer.run(postgres.url, "transaction")
      const { stderr } = yield* Effect.flip(start({ DATABASE_URL: pooler.urlWithoutParameter }))
      assert.match(stderr, /the server does not accept the parameter statement_timeout\. Add pgbouncer=true/)
      const service = yield* start({ DATABASE_URL: pooler.url })
      const { key } = yield* issue(service)

      yield* postgres.admin((sql) =>
        sql.withTransaction(Effect.gen(function*() {
          yield* sql`LOCK TABLE pets`
          assert.strictEqual((yield* Load.request(service.address, key)).status, 503)
          // The statement that waits for the lock is canceled.
          const waiting = sql`SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%INSERT%'`
          yield* untilTrue(Effect.map(waiting, ({ length }) => length === 0))
        }))
      )
      const load = yield* Load.run(service.address, key, 16)
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
    }))
})

describe.skipIf(!hasServer)("The share of the admin API", () => {
  it.live.each<readonly [connections: number, reads: number]>([[2, 14], [4, 14], [10, 10], [10, 14]])(
    "With %i connections, %i reads of a locked audit log leave /readyz, lists and creates theirs",
    ([connections, reads]) =>
      Effect.gen(function*() {
        const DATABASE_URL = yield* temporaryDatabaseUrl
        const service = yield* start({ DATABASE_URL, DATABASE_MAX_CONNECTIONS: String(connections) })
        const { key } = yield* issue(service)
        const isLocked = yield* Deferred.make<void>()
        const lock = Postgres.queryOn(DATABASE_URL)((sql) =>
          sql.withTransaction(Effect.andThen(
            sql`LOCK TABLE audit_log IN ACCESS EXCLUSIVE MODE`,
            Effect.andThen(Deferred.succeed(isLocked, undefined), Effect.never)
          ))
        )
        yield* Effect.forkScoped(lock)
        yield* Deferred.await(isLocked)
        const audit = sendAdmin(service, "GET", "/audit")
        const waiting = yield* Effect.forkScoped(Effect.replicateEffect(audit, reads, { concurrency: "unbounded" }))
        // Until the reads of the audit log have their 503.
        for (let index = 0; index < 25; index++) {
          assert.strictEqual((yield* send(`${service.management}/readyz`, "")).status, 200)
          assert.strictEqual((yield* Load.request(service.address, key, "/v1/pets")).status, 200)
          assert.strictEqual((yield* Load.request(service.address, key)).status, 201)
          yield* Effect.sleep("100 millis")
        }
        assert.deepStrictEqual(new Set((yield* Fiber.join(waiting)).map(({ status }) => status)), new Set([503]))
      })
  )
})
