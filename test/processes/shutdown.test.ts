import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import type { SqlClient } from "effect/sql"
import { connect } from "node:net"
import * as Balancer from "../support/Balancer.ts"
import { clientOn, dataDirectory, temporaryDatabaseUrl } from "../support/Databases.ts"
import { readPage } from "../support/Documents.ts"
import * as Load from "../support/Load.ts"
import { queryOn } from "../support/Postgres.ts"
import { issue, metricsOf, portOf, send, start, stop, until, untilTrue } from "../support/Process.ts"
import * as Proxy from "../support/Proxy.ts"
import * as Redis from "../support/Redis.ts"
import { haproxy } from "../support/setup.ts"
import { message, sendBytes } from "../support/Sockets.ts"
import { freePort } from "../support/Temporary.ts"

const statusOf = (url: string) => Effect.map(send(url, ""), ({ status }) => status)

describe.skipIf(process.env.TEST_DATABASE_URL === undefined)("While processes are replaced under load", () => {
  it.live.skipIf(haproxy === undefined)("no request is lost behind a load balancer", () =>
    Effect.gen(function*() {
      const DATABASE_URL = yield* temporaryDatabaseUrl
      const { address, metrics, servers, untilBothUp } = yield* Balancer.run(readPage("deploy/haproxy.cfg"))
      const run = (ports: (typeof servers)[0]) => start({ DATABASE_URL, DRAIN_SECONDS: "3", ...ports })
      const { body, headers, status } = yield* send(`${address}/v1/pets`, "")
      assert.deepStrictEqual([status, body.code, headers.get("retry-after")], [503, "service_unavailable", "1"])
      assert.match(yield* metrics, /^haproxy_frontend_http_responses_total\{proxy="petstore",code="5xx"\} 1$/m)
      const processes = [yield* run(servers[0]), yield* run(servers[1])] as const
      yield* untilBothUp
      const { key } = yield* issue(processes[0])
      yield* Load.request(address, key)
      const load = yield* Load.run(address, key, 16)
      for (const [index, { address, exit, management, process }] of processes.entries()) {
        yield* load.untilMore(200)
        process.kill("SIGTERM")
        // Readiness fails first, while the process still serves requests.
        yield* untilTrue(Effect.map(statusOf(`${management}/readyz`), (status) => status === 503))
        assert.strictEqual(yield* statusOf(`${address}/v1/pets`), 401)
        assert.strictEqual(yield* Effect.promise(() => exit), 0)
        yield* run(servers[index === 0 ? 0 : 1])
        yield* untilBothUp
      }
      yield* load.untilMore(200)
      yield* load.stop
      Load.assertStatuses(load.outcomes, 200, 201)
    }))

  const stops = Number(process.env.STOPS ?? 20)
  it.live.skipIf(haproxy === undefined)(
    "no request of 32 saturating callers is lost in STOPS stops, as deployed",
    () =>
      Effect.gen(function*() {
        const DATABASE_URL = yield* temporaryDatabaseUrl
        const { address, servers, untilBothUp } = yield* Balancer.run(readPage("deploy/haproxy.cfg"))
        const run = (ports: (typeof servers)[0]) => start({ DATABASE_URL, DRAIN_SECONDS: "2", ...ports })
        let [next, other] = [yield* run(servers[0]), yield* run(servers[1])]
        yield* untilBothUp
        const { key } = yield* issue(next)
        yield* Load.request(address, key)
        const load = yield* Load.run(address, key, 32)
        for (let count = 0; count < stops; count++) {
          yield* load.untilMore(500)
          assert.strictEqual(yield* stop(next, "SIGTERM"), 0)
          Load.assertStatuses(load.outcomes, 200, 201)
          ;[next, other] = [other, yield* run(servers[count % 2 === 0 ? 0 : 1])]
          yield* untilBothUp
        }
        yield* load.stop
        Load.assertStatuses(load.outcomes, 200, 201)
      }),
    600_000
  )

  it.live.skipIf(haproxy === undefined)(
    "the load balancer repeats the reads of a process that was killed",
    () =>
      Effect.gen(function*() {
        const DATABASE_URL = yield* temporaryDatabaseUrl
        const { address, servers, untilBothUp } = yield* Balancer.run(readPage("deploy/haproxy.cfg"))
        const processes = [
          yield* start({ DATABASE_URL, ...servers[0] }),
          yield* start({ DATABASE_URL, ...servers[1] })
        ] as const
        yield* untilBothUp
        const { key } = yield* issue(processes[0])
        const load = yield* Load.run(address, key, 32)
        yield* load.untilMore(500)
        yield* stop(processes[0], "SIGKILL")
        yield* load.untilMore(500)
        yield* load.stop
        // A create without an Idempotency-Key is not repeated. There is no pet 1 before the first create.
        Load.assertStatuses(load.outcomes.filter(({ method }) => method === "GET"), 200, 404)
        assert.isNotEmpty(load.outcomes.filter(({ method, status }) => method === "POST" && status !== 201))
      })
  )

  it.live.skipIf(!Redis.isInstalled)("no pet is lost on one port, only connections", () =>
    Effect.gen(function*() {
      const { url: REDIS_URL } = yield* Redis.runStarted()
      const [DATABASE_URL, PORT] = [yield* temporaryDatabaseUrl, String(yield* freePort)]
      const env = { DATABASE_URL, REDIS_URL, PORT, REUSE_PORT: "true", DRAIN_SECONDS: "1" }
      const before = [yield* start(env), yield* start(env)] as const
      const { key } = yield* issue(before[0])
      const load = yield* Load.run(before[0].address, key, 16)
      yield* load.untilMore(200)
      // Linux spreads the connections of the callers over both processes.
      for (const service of before) assert.match(yield* metricsOf(service), /request_duration_seconds_count\{.*"200"/)
      for (const service of before) {
        assert.strictEqual(yield* stop(service, "SIGTERM"), 0)
        yield* start(env)
      }
      yield* load.untilMore(200)
      yield* load.stop

      // Status 0 stands for a reset connection, and there is no pet 1 before the first create.
      Load.assertStatuses(load.outcomes, 0, 200, 201, 404)
      yield* Load.assertStored(load.outcomes, clientOn(DATABASE_URL))
    }))
})

it.live("On SIGTERM a process closes idle connections at once, and waits for the requests that are still arriving", () =>
  Effect.gen(function*() {
    const service = yield* start({ DATA_DIR: yield* dataDirectory })
    const closed: Array<string> = []
    const received = new Map<string, string>()
    const open = (name: string, sent: string) =>
      Effect.callback<void>((resume) => {
        const socket = connect(portOf(service), "127.0.0.1").setEncoding("latin1")
        socket.on("error", () => {}).on("close", () => void closed.push(name))
        socket.on("data", (text) => void received.set(name, String(text)))
        socket.write(sent, () => resume(Effect.void))
      })
    const pet = `{"name":"Rex","categoryId":1}`
    const head = (...fields: ReadonlyArray<string>) =>
      message("POST /v1/pets HTTP/1.1", [
        "Host: x",
        `Content-Length: ${pet.length}`,
        "Content-Type: application/json",
        ...fields
      ])
    const { key } = yield* issue(service)
    const withKey = head(`Authorization: Bearer ${key}`)
    // The last byte of this request arrives one second later, after the signal.
    const sending = sendBytes(portOf(service), withKey + pet.slice(0, -1), { drip: "}" })
    const response = yield* Effect.forkChild(sending, { startImmediately: true })
    yield* open("silent without a key", `${head()}{`)
    yield* open("silent with a key", `${withKey}{`)
    yield* open("idle", "GET /v1/pets HTTP/1.1\r\nHost: x\r\n\r\n")
    // This response follows the start of the requests before it.
    yield* statusOf(`${service.address}/v1/pets`)
    assert.strictEqual(yield* stop(service, "SIGTERM"), 0)
    assert.strictEqual((yield* Fiber.join(response)).status, 201)
    yield* until(() => closed.length === 3)
    assert.strictEqual(closed[0], "idle")
    assert.sameMembers(closed.slice(1), ["silent without a key", "silent with a key"])
    assert.match(
      received.get("silent with a key") ?? "",
      /^HTTP\/1\.1 503 [^]*retry-after: 1\r\n[^]*"service_unavailable"/
    )
  }))

it.live("Clients that send bytes after a faulty body lose their connections, and delay no stop", () =>
  Effect.gen(function*() {
    const service = yield* start({ DATA_DIR: yield* dataDirectory })
    const head = "POST /v1/pets HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Type: application/json\r\n"
    const { key } = yield* issue(service)
    let closed = 0
    const open = (bytes: string) =>
      Effect.acquireRelease(
        Effect.sync(() => {
          const socket = connect({ port: portOf(service), host: "127.0.0.1", allowHalfOpen: true })
          const drip = setInterval(() => socket.write("x"), 200)
          socket.on("error", () => {}).on("close", () => void closed++).resume().write(bytes)
          return { socket, drip }
        }),
        ({ drip, socket }) =>
          Effect.sync(() => {
            clearInterval(drip)
            socket.destroy()
          })
      )
    const faulty = [`${head}\r\nzz\r\n`, `${head}Authorization: Bearer ${key}\r\n\r\nzz\r\n`]
    const opened = yield* Effect.forEach(Array.from({ length: 10 }, () => faulty).flat(), open)
    yield* until(() => opened.every(({ socket }) => socket.bytesRead > 0))
    yield* until(() => closed === opened.length)
    const late = yield* Effect.forEach(faulty, open)
    yield* until(() => late.every(({ socket }) => socket.bytesRead > 0))
    const signalledAt = performance.now()
    assert.strictEqual(yield* stop(service, "SIGTERM"), 0)
    // A request that is still open would take `maxResponsesClose`.
    assert.isBelow(performance.now() - signalledAt, 5_000)
  }))

const lockedTitle = "A process that cannot write its counts exits with 1, and its log says which are lost"
it.live.skipIf(process.env.TEST_DATABASE_URL === undefined)(lockedTitle, () =>
  Effect.gen(function*() {
    const DATABASE_URL = yield* temporaryDatabaseUrl
    const service = yield* start({ DATABASE_URL })
    const { key } = yield* issue(service)
    const hold = (sql: SqlClient.SqlClient) =>
      sql.withTransaction(Effect.andThen(sql`LOCK TABLE key_limits, key_usage_minutes IN EXCLUSIVE MODE`, Effect.never))
    const locking = yield* Effect.forkScoped(queryOn(DATABASE_URL)(hold))
    const locks = queryOn(DATABASE_URL)((sql) =>
      sql`SELECT FROM pg_locks WHERE relation = 'key_limits'::regclass AND mode = 'ExclusiveLock' AND granted`
    )
    yield* untilTrue(Effect.map(locks, ({ length }) => length > 0), "the tables are locked")
    yield* send(`${service.address}/v1/pets`, key)
    assert.strictEqual(yield* stop(service, "SIGTERM"), 1)
    assert.isUndefined(locking.pollUnsafe())
    assert.match(service.stderr(), /1 values for the table key_limits are lost/)
    assert.match(service.stderr(), /1 values for the table key_usage are lost/)
  }))

const title = "A process whose database hangs exits with 1 within ten seconds, and its log says so"
it.live.skipIf(process.env.TEST_DATABASE_URL === undefined)(title, () =>
  Effect.gen(function*() {
    const database = new URL(yield* temporaryDatabaseUrl)
    const proxy = yield* Proxy.run(Number(database.port || 5432))
    database.port = String(proxy.port)
    const service = yield* start({ DATABASE_URL: database.href, DRAIN_SECONDS: "5" })
    const { key } = yield* issue(service)
    // The service has yet to write the charge of this request, and the last use of the key.
    yield* send(`${service.address}/v1/pets`, key)
    proxy.setFault("hanging")
    const signalledAt = performance.now()
    assert.strictEqual(yield* stop(service, "SIGTERM"), 1)
    assert.isBelow(performance.now() - signalledAt, 10_000)
    assert.include(service.stderr(), "The service did not stop in time")
  }))
