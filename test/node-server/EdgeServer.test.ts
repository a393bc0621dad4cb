import { assert, describe, it, layer, vi } from "@effect/vitest"
import { Duration, Effect, Layer } from "effect"
import { setTimeout } from "node:timers/promises"
import { KeyVerifier } from "../../src/api-keys/KeyVerifier.ts"
import { memory, memoryWith } from "../support/Databases.ts"
import { until } from "../support/Process.ts"
import { Service, service } from "../support/Service.ts"
import { message, openConnections, statusesOf } from "../support/Sockets.ts"

const request = (line: string, ...fields: ReadonlyArray<string>) => message(`${line} HTTP/1.1`, ["Host: x", ...fields])
const get = request("GET /")
const find = request("GET /v1/pets/1", "KEY")
const connect = request("CONNECT a:1")
const closes = "Connection: close"
const chunked = "Transfer-Encoding: chunked"
const long = "x".repeat(15_000)
const [fewChunks, manyChunks] = [4_095, 4_097].map((count) => "1\r\n \r\n".repeat(count))

const slowStore = memoryWith(({ find }) => ({
  find: (id) => Effect.andThen(Effect.promise(() => setTimeout(5)), find(id))
}))

layer(service(slowStore))("A connection", (it) => {
  const create = (...fields: ReadonlyArray<string>) =>
    request("POST /v1/pets", "KEY", "Content-Type: application/json", ...fields)
  const unknown = request("POST /a", chunked)
  const petInChunks = `1d\r\n{"name":"Rex","categoryId":1}\r\n${fewChunks}0\r\n\r\n`
  const [unfinished, waiting] = [find, request("GET /v1/pets/2", "KEY", "X: 1")]
  const upgraded = (line: string, ...fields: ReadonlyArray<string>) =>
    request(line, "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", ...fields)
  const upgrade = upgraded("GET /")
  const staysOpen = { drip: " ", allowHalfOpen: true }
  it.effect.each<readonly [string, string, statuses: ReadonlyArray<number>, text: string, typeof staysOpen?]>([
    ["runs one request, then the one behind it", find + request("GET /v1/pets/2", "KEY", closes), [404, 404], "pet 2"],
    ["is closed by a third request, after two responses", unfinished + waiting + get, [404, 404], "Connection: close"],
    [
      "is closed by the third of many requests in one read",
      unfinished + waiting + get.repeat(2_484),
      [404, 404],
      "pet 2"
    ],
    ["is closed by a third request before CONNECT", unfinished + waiting + get + connect, [404, 404], "pet 2"],
    ["gets 413 for a body in over 4,096 chunks", create(chunked) + manyChunks, [413], "4,096 chunks"],
    ["accepts a body in 4,096 chunks", create(chunked, closes) + petInChunks, [201], "Rex"],
    ["is closed after a 413", create("Content-Length: 16385"), [413], "payload_too_large"],
    ["is closed after an error if the body has too many chunks", unknown + manyChunks + get, [404], "not_found"],
    ["is closed after a request with an upgrade if others arrive with it", upgrade + get, [200], "/openapi.json"],
    ["is closed after a client error, even if the client does not close", connect, [405], "CONNECT", staysOpen]
  ])("%s", ([title, bytes, statuses, text, options]) =>
    Effect.gen(function*() {
      const response = yield* (yield* Service).send(bytes, options)
      assert.deepStrictEqual(statusesOf(response), [...statuses])
      assert.include(response.text, text)
      // A 404 is sent before the body has arrived, so its head cannot say that the connection will be closed.
      if (statuses.length === 1 && statuses[0] !== 404) {
        assert.strictEqual(response.headers.get("connection"), "close", title)
      }
    }))

  const two = request("GET /v1/pets/1", "KEY", `X: ${long}`) + find
  const add = upgraded("POST /v1/pets", "KEY", "Content-Type: application/json", "Content-Length: 29")
  const upgrades = [upgrade, `${add}{"name":"Rex","categoryId":1}`, upgraded("GET /v1/pets", "KEY")]
  it.effect.each<readonly [string, parts: ReadonlyArray<string>, responses: number]>([
    ["serves a client that has two requests under way, however many bytes it sends", Array(20).fill(two), 2],
    ["stays open if each request asks for an upgrade, as those of Java's HttpClient do", [...upgrades, ...upgrades], 1]
  ])("%s", ([, parts, responses]) =>
    Effect.gen(function*() {
      const { port, unlimitedKey } = yield* Service
      const key = `Authorization: Bearer ${yield* unlimitedKey}`
      const [socket = assert.fail()] = yield* openConnections(port, 1, {})
      let text = ""
      socket.setEncoding("latin1").on("data", (chunk: string) => text += chunk)
      const count = () => text.split("HTTP/1.1 ").length - 1
      for (const [index, part] of parts.entries()) {
        socket.write(part.replaceAll("KEY", key))
        yield* until(() => count() === responses * (index + 1) || socket.closed)
      }
      assert.strictEqual(count(), responses * parts.length)
    }))

  it.effect("is closed after a request with an upgrade behind one without, however its bytes are split", () =>
    Effect.gen(function*() {
      const { port } = yield* Service
      const [socket = assert.fail()] = yield* openConnections(port, 1, {})
      socket.resume().write(get + upgrade.slice(0, 10))
      yield* until(() => socket.bytesRead > 0)
      // As many bytes arrive too late as arrived too early, so the number of bytes alone does not show them.
      socket.write(upgrade.slice(10) + get.slice(0, 10))
      yield* until(() => socket.closed, 5)
    }))

  it.effect("is closed after an error of a request with a malformed body, with exactly one response", () =>
    Effect.gen(function*() {
      const { send } = yield* Service
      for (const [status, line] of [[404, "POST /nowhere"], [401, "POST /v1/pets"], [405, "PUT /v1/pets"]] as const) {
        const head = request(line, chunked)
        // The client error of the second arrives half a second after the response.
        const all = [send(`${head}zz\r\n`), send(head, { drip: "zz\r\n" }), send(head, { halfCloses: true })]
        const [duration, responses] = yield* Effect.timed(Effect.all(all, { concurrency: "unbounded" }))
        for (const response of responses) assert.deepStrictEqual(statusesOf(response), [status])
        assert.isBelow(Duration.toSeconds(duration), 5)
      }
    }))
})

describe("The service", () => {
  const json = "Content-Type: application/json"
  const slowKeys = Layer.effect(
    KeyVerifier,
    Effect.map(KeyVerifier, ({ evict, verify }) => ({
      evict,
      verify: (secret) => Effect.andThen(Effect.promise(() => setTimeout(50)), verify(secret))
    }))
  )
  const inChunks = request("POST /v1/pets", "KEY", json, chunked)
  it.effect.each<readonly [string, bytes: string, status: number, halfCloses?: boolean]>([
    ["a malformed chunk size", `${inChunks}zz\r\n`, 400],
    ["4,200 chunks", inChunks + "1\r\n \r\n".repeat(4_200), 413],
    ["a chunk extension of 20 KB", `${inChunks}1;${"x".repeat(20_000)}\r\n{\r\n`, 413],
    ["a malformed trailer", `${inChunks}2\r\n{}\r\n0\r\nbad trailer\r\n\r\n`, 400],
    [
      "an incomplete body and a half-close",
      `${request("POST /v1/pets", "KEY", json, "Content-Length: 30")}{`,
      400,
      true
    ]
  ])(
    "responds to %s that came with the head, before the key was verified",
    ([, bytes, status, halfCloses = false]) =>
      Effect.gen(function*() {
        const [duration, response] = yield* Effect.timed((yield* Service).send(bytes, { halfCloses }))
        assert.deepStrictEqual(statusesOf(response), [status])
        assert.isBelow(Duration.toSeconds(duration), 5)
      }).pipe(Effect.provide(service(Layer.provideMerge(slowKeys, memory))))
  )

  /** The size of a page, which is more than the buffers of both sockets hold. */
  const pageSize = 16_000_000
  const pet = { id: 1n, name: "x".repeat(pageSize / 100), categoryId: 1n }
  const largePages = memoryWith(() => ({
    list: () => Effect.succeed({ items: Array.from({ length: 100 }, () => pet) })
  }))
  /** Opens a connection that does not read its page of pets, and waits until the service begins to send it. */
  const openUnread = Effect.gen(function*() {
    const { port, unlimitedKey } = yield* Service
    const bytes = request("GET /v1/pets?limit=100", `Authorization: Bearer ${yield* unlimitedKey}`)
    const [socket = assert.fail()] = yield* openConnections(port, 1, { bytes })
    yield* until(() => socket.bytesRead > 0)
    return socket
  })

  it.effect("destroys a connection whose client has not read a response for 60 seconds", () => {
    // Node's own timeouts use other timers.
    vi.useFakeTimers({ toFake: ["clearInterval", "performance", "setInterval"] })
    return Effect.gen(function*() {
      const early = yield* openUnread
      vi.advanceTimersByTime(2_000)
      const late = yield* openUnread
      vi.advanceTimersByTime(58_000)
      yield* until(() => early.resume().closed)
      assert.isBelow(early.bytesRead, pageSize)
      yield* until(() => late.resume().bytesRead > pageSize)
    }).pipe(Effect.provide(service(largePages)), Effect.ensuring(Effect.sync(() => vi.useRealTimers())))
  })

  it.live("closes the connection that has waited longest while responses of over 64 MiB are not read", () =>
    Effect.gen(function*() {
      // A response of 16 MB that is not read counts twice, as text and as bytes.
      const sockets = yield* Effect.replicateEffect(openUnread, 4)
      const [oldest = assert.fail()] = sockets
      yield* until(() => oldest.resume().closed)
      assert.isBelow(oldest.bytesRead, pageSize)
      yield* until(() => sockets.slice(-2).every((socket) => socket.resume().bytesRead > pageSize))
    }).pipe(Effect.provide(service(largePages))))
})
