import { assert, it, vi } from "@effect/vitest"
import { ConfigProvider, Effect, Layer } from "effect"
import { HttpServer, HttpServerResponse } from "effect/http"
import net from "node:net"
import { CurrentKey } from "../../src/api/OperationMiddleware.ts"
import { Settings } from "../../src/config/Settings.ts"
import * as ApiRoutes from "../../src/http/ApiRoutes.ts"
import * as PageTurns from "../../src/http/PageTurns.ts"
import * as PortServer from "../../src/http/PortServer.ts"
import { EdgeServer } from "../../src/node-server/EdgeServer.ts"
import { RateLimiter } from "../../src/rate-limit/RateLimiter.ts"
import { api } from "../../src/resources.ts"
import { memory } from "../support/Databases.ts"
import { until, untilTrue } from "../support/Process.ts"
import { Service, service } from "../support/Service.ts"
import { message, openConnections } from "../support/Sockets.ts"
import { freePort } from "../support/Temporary.ts"

/** More than the buffers of both sockets hold. */
const large = "x".repeat(16_000_000)
const respondLarge = Effect.succeed(HttpServerResponse.text(large))

const config = ConfigProvider.layer(ConfigProvider.fromUnknown({ HOST: "127.0.0.1", PORT: "0" }))

/** A port with a handler. Adds its number to `ports`. */
const port = (ports: Array<number>, handler: Effect.Effect<HttpServerResponse.HttpServerResponse, unknown>) => {
  const server = Layer.unwrap(
    Effect.map(ApiRoutes.makeHooks(api, []), (hooks) => PortServer.layer(Effect.succeed(handler), Settings, hooks))
  )
  const report = Effect.map(HttpServer.HttpServer, ({ address }) => {
    if (address._tag !== "UnixPathAddress") ports.push(address.port)
  })
  return Layer.provide(Layer.effectDiscard(report), server)
}

it.live("All ports together close the connection that has waited longest while responses of over 64 MiB are not read", () => {
  const ports: Array<number> = []
  return Effect.gen(function*() {
    const openUnread = (number: number) =>
      Effect.gen(function*() {
        const [socket = assert.fail()] = yield* openConnections(number, 1, { bytes: message("GET / HTTP/1.1") })
        yield* until(() => socket.bytesRead > 0)
        return socket
      })
    assert.lengthOf(ports, 2)
    // A response of 16 MB that is not read counts twice, as text and as bytes. Two of them on a port are too few.
    const sockets = yield* Effect.forEach([...ports, ...ports], openUnread)
    const [oldest = assert.fail()] = sockets
    yield* until(() => oldest.resume().closed)
    assert.isBelow(oldest.bytesRead, large.length)
    yield* until(() => sockets.slice(-2).every((socket) => socket.resume().bytesRead > large.length))
  }).pipe(Effect.provide(
    Layer.fresh(
      Layer.merge(port(ports, respondLarge), port(ports, respondLarge)).pipe(
        Layer.provide([RateLimiter.layerMemory, config])
      )
    )
  ))
})

it.live("A page waits for a later turn of the event loop once the pages of its turn have taken ten milliseconds", () => {
  const ports: Array<number> = []
  const key = { id: "a", plan: "free" as const, limits: { perMinute: 60, perDay: 1_000 } }
  const handler = Effect.gen(function*() {
    const waitForTurn = yield* PageTurns.PageTurns
    const page = Effect.provideService(waitForTurn(performance.now()), CurrentKey, key)
    let isLater = false
    setImmediate(() => void (isLater = true))
    yield* page
    const first = isLater
    for (const end = performance.now() + 10; performance.now() < end;);
    yield* page
    return HttpServerResponse.text(`${first}, ${isLater}`)
  })
  return Effect.gen(function*() {
    const response = yield* Effect.promise(() => fetch(`http://127.0.0.1:${ports[0]}`))
    assert.strictEqual(yield* Effect.promise(() => response.text()), "false, true")
  }).pipe(Effect.provide(Layer.fresh(Layer.provide(port(ports, handler), [RateLimiter.layerMemory, config]))))
})

const perAddress = { MAX_CONNECTIONS_PER_ADDRESS: "20", TRUSTED_PROXIES: "127.0.0.3" }
it.live.each<readonly [title: string, open: number, localAddress: string, config: Readonly<Record<string, string>>]>([
  ["20 connections, and closes others, with MAX_CONNECTIONS=20", 20, "127.0.0.1", { MAX_CONNECTIONS: "20" }],
  ["20 connections of an address with MAX_CONNECTIONS_PER_ADDRESS=20", 20, "127.0.0.2", perAddress],
  ["any number of connections of a trusted proxy", 30, "127.0.0.3", perAddress]
])("A port serves %s", ([, open, localAddress, config]) =>
  Effect.gen(function*() {
    const { port } = yield* Service
    const countServed = Effect.gen(function*() {
      const sockets = yield* openConnections(port, 30, { bytes: message("GET / HTTP/1.1", ["Host: x"]), localAddress })
      yield* until(() => sockets.every((socket) => socket.resume().bytesRead > 0 || socket.closed))
      return sockets.filter(({ bytesRead }) => bytesRead > 0).length
    }).pipe(Effect.scoped)
    assert.strictEqual(yield* countServed, open)
    // Closed connections count no more, once the service has read their ends.
    yield* untilTrue(Effect.map(countServed, (served) => served === open), `${open} connections are served again`)
  }).pipe(Effect.provide(service(memory, config))))

it.live("A port has the bounds of SECURITY.md, and those of KEEP_ALIVE_SECONDS and MAX_CONNECTIONS", () =>
  Effect.gen(function*() {
    const listen = yield* Effect.acquireRelease(
      Effect.sync(() => vi.spyOn(net.Server.prototype, "listen")),
      (spy) => Effect.sync(() => spy.mockRestore())
    )
    yield* Layer.build(service(memory, { KEEP_ALIVE_SECONDS: "7", MAX_CONNECTIONS: "9" }))
    const server = listen.mock.contexts.find((each) => each instanceof EdgeServer) ?? assert.fail()
    assert.include(server, {
      headersTimeout: 10_000,
      requestTimeout: 30_000,
      keepAliveTimeout: 7_000,
      maxConnections: 9,
      // One more than is allowed, so that an excess is seen.
      maxHeadersCount: 101
    })
    const ofRequest = { bodyBytes: 16_384, bodyChunks: 4_096, requestMs: 60_000, readMs: 60_000 }
    // After KEEP_ALIVE_SECONDS, 13 seconds: 10 for a head, 1 that Node adds, and two checks.
    assert.include(server.limits, { ...ofRequest, idleMs: 20_000 })
  }))

const failureOf = (config: Readonly<Record<string, string>>) =>
  Effect.map(Effect.flip(Effect.scoped(Layer.build(service(memory, config)))), ({ message }) => message)

it.live("A port that is in use, or an address that the machine lacks, ends the start with the name of its setting", () =>
  Effect.gen(function*() {
    const { port } = yield* Service
    const inUse = `PORT: port ${port} on 127.0.0.1 is already in use.`
    for (const REUSE_PORT of ["false", "true"]) {
      assert.include(yield* failureOf({ PORT: String(port), REUSE_PORT }), inUse)
    }
    const noAddress = `HOST: this machine has no address "192.0.2.1".`
    assert.include(yield* failureOf({ HOST: "192.0.2.1" }), noAddress)
  }).pipe(Effect.provide(service(memory))))

it.live("Several servers listen on one port with REUSE_PORT", () =>
  Effect.gen(function*() {
    const config = { PORT: String(yield* freePort), REUSE_PORT: "true" }
    for (let i = 0; i < 2; i++) yield* Layer.build(service(memory, config))
  }))

it.live("A port listens on HOST alone, and tells a client how long it keeps an idle connection open", () =>
  Effect.gen(function*() {
    const { port } = yield* Service
    const get = (host: string) => Effect.tryPromise(() => fetch(`http://${host}:${port}/`))
    assert.strictEqual((yield* get("127.0.0.2")).headers.get("keep-alive"), "timeout=7")
    assert.strictEqual((yield* Effect.exit(get("127.0.0.1")))._tag, "Failure")
  }).pipe(Effect.provide(service(memory, { HOST: "127.0.0.2", KEEP_ALIVE_SECONDS: "7" }))))
