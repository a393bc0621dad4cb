/** Tests over sockets the bounds on operations that run at once, on connections and on slow clients. */
import { assert, describe, it } from "@effect/vitest"
import { Duration, Effect, Fiber, Layer } from "effect"
import { HttpServer } from "effect/http"
import { connect, type Socket } from "node:net"
import { PetRepository } from "../../src/pets/PetRepository.ts"
import { assertError } from "../support/Assertions.ts"
import { memory, Service, service } from "../support/Harness.ts"
import { until } from "../support/Process.ts"

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

describe("The service", () => {
  let reads = 0
  /** The stores in memory, where a read of one pet never ends. */
  const neverReads = Layer.effect(
    PetRepository,
    Effect.map(PetRepository, (pets) => ({ ...pets, find: () => Effect.suspend(() => (reads++, Effect.never)) }))
  ).pipe(Layer.provideMerge(memory))

  it.live("returns 503 to a request that waits one second for one of the 2,500 slots", () =>
    Effect.gen(function*() {
      const { call, newKey, newUnlimitedKey } = yield* Service
      const key = yield* newKey
      const sockets = yield* open(
        `GET /v1/pets/1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${yield* newUnlimitedKey}\r\n\r\n`,
        2_500
      )
      yield* until(() => reads === 2_500)
      const [waited, rejected] = yield* Effect.timed(call("/v1/pets", { key }))
      assertError(rejected, 503, "service_unavailable")
      assert.strictEqual(rejected.headers.get("retry-after"), "1")
      assert.isAtLeast(Duration.toMillis(waited), 990)
      // An interrupted request frees its slot, which goes to the one that waits.
      const served = Effect.gen(function*() {
        const response = yield* Effect.forkChild(call("/v1/pets", { key }))
        sockets.pop()?.resetAndDestroy()
        return yield* Fiber.join(response)
      })
      // A pause of this machine of a second lets the request wait for too long.
      yield* Effect.repeat(served, { until: ({ status }) => status === 200 })
    }).pipe(Effect.provide(Layer.fresh(service(neverReads, { MAX_CONNECTIONS_PER_ADDRESS: "3000" })))))

  const limit = { MAX_CONNECTIONS_PER_ADDRESS: "20", TRUSTED_PROXIES: "127.0.0.3" }
  it.live("closes each connection of an address beyond the maximum, unless it is a trusted proxy", () =>
    Effect.gen(function*() {
      const { call } = yield* Service
      const closedOf = Effect.fnUntraced(function*(localAddress: string) {
        const sockets = yield* open("", 30, localAddress)
        yield* until(() => sockets.every(({ connecting }) => !connecting))
        const closed = () => sockets.filter((socket) => socket.resume().destroyed || socket.readableEnded).length
        // The service accepts connections in their order, so it has accepted these before this one.
        yield* call("/openapi.json")
        yield* Effect.sleep("100 millis")
        return closed()
      })
      assert.strictEqual(yield* Effect.scoped(closedOf("127.0.0.2")), 10)
      assert.strictEqual(yield* Effect.scoped(closedOf("127.0.0.3")), 0)
      // Closed connections count no more.
      assert.strictEqual(yield* Effect.scoped(closedOf("127.0.0.2")), 10)
    }).pipe(Effect.provide(Layer.fresh(service(memory, limit)))))
})

describe.concurrent("A slow client", () => {
  const json = "Content-Type: application/json\r\nContent-Length: 99\r\n"
  const requests = [
    ["head takes longer than 10", "GET /v1/pets HTTP/1.1\r\nHost: localhost\r\nX: "],
    ["body takes longer than 30", `POST /v1/pets HTTP/1.1\r\nHost: localhost\r\n${json}KEY\r\n`]
  ] as const
  it.live.each(requests)("gets 408 if its %s seconds", ([, bytes]) =>
    Effect.gen(function*() {
      const response = yield* Effect.flatMap(Service, ({ sendWithDrip }) => sendWithDrip(bytes, " "))
      assertError(response, 408, "request_timeout")
    }).pipe(Effect.provide(Layer.fresh(service(memory)))))
})
