/** Tests over sockets the bounds on idle and slow clients, operations at once, and labels of metrics. */
import { assert, describe, it } from "@effect/vitest"
import { Duration, Effect, Fiber, Metric } from "effect"
import { assertError } from "../support/Assertions.ts"
import { memory, memoryWith } from "../support/Databases.ts"
import { until } from "../support/Process.ts"
import { Service, service } from "../support/Service.ts"
import { message, openConnections } from "../support/Sockets.ts"

describe.concurrent("The API port", () => {
  it.live("closes an idle connection KEEP_ALIVE_SECONDS after its last byte", () =>
    Effect.gen(function*() {
      const { port } = yield* Service
      const sockets = yield* openConnections(port, 2, { bytes: message("GET / HTTP/1.1", ["Host: x"]) })
      const [idle, dripping] = sockets.map((socket) => socket.resume())
      const drip = setInterval(() => dripping?.write("\r\n"), 300)
      yield* Effect.addFinalizer(() => Effect.sync(() => clearInterval(drip)))
      yield* until(() => idle?.destroyed === true)
      yield* Effect.sleep("3 seconds")
      assert.isFalse(dripping?.destroyed)
    }).pipe(Effect.provide(service(memory, { KEEP_ALIVE_SECONDS: "1" }))))

  it.live("has the same metric labels for every unknown method and path", () =>
    Effect.gen(function*() {
      const { send } = yield* Service
      const countAfter = (line: string) =>
        Effect.andThen(
          send(message(`${line} HTTP/1.1`, ["Host: x", "Connection: close"])),
          Effect.map(Metric.snapshot, (metrics) =>
            metrics.filter(({ attributes, id }) =>
              id === "http.server.request.duration" && attributes?.["http.request.method"] === "_OTHER"
            ).length)
        )
      const before = yield* countAfter("PROPFIND /a")
      assert.isAtLeast(before, 1)
      for (const line of ["MKCOL /b", "LOCK /c", "PROPFIND /d?e=f"]) {
        assert.strictEqual(yield* countAfter(line), before)
      }
    }).pipe(Effect.provide(service(memory))))

  let reads = 0
  const neverReads = memoryWith(() => ({ find: () => Effect.suspend(() => (reads++, Effect.never)) }))

  it.live("returns 503 to a request that waits one second for one of the 2,500 slots", () =>
    Effect.gen(function*() {
      const { call, port, unlimitedKey } = yield* Service
      const key = yield* unlimitedKey
      const bytes = message("GET /v1/pets/1 HTTP/1.1", ["Host: x", `Authorization: Bearer ${key}`])
      const sockets = yield* openConnections(port, 2_500, { bytes })
      yield* until(() => reads === 2_500)
      const [waited, rejected] = yield* Effect.timed(call("/v1/pets", { key }))
      assert.deepStrictEqual([rejected.status, rejected.headers.get("retry-after")], [503, "1"])
      assert.isAtLeast(Duration.toMillis(waited), 990)
      // An interrupted request frees its slot, which goes to the one that waits.
      const served = Effect.gen(function*() {
        const response = yield* Effect.forkChild(call("/v1/pets", { key }))
        sockets.pop()?.resetAndDestroy()
        return yield* Fiber.join(response)
      })
      // A pause of this machine of a second lets the request wait for too long.
      yield* Effect.repeat(served, { until: ({ status }) => status === 200 })
    }).pipe(Effect.provide(service(neverReads, { MAX_CONNECTIONS_PER_ADDRESS: "3000" }))))

  it.live.each<readonly [title: string, bytes: string]>([
    ["head takes longer than 10", "GET /v1/pets HTTP/1.1\r\nX: "],
    [
      "body takes longer than 30",
      message("POST /v1/pets HTTP/1.1", ["Host: x", "KEY", "Content-Type: application/json", "Content-Length: 99"])
    ]
  ])("returns 408 to a client whose %s seconds", ([, bytes]) =>
    Effect.gen(function*() {
      const { newKey, send } = yield* Service
      assertError(yield* send(bytes, { drip: " ", key: newKey }), 408, "request_timeout")
    }).pipe(Effect.provide(service(memory))))
})
