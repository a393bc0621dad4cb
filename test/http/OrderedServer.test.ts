/** Bounds on connections and on what one can make the service hold, and the end of one whose bytes are not HTTP. */
import { assert, describe, it, layer, vi } from "@effect/vitest"
import { Duration, Effect, Layer } from "effect"
import { connect } from "node:net"
import { setTimeout } from "node:timers/promises"
import { memory, memoryWith } from "../support/Databases.ts"
import { until } from "../support/Process.ts"
import { Service, service } from "../support/Service.ts"
import { openConnections, statusesOf } from "../support/Sockets.ts"

const lines = (...fields: ReadonlyArray<string>) => `${fields.join("\r\n")}\r\n\r\n`
const get = lines("GET / HTTP/1.1", "Host: localhost")
const chunked = "Transfer-Encoding: chunked"

/** The stores in memory, where each read of one pet takes some turns of the event loop. */
const slowStore = memoryWith(({ find }) => ({
  find: (id) => Effect.andThen(Effect.promise(() => setTimeout(5)), find(id))
}))

layer(Layer.fresh(service(slowStore)))("A connection", (it) => {
  const create = (key: string, ...fields: ReadonlyArray<string>) =>
    lines(
      "POST /v1/pets HTTP/1.1",
      "Host: x",
      `Authorization: Bearer ${key}`,
      "Content-Type: application/json",
      ...fields
    )

  it.effect("runs one request and holds sixteen behind it", () =>
    Effect.gen(function*() {
      const { newUnlimitedKey, send } = yield* Service
      const authorization = `Authorization: Bearer ${yield* newUnlimitedKey}`
      const find = (connection: string) =>
        lines("GET /v1/pets/1 HTTP/1.1", "Host: x", authorization, `Connection: ${connection}`)
      const response = yield* send(find("keep-alive").repeat(16) + find("close"))
      assert.deepStrictEqual(statusesOf(response), Array.from({ length: 17 }, () => 404))
    }))

  it.effect("ends at once with the eighteenth request that arrives before a response, also if CONNECT follows", () =>
    Effect.gen(function*() {
      const { newUnlimitedKey, send } = yield* Service
      const find = lines("GET /v1/pets/1 HTTP/1.1", "Host: x", `Authorization: Bearer ${yield* newUnlimitedKey}`)
      const connectRequest = lines("CONNECT a:1 HTTP/1.1", "Host: a")
      const last = lines("GET / HTTP/1.1", "Host: localhost", "Connection: close")
      const seventeen = find + get.repeat(16)
      for (const bytes of [find + get.repeat(2_500), seventeen + last, seventeen + connectRequest]) {
        // Without a response, or with a reset.
        const [duration, response] = yield* Effect.timed(Effect.catchDefect(send(bytes), () => Effect.undefined))
        assert.isEmpty(response?.text ?? "")
        assert.isBelow(Duration.toSeconds(duration), 5)
      }
    }))

  it.effect("gets 413 for a body in more pieces than its bytes need", () =>
    Effect.gen(function*() {
      const { newUnlimitedKey, send } = yield* Service
      const response = yield* send(create(yield* newUnlimitedKey, chunked) + "1\r\n \r\n".repeat(65_000))
      assert.deepStrictEqual(statusesOf(response), [413])
      assert.include(response.text, "pieces")
    }))

  const unread = [
    ["404", "POST /nowhere HTTP/1.1"],
    ["401", "POST /v1/pets HTTP/1.1"],
    ["405", "PUT /v1/pets HTTP/1.1"]
  ] as const
  it.effect.each(unread)(
    "ends after a %s whose body is not HTTP, with one response",
    ([status, line]) =>
      Effect.gen(function*() {
        const { send, sendAndHalfClose, sendWithDrip } = yield* Service
        const head = lines(line, "Host: x", chunked)
        const [duration, responses] = yield* Effect.timed(Effect.all([
          send(`${head}zz\r\n`),
          // The client error arrives half a second after the response.
          sendWithDrip(head, "zz\r\n"),
          sendAndHalfClose(head)
        ], { concurrency: "unbounded" }))
        for (const response of responses) assert.deepStrictEqual(statusesOf(response), [Number(status)])
        assert.isBelow(Duration.toSeconds(duration), 5)
      })
  )

  it.effect("ends after an error whose body comes in too many pieces, with one response", () =>
    Effect.gen(function*() {
      const { send } = yield* Service
      const response = yield* send(
        lines("POST /nowhere HTTP/1.1", "Host: x", chunked) + "1\r\n \r\n".repeat(65_000) + get
      )
      assert.deepStrictEqual(statusesOf(response), [404])
    }))

  it.effect("is read in time proportional to its bytes, whatever its paths and methods are", () =>
    Effect.gen(function*() {
      const { send } = yield* Service
      const letters = lines("POST /x HTTP/1.1", "Host: x", "Content-Length: 60000") + "A".repeat(60_000)
      const [duration] = yield* Effect.timed(Effect.all([
        send(`${letters}\r\n${lines("FOO / HTTP/1.1", "Host: x")}`),
        send(lines(`GET ${"/".repeat(15_000)}a HTTP/1.1`, "Host: x", "Connection: close"))
      ]))
      assert.isBelow(Duration.toSeconds(duration), 4)
    }))

  it.effect("ends after the response to a request that asks for an upgrade", () =>
    Effect.gen(function*() {
      const { send } = yield* Service
      const upgrade = lines("GET / HTTP/1.1", "Host: x", "Connection: Upgrade", "Upgrade: x")
      const response = yield* send(upgrade + get)
      assert.deepStrictEqual(statusesOf(response), [200])
      assert.strictEqual(response.headers.get("connection"), "close")
    }))

  it.effect("that is reset before the response to a wrong key is charged to the address", () =>
    Effect.gen(function*() {
      const { call, port } = yield* Service
      const remaining = Effect.map(call("/nowhere"), ({ headers }) => Number(headers.get("x-ratelimit-remaining")))
      const before = yield* remaining
      yield* Effect.promise(() =>
        new Promise<void>((resolve) => {
          const socket = connect({ port, host: "127.0.0.1" }, () => {
            socket.write(lines("GET /v1/pets HTTP/1.1", "Host: x", `Authorization: Bearer psk_${"a".repeat(38)}`))
            void setTimeout(50).then(() => socket.resetAndDestroy())
          }).on("close", () => resolve())
        })
      )
      assert.strictEqual(yield* remaining, before - 2)
    }))
})

const largePage = {
  pets: Array.from({ length: 100 }, (_, index) => ({ id: BigInt(index), name: "😀".repeat(1_000), categoryId: 1n }))
}

layer(Layer.fresh(service(memoryWith(() => ({ list: () => Effect.succeed(largePage) })))))("A connection", (it) => {
  it.effect("is destroyed when its client has not read a response for 60 seconds", () =>
    Effect.gen(function*() {
      const { newUnlimitedKey, port } = yield* Service
      const authorization = `Authorization: Bearer ${yield* newUnlimitedKey}`
      // Node's own timeouts use other timers.
      vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] })
      yield* Effect.addFinalizer(() => Effect.sync(() => vi.useRealTimers()))
      const list = lines("GET /v1/pets?limit=100 HTTP/1.1", "Host: x", authorization)
      // More than the buffers of both sockets hold.
      const [socket = assert.fail()] = yield* openConnections(port, 1, { bytes: list.repeat(17) })
      yield* Effect.promise(() => setTimeout(500))
      vi.advanceTimersByTime(60_000)
      const received = yield* Effect.promise(async () => {
        let bytes = 0
        for await (const chunk of socket) bytes += chunk.length
        return bytes
      }).pipe(Effect.catchDefect(() => Effect.succeed(0)))
      assert.isBelow(received, 17 * 400_000)
    }))
})

describe("The service", () => {
  const limit = { MAX_CONNECTIONS_PER_ADDRESS: "20", TRUSTED_PROXIES: "127.0.0.3" }
  it.live("closes each connection of an address beyond the maximum, unless it is a trusted proxy", () =>
    Effect.gen(function*() {
      const { call, port } = yield* Service
      const closedOf = Effect.fnUntraced(function*(localAddress: string, atLeast: number) {
        const sockets = yield* openConnections(port, 30, { localAddress })
        yield* until(() => sockets.every(({ connecting }) => !connecting))
        const closed = () => sockets.filter((socket) => socket.resume().destroyed || socket.readableEnded).length
        // The service accepts connections in their order, so it has accepted these before this one.
        yield* call("/openapi.json")
        yield* until(() => closed() >= atLeast)
        yield* Effect.sleep("50 millis")
        return closed()
      }, Effect.scoped)
      assert.strictEqual(yield* closedOf("127.0.0.2", 10), 10)
      assert.strictEqual(yield* closedOf("127.0.0.3", 0), 0)
      // Closed connections count no more, once the service has read their ends.
      const again = Effect.repeat(closedOf("127.0.0.2", 10), { until: (closed) => closed === 10, times: 20 })
      assert.strictEqual(yield* again, 10)
    }).pipe(Effect.provide(Layer.fresh(service(memory, limit)))))
})
