/** Tests over sockets the bounds on connections, idle and slow clients, operations at once, and labels of metrics. */
import { assert, describe, it } from "@effect/vitest"
import { Duration, Effect, Fiber, Layer, Metric } from "effect"
import { assertError } from "../support/Assertions.ts"
import { memory, memoryWith } from "../support/Databases.ts"
import { until } from "../support/Process.ts"
import { Service, service } from "../support/Service.ts"
import { openConnections } from "../support/Sockets.ts"

describe.concurrent("The API port", () => {
  it.live("closes each connection beyond MAX_CONNECTIONS", () =>
    Effect.gen(function*() {
      const { port } = yield* Service
      const sockets = yield* openConnections(port, 30, {})
      for (const socket of sockets) socket.resume()
      const closed = () => sockets.filter(({ destroyed, readableEnded }) => destroyed || readableEnded).length
      yield* until(() => closed() >= 10)
      yield* Effect.sleep("200 millis")
      assert.strictEqual(closed(), 10)
    }).pipe(Effect.provide(Layer.fresh(service(memory, { MAX_CONNECTIONS: "20" })))))

  it.live("closes an idle connection KEEP_ALIVE_SECONDS after its last byte", () =>
    Effect.gen(function*() {
      const { port } = yield* Service
      const [idle, dripping] = yield* openConnections(port, 2, { bytes: "GET / HTTP/1.1\r\nHost: x\r\n\r\n" })
      assert(idle !== undefined && dripping !== undefined)
      for (const socket of [idle, dripping]) socket.resume()
      const drip = setInterval(() => dripping.write("\r\n"), 300)
      yield* Effect.addFinalizer(() => Effect.sync(() => clearInterval(drip)))
      yield* until(() => idle.destroyed)
      yield* Effect.sleep("3 seconds")
      assert.isFalse(dripping.destroyed)
    }).pipe(Effect.provide(Layer.fresh(service(memory, { KEEP_ALIVE_SECONDS: "1" })))))

  it.live("has the same labels of metrics for any unknown method and path", () =>
    Effect.gen(function*() {
      const { send } = yield* Service
      const countOf = Effect.map(Metric.snapshot, (metrics) =>
        metrics.filter(({ attributes, id }) =>
          id === "http.server.request.duration" && attributes?.["http.request.method"] === "_OTHER"
        ).length)
      const request = (line: string) =>
        send(`${line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`)
      yield* request("PROPFIND /a")
      const before = yield* countOf
      for (const line of ["MKCOL /b", "LOCK /c", "PROPFIND /d?e=f"]) {
        yield* request(line)
      }
      assert.isAtLeast(before, 1)
      assert.strictEqual(yield* countOf, before)
    }).pipe(Effect.provide(Layer.fresh(service(memory)))))

  let reads = 0
  /** The stores in memory, where a read of one pet never ends. */
  const neverReads = memoryWith(() => ({ find: () => Effect.suspend(() => (reads++, Effect.never)) }))

  it.live("returns 503 to a request that waits one second for one of the 2,500 slots", () =>
    Effect.gen(function*() {
      const { call, newKey, newUnlimitedKey, port } = yield* Service
      const key = yield* newKey
      const bytes = `GET /v1/pets/1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${yield* newUnlimitedKey}\r\n\r\n`
      const sockets = yield* openConnections(port, 2_500, { bytes })
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

  const json = "Content-Type: application/json\r\nContent-Length: 99\r\n"
  const requests = [
    ["head takes longer than 10", "GET /v1/pets HTTP/1.1\r\nHost: localhost\r\nX: "],
    ["body takes longer than 30", `POST /v1/pets HTTP/1.1\r\nHost: localhost\r\n${json}KEY\r\n`]
  ] as const
  it.live.each(requests)("returns 408 to a client whose %s seconds", ([, bytes]) =>
    Effect.gen(function*() {
      const response = yield* Effect.flatMap(Service, ({ sendWithDrip }) => sendWithDrip(bytes, " "))
      assertError(response, 408, "request_timeout")
    }).pipe(Effect.provide(Layer.fresh(service(memory)))))
})
