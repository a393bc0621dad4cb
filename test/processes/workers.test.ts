/** Tests the worker processes of `WORKERS`, which share both ports, on PostgreSQL and Redis. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { once } from "node:events"
import { readFileSync, writeFileSync } from "node:fs"
import { Agent, request } from "node:http"
import { connect } from "node:net"
import { join } from "node:path"
import { load } from "../../bench/load.ts"
import * as Workload from "../../bench/Workload.ts"
import { freePort, temporaryDirectory } from "../support/Harness.ts"
import { type Running, start, until } from "../support/Process.ts"
import * as Redis from "../support/Redis.ts"

const ADMIN_TOKEN = "adm_0123456789abcdefghijklmnopqrstuvwxyz"

/** The process ids of all workers that have served requests, in the order of their starts. */
const pids = (service: Running): ReadonlyArray<number> =>
  [...service.stderr().matchAll(/Worker (\d+) serves/g)].map(([, pid]) => Number(pid))

const isRunning = (pid: number): boolean => {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}

/** Starts a service with two workers, and returns a key whose limits are never reached. */
const startWorkers = Effect.fnUntraced(function*(env: Readonly<Record<string, string>> = {}) {
  const redis = yield* Redis.run
  yield* redis.start
  const { key, url } = yield* Workload.database(10)
  const service = yield* start({
    DATABASE_URL: url,
    REDIS_URL: redis.url,
    ADMIN_TOKEN,
    WORKERS: "2",
    PORT: String(yield* freePort),
    MANAGEMENT_PORT: String(yield* freePort),
    LOG_LEVEL: "info",
    ...env
  })
  yield* until(() => pids(service).length === 2)
  return { service, key, redis, port: Number(new URL(service.address).port) }
})

const text = (url: string) => Effect.promise(() => fetch(url).then((response) => response.text()))

/** Sends one request over `agent`. Returns the status, or the error's message. It retries nothing. */
const send = (port: number, key: string, agent: Agent | false, isCreate: boolean) =>
  new Promise<number | string>((resolve) => {
    const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" }
    const method = isCreate ? "POST" : "GET"
    request({ port, host: "127.0.0.1", path: "/v1/pets", method, headers, agent }, (response) => {
      response.resume().on("end", () => resolve(response.statusCode ?? 0)).on(
        "error",
        ({ message }) => resolve(message)
      )
    }).on("error", ({ message }) => resolve(message)).end(isCreate ? Workload.newPet : undefined)
  })

/** Keeps sending reads and creates over connections that are kept, and over new ones, until `stop` is called. */
const keepSending = (port: number, key: string) => {
  const outcomes = new Map<number | string, number>()
  const state = { stopped: false }
  const agent = new Agent({ keepAlive: true })
  const caller = async (index: number) => {
    for (let i = index; !state.stopped; i++) {
      const outcome = await send(port, key, index % 2 === 0 && agent, i % 3 === 0)
      outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1)
      if (typeof outcome === "string") await new Promise((resolve) => setTimeout(resolve, 20))
    }
  }
  const callers = Promise.all(Array.from({ length: 12 }, (_, index) => caller(index)))
  return {
    outcomes,
    stop: Effect.promise(async () => {
      state.stopped = true
      await callers
      agent.destroy()
    })
  }
}

const total = (outcomes: ReadonlyMap<unknown, number>): number => outcomes.values().reduce((sum, n) => sum + n, 0)

/** Sends the head of a create, and returns once a worker waits for the body. */
const beginCreate = Effect.fnUntraced(function*(port: number, key: string) {
  const body = `{"name":"last","categoryId":1}`
  const socket = connect(port, "127.0.0.1")
  let received = ""
  socket.on("data", (chunk: Buffer) => {
    received += chunk.toString()
  })
  socket.write(
    `POST /v1/pets HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${key}\r\n` +
      `Content-Type: application/json\r\nContent-Length: ${body.length}\r\nExpect: 100-continue\r\n\r\n`
  )
  yield* until(() => received.includes("100 Continue"))
  return {
    finish: Effect.promise(async () => {
      socket.write(body)
      await once(socket, "close")
      return received
    })
  }
})

/** Sends a request without a key from a local address. Returns what is left of the limit of that address. */
const remainingOf = (port: number, localAddress: string) =>
  Effect.promise(() =>
    new Promise<number>((resolve, reject) => {
      request({ port, host: "127.0.0.1", path: "/v1/pets", localAddress, agent: false }, (response) => {
        response.resume()
        resolve(Number(response.headers["x-ratelimit-remaining"]))
      }).on("error", reject).end()
    })
  )

describe("WORKERS", () => {
  it.live("above 1 needs PostgreSQL, Redis and fixed ports, and reports each in one line", () =>
    Effect.gen(function*() {
      const DATA_DIR = yield* temporaryDirectory
      const failed = yield* Effect.flip(start({ DATA_DIR, WORKERS: "2" }))
      assert.strictEqual(failed.code, 1)
      assert.deepStrictEqual(failed.stderr.trim().split("\n"), [
        "DATABASE_URL: expected a value, because WORKERS is more than 1",
        "REDIS_URL: expected a value, because WORKERS is more than 1",
        "PORT: expected a whole number from 1 to 65535, because WORKERS is more than 1",
        "MANAGEMENT_PORT: expected a whole number from 1 to 65535, because WORKERS is more than 1"
      ])
    }))

  it.live("above 1 ends with the code of the first worker if that cannot start", () =>
    Effect.gen(function*() {
      const env = { WORKERS: "2", PORT: String(yield* freePort), MANAGEMENT_PORT: String(yield* freePort) }
      const failed = yield* Effect.flip(start({
        ...env,
        DATABASE_URL: "postgres://nobody:wrong@127.0.0.1:5432/nothing",
        REDIS_URL: "redis://127.0.0.1:1",
        ADMIN_TOKEN
      }))
      assert.strictEqual(failed.code, 1)
      assert.strictEqual(failed.stderr.match(/Worker \d+ starts/g)?.length, 1)
      assert.match(failed.stderr, /"FATAL"/)
      assert.match(failed.stderr, /Worker \d+ exited with code 1 during its start/)
    }))
})

describe.skipIf(Redis.missing !== undefined || process.env.TEST_DATABASE_URL === undefined)("Two workers", () => {
  it.live("share both ports, count limits exactly, and report as one", () =>
    Effect.gen(function*() {
      const { port, service } = yield* startWorkers()
      const issued = yield* Effect.promise(async () => {
        const response = await fetch(`${service.management}/admin/keys`, {
          method: "POST",
          headers: { authorization: `Bearer ${ADMIN_TOKEN}`, "content-type": "application/json" },
          body: JSON.stringify({ name: "load", plan: "enterprise", limits: { perMinute: 3_000, perDay: 100_000 } })
        })
        return response.json() as Promise<{ readonly key: string }>
      })
      const get = `GET /v1/pets HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${issued.key}\r\n\r\n`
      const { statuses } = yield* Effect.promise(() =>
        load({ ports: [port], request: get, connections: 64, requests: 4_500 })
      )
      assert.deepStrictEqual(Object.fromEntries(statuses), { 200: 3_000, 429: 1_500 })
      assert.notInclude(service.stderr(), "Redis cannot be used")

      // Each worker sees the client's own address, and both count it together.
      for (const address of ["127.0.0.2", "127.0.0.3"]) {
        const remaining = yield* Effect.replicateEffect(remainingOf(port, address), 3)
        assert.deepStrictEqual(remaining, [59, 58, 57])
      }

      // Consecutive connections go to different workers, and each has the sums of both.
      for (let i = 0; i < 4; i++) {
        const metrics = yield* text(`${service.management}/metrics`)
        assert.match(metrics, /^petstore_rate_limit_decisions_total\{outcome="allowed",plan="enterprise"\} 3000$/m)
        assert.match(metrics, /^petstore_http_server_request_duration_seconds_count\{.*200.*\} 3000$/m)
        assert.match(metrics, /^petstore_rate_limit_fallback 0$/m)
        assert.strictEqual(metrics.match(/^# TYPE petstore_rate_limit_fallback gauge$/gm)?.length, 1)
        assert.deepStrictEqual(JSON.parse(yield* text(`${service.management}/readyz`)), {
          status: "ready",
          limits: "shared"
        })
        assert.strictEqual(JSON.parse(yield* text(`${service.management}/healthz`)).status, "healthy")
      }
    }), 60_000)

  it.live(
    "are replaced when they are killed, while requests go on and counters do not fall",
    () =>
      Effect.gen(function*() {
        const { key, port, service } = yield* startWorkers()
        const requests = async (count: number) => {
          const outcomes: Array<number | string> = []
          for (let i = 0; i < count; i++) outcomes.push(await send(port, key, false, false))
          return outcomes
        }
        const served = Effect.map(
          text(`${service.management}/metrics`),
          (metrics) => Number(/^petstore_rate_limit_decisions_total\{.*plan="enterprise"\} (\d+)$/m.exec(metrics)?.[1])
        )
        assert.isTrue((yield* Effect.promise(() => requests(20))).every((status) => status === 200))
        assert.strictEqual(yield* served, 20)
        for (const round of [1, 2]) {
          const victim = pids(service).find(isRunning) ?? 0
          process.kill(victim, "SIGKILL")
          yield* until(() => service.stderr().includes(`Worker ${victim} was killed by SIGKILL`))
          assert.isTrue((yield* Effect.promise(() => requests(20))).every((status) => status === 200))
          yield* until(() => pids(service).length === 2 + round)
          assert.strictEqual(yield* served, 20 + 20 * round)
        }
        assert.include(service.stderr(), "Another one starts at once")
      }),
    60_000
  )

  it.live(
    "have all their connections closed when they are killed, also those that they had not accepted",
    () =>
      Effect.gen(function*() {
        const { port, service } = yield* startWorkers()
        const [victim = 0] = pids(service)
        process.kill(victim, "SIGSTOP")
        let closed = 0
        for (let i = 0; i < 4; i++) {
          const socket = connect(port, "127.0.0.1", () => socket.write("GET /openapi.json HTTP/1.0\r\n\r\n"))
          socket.on("error", () => {}).on("close", () => closed++).resume()
          // The next connection goes to the next worker.
          yield* Effect.sleep("100 millis")
        }
        yield* until(() => closed === 3)
        process.kill(victim, "SIGKILL")
        yield* until(() => closed === 4)
      }),
    60_000
  )

  it.live("are replaced when they hang, while the other one serves requests", () =>
    Effect.gen(function*() {
      const { key, port, service } = yield* startWorkers()
      const [victim = 0] = pids(service)
      process.kill(victim, "SIGSTOP")
      yield* until(() => pids(service).length === 3)
      assert.include(service.stderr(), `Worker ${victim} hangs and is killed`)
      assert.strictEqual(yield* Effect.promise(() => send(port, key, false, false)), 200)
      assert.strictEqual((yield* Effect.promise(() => fetch(`${service.management}/readyz`))).status, 200)
    }), 90_000)

  it.live(
    "that cannot start are started again after longer and longer pauses, and the others stay",
    () =>
      Effect.gen(function*() {
        const DATA_DIR = yield* temporaryDirectory
        const { key, port, service } = yield* startWorkers({ DATA_DIR, ADMIN_TOKEN: "" })
        const [first = 0, second = 0] = pids(service)
        const token = readFileSync(join(DATA_DIR, "admin-token"))
        // No further worker can start with this token.
        writeFileSync(join(DATA_DIR, "admin-token"), "two words")
        service.process.kill("SIGHUP")
        yield* until(() => service.stderr().includes("The rolling restart ends, because a new worker did not start"))
        assert.isTrue(isRunning(first) && isRunning(second))
        process.kill(first, "SIGKILL")
        yield* until(() => /starts at once.*starts in 1 s.*starts in 2 s.*starts in 4 s/s.test(service.stderr()))
        assert.strictEqual(yield* Effect.promise(() => send(port, key, false, false)), 200)
        writeFileSync(join(DATA_DIR, "admin-token"), token)
        yield* until(() => pids(service).length === 3)
        assert.isTrue(isRunning(second))
      }),
    90_000
  )

  it.live("are replaced one by one on SIGHUP without an error for any client", () =>
    Effect.gen(function*() {
      const { key, port, service } = yield* startWorkers()
      const before = pids(service)
      const sending = keepSending(port, key)
      yield* Effect.sleep("500 millis")
      service.process.kill("SIGHUP")
      const readiness = new Set<unknown>()
      while (!service.stderr().includes("The rolling restart is complete")) {
        readiness.add(JSON.parse(yield* text(`${service.management}/readyz`)).status)
        yield* Effect.sleep("50 millis")
      }
      yield* Effect.sleep("500 millis")
      yield* sending.stop
      assert.sameMembers([...sending.outcomes.keys()], [200, 201])
      assert.isAbove(total(sending.outcomes), 2_000)
      assert.deepStrictEqual([...readiness], ["ready"])
      assert.isFalse(before.some(isRunning))
      assert.strictEqual(pids(service).filter(isRunning).length, 2)
      assert.notInclude(service.stderr(), `"ERROR"`)
    }), 60_000)

  it.live(
    "respond to the requests in flight on SIGTERM, and the primary process exits with 0 after them",
    () =>
      Effect.gen(function*() {
        const { key, port, service } = yield* startWorkers()
        const creates = yield* Effect.replicateEffect(beginCreate(port, key), 4)
        service.process.kill("SIGTERM")
        yield* Effect.sleep("300 millis")
        for (const { finish } of creates) assert.include(yield* finish, "HTTP/1.1 201 Created")
        assert.strictEqual(yield* Effect.promise(() => service.exit), 0)
        assert.isFalse(pids(service).some(isRunning))
      }),
    60_000
  )

  it.live("respond to the requests in flight and end when the primary process is killed", () =>
    Effect.gen(function*() {
      const { key, port, service } = yield* startWorkers()
      const creates = yield* Effect.replicateEffect(beginCreate(port, key), 4)
      service.process.kill("SIGKILL")
      yield* Effect.sleep("300 millis")
      for (const { finish } of creates) assert.include(yield* finish, "HTTP/1.1 201 Created")
      yield* until(() => !pids(service).some(isRunning))
    }), 60_000)
})
