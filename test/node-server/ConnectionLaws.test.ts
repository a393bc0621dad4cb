/**
 * Generates connections of any pieces, cuts, faults, half-closes and handlers, and checks the laws of the edge.
 *
 * No bound of time passes until all clients have sent everything and have received the responses that depend on no
 * bound. Then the test moves the clock, so a busy machine changes no result.
 */
import { NodeHttpServer } from "@effect/platform-node"
import { assert, it, vi } from "@effect/vitest"
import { Effect, Fiber, Logger, Option, References, Scope } from "effect"
import { HttpServerRequest, HttpServerResponse } from "effect/http"
import * as fc from "fast-check"
import { connect, type Socket } from "node:net"
import { setImmediate, setTimeout } from "node:timers/promises"
import { bodyErrorOf, errorOf } from "../../src/http/ParserErrors.ts"
import { isBodySource, type SettledBody } from "../../src/node-server/BodyState.ts"
import { EdgeServer } from "../../src/node-server/EdgeServer.ts"
import * as ParserRejections from "../../src/node-server/ParserRejections.ts"
import { UnreadResponses } from "../../src/node-server/UnreadResponses.ts"
import { message } from "../support/Sockets.ts"

const connectionsPerSeed = 400
const times = { headersTimeout: 1_000, requestTimeout: 2_000, keepAliveTimeout: 1_000, requestMs: 3_000, readMs: 3_000 }
/** The moves of the clock, and how far it moves within which the server must close each connection. */
const [stepMs, maxEndMs] = [500, 6_000]
/** How long the handlers work that are late. Between two moves of the clock, twice this time passes. */
const lateMs = 20
/** Far more than a busy machine needs to send 400 responses. */
const deadlineMs = 12_000

const handlers = [
  "responds",
  "reads",
  "reads late",
  "reads the stream",
  "reads the stream late",
  "ignores the body",
  "throws late",
  "throws while reading",
  "hangs",
  "awaits the clock"
] as const
type Handler = typeof handlers[number]

const close = { connection: "close" }
const chunked = "Transfer-Encoding: chunked"
const wholeBodies: ReadonlyArray<readonly [fields: ReadonlyArray<string>, body: string]> = [
  [[], ""],
  [["Content-Length: 5"], "hello"],
  [[chunked], "2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"],
  [["Content-Length: 5", "Expect: 100-continue"], "hello"]
]
const expectsContinue = 3

interface Tail {
  readonly fields?: ReadonlyArray<string>
  readonly bytes: string
  readonly halfCloses?: boolean
  readonly status: number
  /** What a client may send later without changing what it has sent. By default, `x`. */
  readonly drip?: string
}
/** Each is the end of what a client sends. With `fields`, `bytes` are the body of a request. `status` is of its fault. */
const tails: Readonly<Record<string, Tail>> = {
  "a malformed chunk size": { fields: [chunked], bytes: "zz\r\n", status: 400 },
  "4,200 chunks": { fields: [chunked], bytes: "1\r\n \r\n".repeat(4_200), status: 413 },
  "a long chunk extension": { fields: [chunked], bytes: `1;${"x".repeat(20_000)}\r\n{\r\n`, status: 413 },
  "a large body": { fields: [chunked], bytes: `4001\r\n${"x".repeat(16_385)}\r\n0\r\n\r\n`, status: 413 },
  "a malformed trailer": { fields: [chunked], bytes: "2\r\n{}\r\n0\r\nbad trailer\r\n\r\n", status: 400 },
  "a half-close in the body": { fields: ["Content-Length: 30"], bytes: "{", halfCloses: true, status: 400 },
  "a half-close in the body of an upgrade": {
    fields: ["Content-Length: 30", "Connection: Upgrade", "Upgrade: h2c"],
    bytes: "{",
    halfCloses: true,
    status: 400
  },
  "a body that never ends": { fields: ["Content-Length: 30000"], bytes: "{", status: 408 },
  "bytes that are not HTTP": { bytes: "garbage\r\n\r\n", status: 400 },
  "bytes that are not HTTP, and a half-close": { bytes: "garbage\r\n\r\n", halfCloses: true, status: 400 },
  "CONNECT": { bytes: message("CONNECT a:1 HTTP/1.1", ["Host: a"]), status: 405 },
  "a head that never ends": { bytes: "GET / HTTP/1.1\r\nX: ", status: 408 },
  "a half-close": { bytes: "", halfCloses: true, status: 0 },
  "nothing": { bytes: "", status: 0, drip: "\r\n" }
}

const script = fc.record({
  requests: fc.array(
    fc.record({ body: fc.nat(wholeBodies.length - 1), handler: fc.constantFrom(...handlers) }),
    { maxLength: 3 }
  ),
  tail: fc.constantFrom(...Object.keys(tails)),
  tailHandler: fc.constantFrom<Handler>(
    "reads",
    "reads late",
    "reads the stream",
    "reads the stream late",
    "ignores the body"
  ),
  /** Whether the client waits for each response. Otherwise it sends everything at once. */
  waits: fc.boolean(),
  /** Where the bytes are cut, in thousandths, and the time between two pieces. */
  cuts: fc.array(fc.nat(1_000), { maxLength: 4 }),
  pauseMs: fc.constantFrom(0, 1, 5),
  /** Whether the client sends a byte every 40 ms once all else is sent, until the server resets the connection. */
  drips: fc.boolean(),
  /** Whether the client resets its connection once it has the responses that depend on no bound. */
  resets: fc.boolean()
})
type Script = typeof script extends fc.Arbitrary<infer A> ? A : never

const pieces = (bytes: string, cuts: ReadonlyArray<number>) => {
  const ends = [...cuts, 1_000].map((cut) => Math.floor(bytes.length * cut / 1_000)).toSorted((a, b) => a - b)
  return ends.map((end, index) => bytes.slice(ends[index - 1] ?? 0, end)).filter((piece) => piece !== "")
}

/** Whether the service sends 100 Continue for a request. */
const isContinued = ({ body, handler }: { readonly body: number; readonly handler: Handler }) =>
  body === expectsContinue && handler.includes("read")

/** Whether the last request has a body that fails, which its handler reads before it responds. */
const failsInBody = ({ tail, tailHandler }: Script) =>
  tails[tail]?.fields !== undefined && tailHandler.startsWith("reads")

const requestBytes = (
  id: number,
  handler: Handler | "closes" | "writes much",
  fields: ReadonlyArray<string>,
  body: string
) => message(`${fields.length === 0 ? "GET" : "POST"} /${id} HTTP/1.1`, ["Host: x", `X: ${handler}`, ...fields], body)

/** Each final response, as its status and the id of its request. */
const responsesOf = (received: string) =>
  [...received.matchAll(/HTTP\/1\.1 (?!100)(\d+)[^]*?\r\n\r\n(\d+|rejected)/g)].map(([, status, id]) =>
    `${status} ${id}`
  )

/** For each response, how many 100 Continue came before it, and at the end how many came after the last one. */
const continuesOf = (received: string) => {
  const counts = [0]
  for (const [, status] of received.matchAll(/HTTP\/1\.1 (\d+)/g)) {
    if (status === "100") counts.push((counts.pop() ?? 0) + 1)
    else counts.push(0)
  }
  return counts
}

/** Begins to play `script`, and returns its state so far. */
const play = (port: number, played: Script) => {
  const { cuts, drips, pauseMs, requests, resets, tail, tailHandler, waits } = played
  const socket = connect({ port, host: "127.0.0.1", allowHalfOpen: drips }).on("error", () => {})
  let received = ""
  const state = { isOpen: true, hasSent: false }
  socket.setEncoding("latin1").on("data", (text: string) => void (received += text))
  socket.on("end", () => void (state.isOpen = false))
  const closed = new Promise<void>((resolve) => socket.on("close", () => resolve(void (state.isOpen = false))))
  const send = async (bytes: string) => {
    for (const piece of pieces(bytes, cuts)) {
      socket.write(piece, "latin1")
      await setTimeout(pauseMs)
    }
  }
  const { bytes, drip = "x", fields, halfCloses = false } = tails[tail] ?? assert.fail()
  const last = fields === undefined ? bytes : requestBytes(requests.length, tailHandler, fields, bytes)
  const all = requests.map(({ body, handler }, id) => requestBytes(id, handler, ...wholeBodies[body] ?? assert.fail()))
  const sendAll = async () => {
    if (waits) {
      for (const [index, request] of all.entries()) {
        const { body, handler } = requests[index] ?? assert.fail()
        const headLength = isContinued({ body, handler }) ? request.indexOf("\r\n\r\n") + 4 : request.length
        await send(request.slice(0, headLength))
        const isContinuing = () => continuesOf(received)[index] === 1
        while (headLength < request.length && state.isOpen && !isContinuing()) {
          await Promise.race([setTimeout(5), closed])
        }
        await send(request.slice(headLength))
        const isLast = handler === "hangs" || handler === "awaits the clock"
        state.hasSent = isLast
        const hasResponse = () => !isLast && responsesOf(received).length > index
        while (state.isOpen && !hasResponse()) await Promise.race([setTimeout(5), closed])
      }
      await send(last)
    } else await send(all.join("") + last)
    if (halfCloses || !state.isOpen) socket.end()
    state.hasSent = true
    const hasEarly = () => responsesOf(received).length >= expected(played).early
    if (resets) {
      while (state.isOpen && !hasEarly()) await Promise.race([setTimeout(5), closed])
      socket.resetAndDestroy()
    }
    const timer = !drips || halfCloses ? undefined : setInterval(() => socket.write(drip), 40)
    await closed
    clearInterval(timer)
  }
  void sendAll()
  return {
    responses: () => responsesOf(received),
    continues: () => continuesOf(received),
    /** Whether the last response says that its connection closes. */
    closes: () => /^connection: close\r$/im.test(received.slice(received.lastIndexOf("HTTP/1.1 "))),
    isClosed: () => socket.closed,
    hasSent: () => state.hasSent && socket.writableLength === 0,
    destroy: () => socket.destroy()
  }
}

/**
 * The responses that the client of `script` may get, how many it must get at least, and how many of these before the
 * clock moves.
 */
const expected = ({ requests, resets, tail, tailHandler, waits }: Script) => {
  const { fields, status } = tails[tail] ?? assert.fail()
  const id = fields === undefined ? "rejected" : requests.length
  const statusOfTail = tailHandler === "ignores the body" && fields !== undefined ? 200 : status
  // A client that sends no request at all gets 408.
  const idle = requests.length === 0 ? ["408 rejected"] : []
  const ofTail = status === 0 ? [] : [`${statusOfTail} ${id}`]
  const responses = [...requests.map((_, index) => `200 ${index}`), ...ofTail]
  const failing = requests.findIndex(({ handler }) => handler === "hangs" || handler.startsWith("throws"))
  const awaiting = requests.findIndex(({ handler }) => handler === "awaits the clock")
  // Node closes the connection after a response to a client that still waits for 100 Continue.
  const closing = requests.findIndex(({ body, handler }) => body === expectsContinue && !handler.startsWith("reads"))
  const ends = [failing, closing + 1 || -1, waits ? awaiting + 1 || -1 : -1, responses.length]
  const end = Math.min(...ends.filter((index) => index >= 0))
  const all = responses.slice(0, end)
  // So it does if the body came before a reader of the stream.
  const mayClose = requests.findIndex(({ body, handler }) => body === expectsContinue && handler.includes("stream"))
  // A third request is not run if it arrives while the second waits.
  const least = Math.min(end, waits ? end : 2, mayClose === -1 ? end : mayClose + 1)
  const timed = all.findIndex((response, index) => index === awaiting || response.startsWith("408"))
  const early = timed === -1 ? least : Math.min(least, timed)
  return { responses: [...all, ...idle], least: resets ? early : least, early }
}

/** Resolves once the clock has moved past the timeouts of Node. */
let clock = Promise.withResolvers<void>()

const handle = Effect.gen(function*() {
  const request = yield* HttpServerRequest.HttpServerRequest
  const { source, url } = request
  const handler = request.headers.x
  const id = url.slice(1)
  if (handler === "hangs") return yield* Effect.never
  if (handler === "awaits the clock" || handler === "writes much") yield* Effect.promise(() => clock.promise)
  else if (handler?.includes("late") === true || handler === "ignores the body") {
    yield* Effect.promise(() => setTimeout(lateMs))
  }
  // More than the buffers of both sockets hold.
  if (handler === "writes much") return HttpServerResponse.text("x".repeat(16_000_000))
  if (handler === "closes") return HttpServerResponse.text(id, { headers: close })
  if (handler === "throws late") return HttpServerResponse.raw(42)
  if (handler === "responds" || handler === "ignores the body" || handler === "awaits the clock") {
    return HttpServerResponse.text(id)
  }
  if (handler === "throws while reading") {
    if (isBodySource(source)) source.whenRead(() => assert.fail(handler))
    return yield* Effect.never
  }
  if (handler?.startsWith("reads the stream") === true) {
    return yield* Effect.match(request.arrayBuffer, {
      onFailure: ({ reason }) => HttpServerResponse.text(id, { status: bodyErrorOf(reason.cause).status }),
      onSuccess: () => HttpServerResponse.text(id)
    })
  }
  const body = yield* Effect.callback<SettledBody>((resume) => {
    if (isBodySource(source)) source.whenRead((settled) => resume(Effect.succeed(settled)))
  })
  if (body._tag === "Whole") return HttpServerResponse.text(id)
  return HttpServerResponse.text(id, { status: bodyErrorOf(body.fault).status })
})

/** Serves `handle` with the bounds of the service, in shorter times. */
const serveHandlers: Effect.Effect<
  { readonly port: number; readonly server: EdgeServer; readonly defects: ReadonlyArray<unknown> },
  unknown,
  Scope.Scope
> = Effect.gen(function*() {
  const defects: Array<unknown> = []
  const server = new EdgeServer({
    requireHostHeader: false,
    ...times,
    connectionsCheckingInterval: 20,
    limits: { ...times, bodyBytes: 16_384, bodyChunks: 4_096 },
    unread: new UnreadResponses(64 * 1024 * 1024),
    onDefect: (defect) => void defects.push(defect)
  })
  yield* ParserRejections.attach(
    server,
    (fault) =>
      Effect.promise(() => setTimeout(5)).pipe(
        Effect.as(HttpServerResponse.text("rejected", {
          status: errorOf(fault).status,
          headers: { ...close, "content-length": "8" }
        }))
      )
  )
  const made = yield* NodeHttpServer.make(() => server, {
    host: "127.0.0.1",
    port: 0,
    // The connections that a defect leaves open must not hide it.
    gracefulShutdownTimeout: 1
  })
  // Effect's router also makes handlers interruptible.
  yield* made.serve(Effect.interruptible(handle))
  server.removeAllListeners("upgrade")
  return { port: made.address._tag === "UnixPathAddress" ? 0 : made.address.port, server, defects }
})

type Played = ReturnType<typeof play>

/** Waits until `isDone`, and returns whether it came in time. */
const waitFor = async (isDone: () => boolean) => {
  const deadline = Date.now() + deadlineMs
  while (!isDone() && Date.now() < deadline) await setTimeout(5)
  return isDone()
}

/** Lets all parts of this process handle what has arrived, and the late handlers respond. */
const settle = async () => {
  await setTimeout(2 * lateMs)
  for (let turn = 0; turn < 10; turn++) await setImmediate()
}

/** Plays `scripts` at once. Returns the connections, and what each does wrong. */
const playAll = async (server: EdgeServer, port: number, scripts: ReadonlyArray<Script>) => {
  // Turn off Node's own timeouts, whose clock a test cannot move.
  Object.assign(server, { headersTimeout: 0, requestTimeout: 0, keepAliveTimeout: 0 })
  clock = Promise.withResolvers()
  const connections = scripts.map((each): readonly [Script, Played] => [each, play(port, each)])
  const isQuiet = ([each, { hasSent, isClosed, responses }]: readonly [Script, Played]) =>
    isClosed() || hasSent() && responses().length >= expected(each).early
  await waitFor(() => connections.every(isQuiet))
  const waiting = new Set(connections.filter((each) => !isQuiet(each)))
  await settle()
  Object.assign(server, { headersTimeout: 1, requestTimeout: 1 })
  const isEnded = () => connections.every(([, { isClosed }]) => isClosed())
  for (let now = 0; now < maxEndMs && !isEnded(); now += stepMs) {
    vi.advanceTimersByTime(stepMs)
    if (now === stepMs) clock.resolve()
    await settle()
  }
  return connections.flatMap((each) => {
    const [played, connection] = each
    const responses = connection.responses()
    const { least, responses: all } = expected(played)
    const faults = [
      ...waiting.has(each) ? ["does not get its responses before a bound of time"] : [],
      ...connection.isClosed() ? [] : [`does not end within ${maxEndMs} ms`],
      ...responses.every((response, at) => response === all[at]) ? [] : ["gets another response"],
      ...responses.length >= least ? [] : [`gets fewer than ${least} responses`],
      ...connection.continues().every((count, at) => {
          const request = played.requests[at]
          return count <= (request !== undefined && isContinued(request) ? 1 : 0)
        })
        ? []
        : ["gets 100 Continue twice, or for a body that is not read"],
      ...failsInBody(played) && responses.length > played.requests.length && !connection.closes()
        ? ["is not told that its connection closes"]
        : []
    ]
    connection.destroy()
    return faults.length === 0 ? [] : [{ faults, ...played, responses, all }]
  })
}

/** Uses a clock that the test moves, and that Node's own timeouts do not see. */
const useClock = Effect.gen(function*() {
  vi.useFakeTimers({ toFake: ["performance"] })
  yield* Effect.addFinalizer(() => Effect.sync(() => vi.useRealTimers()))
})

const seeds = Number(process.env.SEEDS ?? 1)

/** Runs `effect` in a scope. A defect can leave a fiber that no interruption ends, which must not hide the failure. */
const inScope = <A, E>(effect: Effect.Effect<A, E, Scope.Scope>) =>
  Effect.gen(function*() {
    const scope = yield* Scope.make()
    const exit = yield* Effect.exit(Scope.provide(effect, scope))
    const closing = yield* Effect.forkDetach(Scope.close(scope, exit))
    const closed = yield* Effect.timeoutOption(Fiber.join(closing), "5 seconds")
    yield* exit
    assert.isTrue(Option.isSome(closed), "The server closes")
  })

it.live(
  "A connection gets one response for each whole request, in order, and ends in time",
  () => {
    const errors: Array<unknown> = []
    const addError = (error: unknown) => void errors.push(error)
    const logger = Logger.make(({ message }) => addError(message))
    return Effect.gen(function*() {
      const { defects, port, server } = yield* serveHandlers
      const sockets: Array<Socket> = []
      server.on("connection", (socket) => sockets.push(socket))
      process.on("uncaughtExceptionMonitor", addError)
      yield* Effect.addFinalizer(() => Effect.sync(() => process.off("uncaughtExceptionMonitor", addError)))
      yield* useClock
      for (let seed = 1; seed <= seeds; seed++) {
        const scripts = fc.sample(script, { seed, numRuns: connectionsPerSeed })
        const faults = yield* Effect.promise(() => playAll(server, port, scripts))
        assert.isEmpty(faults, JSON.stringify({ seed, faults: faults.slice(0, 5) }, null, 1))
      }
      yield* Effect.promise(settle)
      assert.isEmpty(sockets.filter((socket) => server.connectionOf(socket) !== undefined), "The server forgets each")
      assert.isNotEmpty(defects)
      const kinds = defects.map((defect) => String(defect).replace(/(?<=^\w+Error)(?: \[|: ).*/s, ""))
      assert.deepStrictEqual([...new Set(kinds)].toSorted(), ["AssertionError", "TypeError"])
      assert.deepStrictEqual(errors, [], "Nothing else fails")
    }).pipe(
      inScope,
      Effect.provide(Logger.layer([logger])),
      Effect.provideService(References.MinimumLogLevel, "Error")
    )
  },
  seeds * 20_000
)

/** A client of the handlers that sends `bytes`. */
const connectWith = (port: number, bytes: string) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const socket = connect({ port, host: "127.0.0.1", allowHalfOpen: true }).on("error", () => {})
      socket.write(bytes, "latin1")
      return socket
    }),
    (socket) => Effect.sync(() => socket.destroy())
  )

it.live("A connection runs no request behind its last response", () =>
  Effect.gen(function*() {
    const { port, server } = yield* serveHandlers
    const urls: Array<unknown> = []
    server.on("request", ({ url }) => urls.push(url))
    const socket = yield* connectWith(port, requestBytes(0, "closes", [], ""))
    yield* Effect.promise(() => waitFor(() => socket.resume().readableEnded))
    socket.write(requestBytes(1, "responds", [], ""))
    yield* Effect.promise(settle)
    assert.deepStrictEqual(urls, ["/0"])
  }).pipe(inScope))

it.live.each<readonly [event: string, bytes: string]>([
  ["connection", ""],
  ["request", requestBytes(0, "responds", [], "")],
  ["clientError", "garbage\r\n\r\n"]
])(
  "A throw in a listener of %s ends its own connection, and no other",
  ([event, bytes]) =>
    Effect.gen(function*() {
      const { defects, port, server } = yield* serveHandlers
      const defect = new Error("A listener threw")
      const other = yield* connectWith(port, "")
      yield* Effect.promise(settle)
      server.prependOnceListener(event, () => {
        throw defect
      })
      const socket = yield* connectWith(port, bytes)
      assert.isTrue(yield* Effect.promise(() => waitFor(() => socket.resume().readableEnded)))
      assert.deepStrictEqual(defects, [defect])
      other.write(requestBytes(1, "responds", [], ""))
      assert.isTrue(yield* Effect.promise(() => waitFor(() => other.resume().bytesRead > 0)))
    }).pipe(inScope)
)

it.live("A third request is the last that a connection reads while two have no response", () =>
  Effect.gen(function*() {
    const { port, server } = yield* serveHandlers
    const emit = vi.spyOn(server, "emit")
    const many = Array.from({ length: 100 }, (_, id) => requestBytes(id, "hangs", [], "")).join("")
    const socket = yield* connectWith(port, many)
    yield* Effect.promise(settle)
    socket.write(many)
    yield* Effect.promise(settle)
    assert.lengthOf(emit.mock.calls.filter(([event]) => event === "request"), 3)
  }).pipe(inScope))

it.live("A connection ends only once the time of its request, or of idling and the next head, is over", () =>
  Effect.gen(function*() {
    const { port, server } = yield* serveHandlers
    yield* useClock
    Object.assign(server, { headersTimeout: 0, requestTimeout: 0, keepAliveTimeout: 0 })
    const socket = yield* connectWith(port, "")
    const pass = (ms: number) =>
      Effect.promise(async () => {
        await settle()
        vi.advanceTimersByTime(ms)
        await settle()
        return !socket.resume().readableEnded
      })
    assert.isTrue(yield* pass(2_500), "idle")
    socket.write(requestBytes(0, "ignores the body", ["Content-Length: 5"], ""))
    assert.isTrue(yield* pass(2_500), "within a request")
    assert.isAbove(socket.bytesRead, 0)
    socket.write("hello")
    assert.isTrue(yield* pass(2_500), "idle again")
    socket.write("GET / HTTP/1.1\r\n")
    assert.isTrue(yield* pass(400), "within a head")
    yield* pass(600)
    assert.isTrue(yield* Effect.promise(() => waitFor(() => socket.readableEnded)))
  }).pipe(inScope))

it.live("A fault gives a client no more time to read a response", () =>
  Effect.gen(function*() {
    const { port, server } = yield* serveHandlers
    const sockets: Array<Socket> = []
    server.on("connection", (socket) => sockets.push(socket))
    yield* useClock
    const socket = yield* connectWith(port, requestBytes(0, "writes much", [], ""))
    clock.resolve()
    const isUnread = () => sockets.some(({ writableLength }) => writableLength > 0)
    assert.isTrue(yield* Effect.promise(() => waitFor(isUnread)))
    vi.advanceTimersByTime(2_500)
    const { length: bytesRead } = "garbage\r\n\r\n"
    const bytesBefore = sockets[0]?.bytesRead ?? 0
    socket.write("garbage\r\n\r\n")
    assert.isTrue(yield* Effect.promise(() => waitFor(() => sockets[0]?.bytesRead === bytesBefore + bytesRead)))
    vi.advanceTimersByTime(1_000)
    assert.isTrue(yield* Effect.promise(() => waitFor(() => sockets.every(({ destroyed }) => destroyed))))
  }).pipe(inScope))

it.live("A client has its whole time to read a response, whatever time its handler took", () =>
  Effect.gen(function*() {
    const { port, server } = yield* serveHandlers
    const sockets: Array<Socket> = []
    server.on("connection", (socket) => sockets.push(socket))
    yield* useClock
    clock = Promise.withResolvers()
    yield* connectWith(port, requestBytes(0, "writes much", [], ""))
    yield* Effect.promise(settle)
    vi.advanceTimersByTime(2_500)
    clock.resolve()
    assert.isTrue(yield* Effect.promise(() => waitFor(() => sockets.some(({ writableLength }) => writableLength > 0))))
    vi.advanceTimersByTime(2_500)
    yield* Effect.promise(settle)
    assert.isFalse(sockets.some(({ destroyed }) => destroyed))
    vi.advanceTimersByTime(1_000)
    assert.isTrue(yield* Effect.promise(() => waitFor(() => sockets.every(({ destroyed }) => destroyed))))
  }).pipe(inScope))
