/** Tests over sockets the limits on requests in flight, on arriving bodies and on slow clients. */
import { assert, describe, it } from "@effect/vitest"
import { Duration, Effect, Fiber, Layer, Redacted } from "effect"
import { HttpServer } from "effect/http"
import { connect, type Socket } from "node:net"
import { ApiKeys } from "../../../src/api-keys/ApiKeys.ts"
import { AdmissionControl } from "../../../src/http/admission/AdmissionControl.ts"
import { GracefulShutdown } from "../../../src/http/admission/GracefulShutdown.ts"
import { PetRepository } from "../../../src/pets/PetRepository.ts"
import { assertError } from "../../support/Assertions.ts"
import { memory, Service, service } from "../../support/Harness.ts"

const json = "Content-Type: application/json\r\n"

describe("AdmissionControl", () => {
  /** The stores in memory, where a read of one pet never ends. */
  const neverReads = Layer.effect(
    PetRepository,
    Effect.map(PetRepository, (pets) => ({ ...pets, find: () => Effect.never }))
  ).pipe(Layer.provideMerge(memory))

  /** Occupies every slot with pipelined requests of three keys, until the returned fiber is interrupted. */
  const occupySlots = Effect.gen(function*() {
    const { sendAndKeepOpen, newUnlimitedKey } = yield* Service
    const { all } = yield* AdmissionControl
    const requests = yield* Effect.replicateEffect(
      Effect.map(
        newUnlimitedKey,
        (key) => `GET /v1/pets/1 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${key}\r\n\r\n`
      ),
      3
    )
    const fiber = yield* Effect.forkChild(
      Effect.all(requests.flatMap((get) => Array.from({ length: 250 }, () => sendAndKeepOpen(get.repeat(4)))), {
        concurrency: "unbounded"
      })
    )
    while (all.inFlight < 2_500) yield* Effect.sleep("10 millis")
    return fiber
  })

  it.live("returns 503 to a request that waits one second for one of the 2,500 slots", () =>
    Effect.gen(function*() {
      const { call, newKey } = yield* Service
      const key = yield* newKey
      yield* occupySlots
      const [waited, rejected] = yield* Effect.timed(call("/v1/pets", { key }))
      assertError(rejected, 503, "service_unavailable")
      assert.strictEqual(rejected.headers.get("retry-after"), "1")
      assert.isAtLeast(Duration.toMillis(waited), 990)
    }).pipe(Effect.provide(Layer.fresh(service(neverReads)))), 20_000)

  it.live("serves queued requests when slots become free", () =>
    Effect.gen(function*() {
      const { call, newKey } = yield* Service
      const { all } = yield* AdmissionControl
      const key = yield* newKey
      const occupying = yield* occupySlots
      const waiting = yield* Effect.forkChild(
        Effect.all(Array.from({ length: 20 }, () => call("/v1/pets", { key })), { concurrency: "unbounded" })
      )
      yield* Effect.sleep("200 millis")
      assert.strictEqual(waiting.pollUnsafe(), undefined)
      yield* Fiber.interrupt(occupying)
      for (const { status } of yield* Fiber.join(waiting)) assert.strictEqual(status, 200)
      while (all.inFlight > 0) yield* Effect.sleep("10 millis")
    }).pipe(Effect.provide(Layer.fresh(service(neverReads)))), 20_000)

  it.live(
    "gives one key at most 1,000 slots, and no slot to a request whose body is arriving",
    () =>
      Effect.gen(function*() {
        const { call, sendAndKeepOpen, newUnlimitedKey, newKey } = yield* Service
        const { all, handled } = yield* AdmissionControl
        const authorization = `Authorization: Bearer ${yield* newUnlimitedKey}\r\n`
        const get = `GET /v1/pets/1 HTTP/1.1\r\nHost: localhost\r\n${authorization}\r\n`
        const half = `POST /v1/pets HTTP/1.1\r\nHost: localhost\r\n${authorization}${json}Content-Length: 100\r\n\r\n{`
        const send = (bytes: string, connections: number) =>
          Effect.forkChild(
            Effect.all(Array.from({ length: connections }, () => sendAndKeepOpen(bytes)), {
              concurrency: "unbounded",
              discard: true
            })
          )
        yield* send(half, 2_600)
        while (handled() < 2_600) yield* Effect.sleep("10 millis")
        assert.strictEqual(all.inFlight, 0)
        yield* send(get.repeat(5), 300)
        while (all.inFlight < 1_000) yield* Effect.sleep("10 millis")
        const key = yield* newKey
        const [waited, { status }] = yield* Effect.timed(call("/v1/pets", { key }))
        assert.strictEqual(status, 200)
        assert.isBelow(Duration.toMillis(waited), 900)
        const body = `{"name":"Rex","categoryId":1}`
        const headers = { "content-type": "application/json" }
        assert.strictEqual((yield* call("/v1/pets", { key, method: "POST", body, headers })).status, 201)
        yield* Effect.sleep("1500 millis")
        assert.strictEqual(all.inFlight, 1_000)
      }).pipe(Effect.provide(Layer.fresh(service(neverReads)))),
    30_000
  )
})

describe("AdmissionControl for one caller", () => {
  /** The stores in memory, where the lookup of the key `made-up` never ends. */
  const slowLookups = Layer.effect(
    ApiKeys,
    Effect.map(ApiKeys, (keys) => ({
      ...keys,
      verify: (key, beforeLookup) =>
        Redacted.value(key) === "made-up"
          ? Effect.andThen(beforeLookup ?? Effect.void, Effect.never)
          : keys.verify(key, beforeLookup)
    }))
  ).pipe(Layer.provideMerge(memory))
  const neverCreates = Layer.effect(
    PetRepository,
    Effect.map(PetRepository, (pets) => ({ ...pets, create: () => Effect.never }))
  ).pipe(Layer.provideMerge(memory))

  it.live(
    "gives at most 1,000 slots when the bodies of 2,600 requests arrive at once",
    () =>
      Effect.gen(function*() {
        const { call, newUnlimitedKey, newKey } = yield* Service
        const { address } = yield* HttpServer.HttpServer
        const port = address._tag === "UnixPathAddress" ? 0 : address.port
        const { all, handled } = yield* AdmissionControl
        const head =
          `POST /v1/pets HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${yield* newUnlimitedKey}\r\n${json}`
        const body = `{"name":"Rex","categoryId":1}`
        const sockets = yield* Effect.acquireRelease(
          Effect.sync(() =>
            Array.from({ length: 2_600 }, () => {
              const socket = connect(port, "127.0.0.1").on("error", () => {})
              socket.write(`${head}Content-Length: ${body.length}\r\n\r\n${body.slice(0, -1)}`)
              return socket.resume()
            })
          ),
          (sockets) => Effect.sync(() => sockets.forEach((socket) => socket.destroy()))
        )
        while (handled() < 2_600) yield* Effect.sleep("10 millis")
        for (const socket of sockets) socket.write("}")
        while (all.inFlight < 1_000) yield* Effect.sleep("10 millis")
        const key = yield* newKey
        for (let i = 0; i < 10; i++) {
          assert.strictEqual((yield* call("/v1/pets", { key })).status, 200)
          assert.isAtMost(all.inFlight, 1_000)
          yield* Effect.sleep("20 millis")
        }
      }).pipe(Effect.provide(Layer.fresh(service(neverCreates)))),
    20_000
  )

  it.live(
    "accepts at most 4,000 connections of an address, unless it is a trusted proxy",
    () =>
      Effect.gen(function*() {
        const { address } = yield* HttpServer.HttpServer
        const port = address._tag === "UnixPathAddress" ? 0 : address.port
        const open = Effect.fnUntraced(function*(localAddress: string) {
          const count = { connected: 0, closed: 0 }
          yield* Effect.acquireRelease(
            Effect.sync(() =>
              Array.from({ length: 4_010 }, () =>
                connect({ port, host: "127.0.0.1", localAddress })
                  .on("connect", () => count.connected++)
                  .on("error", () => {})
                  .on("close", () => count.closed++)
                  .resume())
            ),
            (sockets) => Effect.sync(() => sockets.forEach((socket) => socket.destroy()))
          )
          while (count.connected < 4_010) yield* Effect.sleep("10 millis")
          // Node accepts one connection in each turn of its event loop.
          yield* Effect.sleep("3 seconds")
          return count.closed
        })
        assert.strictEqual(yield* Effect.scoped(open("127.0.0.2")), 10)
        assert.strictEqual(yield* Effect.scoped(open("127.0.0.3")), 0)
      }).pipe(Effect.provide(Layer.fresh(service(memory, { TRUSTED_PROXIES: "127.0.0.3" })))),
    30_000
  )

  it.live("gives at most 1,000 slots while lookups of its unknown keys take long", () =>
    Effect.gen(function*() {
      const { call, sendAndKeepOpen, newKey } = yield* Service
      const { all } = yield* AdmissionControl
      const get = "GET /v1/pets HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: 203.0.113.9\r\n" +
        "Authorization: Bearer made-up\r\n\r\n"
      yield* Effect.forkChild(
        Effect.all(Array.from({ length: 700 }, () => sendAndKeepOpen(get.repeat(2))), { concurrency: "unbounded" })
      )
      while (all.inFlight < 1_000) yield* Effect.sleep("10 millis")
      assert.strictEqual((yield* call("/v1/pets", { key: yield* newKey })).status, 200)
      assert.isAtMost(all.inFlight, 1_000)
    }).pipe(Effect.provide(Layer.fresh(service(slowLookups, { TRUSTED_PROXIES: "127.0.0.1" })))), 20_000)
})

describe("Two servers in one process", () => {
  /** The stores in memory, where a read of one pet never ends. */
  const neverReads = Layer.effect(
    PetRepository,
    Effect.map(PetRepository, (pets) => ({ ...pets, find: () => Effect.never }))
  ).pipe(Layer.provideMerge(memory))
  const list = Effect.gen(function*() {
    const { call, newKey } = yield* Service
    return yield* call("/v1/pets", { key: yield* newKey })
  })

  it.live("have separate slots: one serves while the other has none free", () =>
    Effect.gen(function*() {
      const overloaded = yield* Layer.build(Layer.fresh(service(neverReads)))
      const other = yield* Layer.build(Layer.fresh(service(memory)))
      yield* Effect.gen(function*() {
        const { sendAndKeepOpen, newUnlimitedKey } = yield* Service
        const { all } = yield* AdmissionControl
        const keys = yield* Effect.replicateEffect(newUnlimitedKey, 3)
        const get = (key: string) => `GET /v1/pets/1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${key}\r\n\r\n`
        yield* Effect.forkChild(
          Effect.all(keys.flatMap((key) => Array.from({ length: 250 }, () => sendAndKeepOpen(get(key).repeat(4)))), {
            concurrency: "unbounded"
          })
        )
        while (all.inFlight < 2_500) yield* Effect.sleep("10 millis")
      }).pipe(Effect.provideContext(overloaded))
      assert.strictEqual((yield* Effect.provideContext(list, other)).status, 200)
      assert.strictEqual((yield* Effect.provideContext(list, overloaded)).status, 503)
    }), 20_000)

  it.live("shut down separately: one keeps its connections while the other drains", () =>
    Effect.gen(function*() {
      const draining = yield* Layer.build(
        Layer.fresh(service(memory, {}, Layer.succeed(GracefulShutdown, { begun: true })))
      )
      const other = yield* Layer.build(Layer.fresh(service(memory)))
      assert.strictEqual((yield* Effect.provideContext(list, draining)).headers.get("connection"), "close")
      assert.strictEqual((yield* Effect.provideContext(list, other)).headers.get("connection"), "keep-alive")
    }))
})

describe("Request bodies", () => {
  it.live(
    "occupy at most 16 MiB in all: beyond it the connections of the oldest bodies are closed",
    () =>
      Effect.gen(function*() {
        const { call, sendAndKeepOpen, newUnlimitedKey, newKey } = yield* Service
        const { handled } = yield* AdmissionControl
        const authorization = `Authorization: Bearer ${yield* newUnlimitedKey}\r\n`
        const longPost =
          `POST /v1/pets HTTP/1.1\r\nHost: localhost\r\n${authorization}${json}Content-Length: 65536\r\n\r\n${
            "x".repeat(65_000)
          }`
        yield* Effect.forkChild(
          Effect.all(Array.from({ length: 900 }, () => Effect.exit(sendAndKeepOpen(longPost))), {
            concurrency: "unbounded"
          })
        )
        // 258 of these bodies fit into 16 MiB.
        while (handled() < 200) yield* Effect.sleep("10 millis")
        yield* Effect.sleep("2 seconds")
        assert.isAtMost(handled(), 260)
        assert.isAtLeast(handled(), 200)
        assert.strictEqual((yield* call("/v1/pets", { key: yield* newKey })).status, 200)
      }).pipe(Effect.provide(Layer.fresh(service(memory)))),
    20_000
  )

  it.live(
    "do not count once they are read: 300 bodies of 60,000 bytes close no connection that is idle after a body",
    () =>
      Effect.gen(function*() {
        const { newUnlimitedKey } = yield* Service
        const { address } = yield* HttpServer.HttpServer
        const port = address._tag === "UnixPathAddress" ? 0 : address.port
        const body = JSON.stringify({ name: "x".repeat(60_000), categoryId: 1 })
        const post = "POST /v1/pets HTTP/1.1\r\nHost: localhost\r\n" +
          `Authorization: Bearer ${yield* newUnlimitedKey}\r\n${json}Content-Length: ${body.length}\r\n\r\n${body}`
        const open = Effect.acquireRelease(
          Effect.sync(() => connect({ port, host: "127.0.0.1" })),
          (socket) => Effect.sync(() => socket.destroy())
        )
        const send = (socket: Socket) =>
          Effect.promise(() =>
            new Promise<string>((resolve) => {
              socket.once("data", (chunk) => resolve(chunk.toString("latin1").slice(9, 12))).once(
                "close",
                () => resolve("")
              )
              socket.write(post)
            })
          )
        const idle = yield* open
        assert.strictEqual(yield* send(idle), "201")
        const busy = yield* open
        for (let sent = 0; sent < 300; sent++) {
          assert.strictEqual(yield* send(busy), "201")
        }
        assert.strictEqual(yield* send(idle), "201")
      }).pipe(Effect.provide(Layer.fresh(service(memory))), Effect.scoped),
    20_000
  )
})

describe.concurrent("A slow client", () => {
  const sendSlowly = (bytes: string, drip: string) =>
    Effect.gen(function*() {
      const { sendWithDrip } = yield* Service
      return yield* sendWithDrip(bytes, drip)
    }).pipe(Effect.provide(Layer.fresh(service(memory))))

  it.live("gets 408 if its head takes longer than 10 seconds", () =>
    Effect.gen(function*() {
      const startedAt = performance.now()
      assertError(yield* sendSlowly("GET /v1/pets HTTP/1.1\r\nHost: localhost\r\nX: ", "x"), 408, "request_timeout")
      assert.isBelow(performance.now() - startedAt, 15_000)
    }), 20_000)

  it.live("gets 408 if its body takes longer than 30 seconds", () =>
    Effect.gen(function*() {
      const startedAt = performance.now()
      const head = `POST /v1/pets HTTP/1.1\r\nHost: localhost\r\n${json}Content-Length: 1000\r\n`
      const response = yield* sendSlowly(`${head}X-Request-Id: mine\r\nKEY\r\n`, " ")
      assertError(response, 408, "request_timeout")
      assert.strictEqual(response.headers.get("x-request-id"), "mine")
      assert.isBelow(performance.now() - startedAt, 35_000)
    }), 40_000)
})
