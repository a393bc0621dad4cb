/** Tests over sockets the bounds on operations that run at once, on connections and on slow clients. */
import { assert, describe, it } from "@effect/vitest"
import { Duration, Effect, Layer } from "effect"
import { HttpServer } from "effect/http"
import { connect, type Socket } from "node:net"
import { PetRepository } from "../../src/pets/PetRepository.ts"
import { assertError } from "../support/Assertions.ts"
import { memory, Service, service } from "../support/Harness.ts"

const json = "Content-Type: application/json\r\n"

/** Opens connections that send `bytes`, and never read. The scope destroys them. */
const open = (bytes: string, connections: number, localAddress = "127.0.0.1") =>
  Effect.gen(function*() {
    const { address } = yield* HttpServer.HttpServer
    const port = address._tag === "UnixPathAddress" ? 0 : address.port
    return yield* Effect.acquireRelease(
      Effect.sync(() =>
        Array.from({ length: connections }, (): Socket => {
          const socket = connect({ port, host: "127.0.0.1", localAddress }, () => socket.write(bytes))
          return socket.on("error", () => {})
        })
      ),
      (sockets) => Effect.sync(() => sockets.forEach((socket) => socket.destroy()))
    )
  })

describe("A service whose reads of a pet never end", () => {
  /** The stores in memory, where a read of one pet never ends. `reads` counts them. */
  const neverReads = (reads: { count: number }) =>
    Layer.effect(
      PetRepository,
      Effect.map(PetRepository, (pets) => ({
        ...pets,
        find: () =>
          Effect.suspend(() => {
            reads.count++
            return Effect.ensuring(Effect.never, Effect.sync(() => reads.count--))
          })
      }))
    ).pipe(Layer.provideMerge(memory))

  it.live(
    "returns 503 to a request that waits one second for one of the 2,500 slots",
    () => {
      const reads = { count: 0 }
      return Effect.gen(function*() {
        const { call, newKey, newUnlimitedKey } = yield* Service
        const key = yield* newKey
        const get = `GET /v1/pets/1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${yield* newUnlimitedKey}\r\n\r\n`
        const sockets = yield* open(get, 2_500)
        while (reads.count < 2_500) yield* Effect.sleep("10 millis")
        const [waited, rejected] = yield* Effect.timed(call("/v1/pets", { key }))
        assertError(rejected, 503, "service_unavailable")
        assert.strictEqual(rejected.headers.get("retry-after"), "1")
        assert.isAtLeast(Duration.toMillis(waited), 990)
        for (const socket of sockets) socket.destroy()
      }).pipe(Effect.provide(Layer.fresh(service(neverReads(reads)))))
    },
    60_000
  )
})

describe("A body that does not arrive", () => {
  it.live(
    "occupies no slot: while 2,600 requests of one key wait for their bodies, another key is served",
    () =>
      Effect.gen(function*() {
        const { call, newKey, newUnlimitedKey } = yield* Service
        const [key, slow] = [yield* newKey, yield* newUnlimitedKey]
        const remaining = Effect.map(
          call("/v1/pets?limit=1", { key: slow }),
          ({ headers }) => Number(headers.get("x-ratelimit-remaining"))
        )
        const before = yield* remaining
        yield* open(
          `POST /v1/pets HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${slow}\r\n${json}Content-Length: 100\r\n\r\n{`,
          2_600
        )
        while ((yield* remaining) > before - 2_600) yield* Effect.sleep("50 millis")
        assert.strictEqual((yield* call("/v1/pets", { key })).status, 200)
        const body = `{"name":"Rex","categoryId":1}`
        const headers = { "content-type": "application/json" }
        assert.strictEqual((yield* call("/v1/pets", { key, method: "POST", body, headers })).status, 201)
      }).pipe(Effect.provide(Layer.fresh(service(memory)))),
    60_000
  )
})

describe("Connections", () => {
  it.live(
    "of an address are at most 4,000, unless it is a trusted proxy",
    () =>
      Effect.gen(function*() {
        const { call } = yield* Service
        const closedOf = Effect.fnUntraced(function*(localAddress: string) {
          const sockets = yield* open("", 4_010, localAddress)
          while (sockets.some((socket) => socket.connecting)) yield* Effect.sleep("10 millis")
          // The service accepts connections in their order. So it has accepted these before this one.
          yield* call("/openapi.json")
          return sockets.filter((socket) => socket.resume().destroyed || socket.readableEnded).length
        })
        assert.isAtLeast(yield* Effect.scoped(closedOf("127.0.0.2")), 1)
        assert.strictEqual(yield* Effect.scoped(closedOf("127.0.0.3")), 0)
      }).pipe(Effect.provide(Layer.fresh(service(memory, { TRUSTED_PROXIES: "127.0.0.3" })))),
    60_000
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
      assertError(yield* sendSlowly("GET /v1/pets HTTP/1.1\r\nHost: localhost\r\nX: ", "x"), 408, "request_timeout")
    }), 60_000)

  it.live("gets 408 if its body takes longer than 30 seconds", () =>
    Effect.gen(function*() {
      const head = `POST /v1/pets HTTP/1.1\r\nHost: localhost\r\n${json}Content-Length: 1000\r\n`
      const response = yield* sendSlowly(`${head}X-Request-Id: mine\r\nKEY\r\n`, " ")
      assertError(response, 408, "request_timeout")
      assert.strictEqual(response.headers.get("x-request-id"), "mine")
    }), 60_000)
})
