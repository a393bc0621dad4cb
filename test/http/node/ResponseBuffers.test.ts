import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { connect, createServer, type Socket } from "node:net"
import { ResponseBuffers } from "../../../src/http/node/ResponseBuffers.ts"

const response = Buffer.alloc(8_000_000)

/** Sends a response to a client that may read nothing for at most half a second, as while other requests queue. */
const send = Effect.acquireRelease(
  Effect.callback<{ readonly client: Socket; readonly server: Socket }>((resume) => {
    const listener = createServer((server) => {
      const flushed = new ResponseBuffers(() => 500).hold(server, response.length, undefined)
      server.on("error", () => {}).on("close", flushed)
      server.end(response)
      listener.close()
      resume(Effect.succeed({ client, server }))
    })
    let client: Socket
    listener.listen(0, "127.0.0.1", () => {
      const address = listener.address()
      client = connect(typeof address === "object" && address !== null ? address.port : 0, "127.0.0.1")
      client.on("error", () => {}).pause()
    })
  }),
  ({ client, server }) => Effect.sync(() => [client, server].forEach((socket) => socket.destroy()))
)

describe("A response whose client reads slowly while requests queue", () => {
  it.live(
    "is sent completely to a client that reads steadily, even if it takes longer than the maximum stall",
    () =>
      Effect.gen(function*() {
        const { client } = yield* send
        const startedAt = performance.now()
        const received = yield* Effect.callback<number>((resume) => {
          let bytes = 0
          // Reads about 4 MB per second.
          client.on("data", (chunk: Buffer) => {
            bytes += chunk.length
            client.pause()
            setTimeout(() => client.resume(), chunk.length / 4_000)
          })
          client.on("close", () => resume(Effect.succeed(bytes)))
          client.resume()
        })
        assert.strictEqual(received, response.length)
        assert.isAbove(performance.now() - startedAt, 1_000)
      }),
    20_000
  )

  it.live("is cut off if the client reads nothing for half a second", () =>
    Effect.gen(function*() {
      const { server } = yield* send
      while (!server.destroyed) yield* Effect.sleep("50 millis")
      assert.isFalse(server.writableFinished)
    }), 5_000)
})
