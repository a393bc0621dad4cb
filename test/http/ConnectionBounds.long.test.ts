/** Tests over sockets the bounds on all connections of a port, on idle ones, and on the labels of metrics. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer, Metric } from "effect"
import { memory } from "../support/Databases.ts"
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
})
