import { assert, describe, it } from "@effect/vitest"
import { Duration, Effect } from "effect"
import { assertError } from "../support/Assertions.ts"
import { memory } from "../support/Databases.ts"
import { until } from "../support/Process.ts"
import { Service, service } from "../support/Service.ts"
import { message, openConnections } from "../support/Sockets.ts"

/** Whether an end came `seconds` after its start. Node looks once a second, and keeps an idle connection for one more. */
const isAfter = (seconds: number, duration: Duration.Duration): boolean =>
  Math.abs(Duration.toSeconds(duration) - seconds - 1.4) < 1.5

describe.concurrent("The API port", () => {
  it.live("closes an idle connection KEEP_ALIVE_SECONDS after its last byte, and within 13 more despite empty lines", () =>
    Effect.gen(function*() {
      const { port } = yield* Service
      const sockets = yield* openConnections(port, 2, { bytes: message("GET / HTTP/1.1", ["Host: x"]) })
      const [idle, dripping] = sockets.map((socket) => socket.resume())
      const drip = setInterval(() => dripping?.write("\r\n"), 300)
      yield* Effect.addFinalizer(() => Effect.sync(() => clearInterval(drip)))
      yield* until(() => [idle, dripping].every((socket) => (socket?.bytesRead ?? 0) > 0))
      const [duration] = yield* Effect.timed(until(() => idle?.destroyed === true))
      assert.isTrue(isAfter(3, duration), Duration.format(duration))
      yield* until(() => dripping?.destroyed === true, 15)
    }).pipe(Effect.provide(service(memory, { KEEP_ALIVE_SECONDS: "3" }))))

  const body = ["Host: x", "KEY", "Content-Type: application/json", "Content-Length: 99"]
  it.live.each<readonly [title: string, seconds: number, bytes: string]>([
    ["head takes longer than 10 seconds", 10, "GET /v1/pets HTTP/1.1\r\nX: "],
    ["body takes longer than 30 seconds", 30, message("POST /v1/pets HTTP/1.1", body)]
  ])("returns 408 to a client whose %s", ([, seconds, bytes]) =>
    Effect.gen(function*() {
      const { newKey, send } = yield* Service
      const [duration, response] = yield* Effect.timed(send(bytes, { drip: " ", key: newKey }))
      assertError(response, 408, "request_timeout")
      assert.isTrue(isAfter(seconds, duration), Duration.format(duration))
    }).pipe(Effect.provide(service(memory))))
})
