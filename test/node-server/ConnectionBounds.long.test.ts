/** Tests over sockets the bounds on idle and slow clients. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { assertError } from "../support/Assertions.ts"
import { memory } from "../support/Databases.ts"
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

  const body = ["Host: x", "KEY", "Content-Type: application/json", "Content-Length: 99"]
  it.live.each<readonly [title: string, bytes: string]>([
    ["head takes longer than 10", "GET /v1/pets HTTP/1.1\r\nX: "],
    ["body takes longer than 30", message("POST /v1/pets HTTP/1.1", body)]
  ])("returns 408 to a client whose %s seconds", ([, bytes]) =>
    Effect.gen(function*() {
      const { newKey, send } = yield* Service
      assertError(yield* send(bytes, { drip: " ", key: newKey }), 408, "request_timeout")
    }).pipe(Effect.provide(service(memory))))
})
