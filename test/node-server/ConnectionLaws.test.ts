/** Generates connections of any pieces, cuts, faults, half-closes and handlers, and checks the laws of the edge. */
import { NodeHttpServer } from "@effect/platform-node"
import { assert, it } from "@effect/vitest"
import { Effect, type Scope } from "effect"
import { HttpServerRequest, HttpServerResponse } from "effect/http"
import * as fc from "fast-check"
import { connect } from "node:net"
import { setTimeout } from "node:timers/promises"
import { isBodySource, type SettledBody } from "../../src/node-server/BodyState.ts"
import { bodyErrorOf } from "../../src/node-server/NodeErrors.ts"
import { OrderedServer } from "../../src/node-server/OrderedServer.ts"
import * as ParserRejections from "../../src/node-server/ParserRejections.ts"
import { message } from "../support/Sockets.ts"

const [connectionsPerSeed, maxEndMs] = [400, 6_000]

const handlers = ["responds", "reads", "reads late", "ignores the body", "throws late", "hangs"] as const
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
  tailHandler: fc.constantFrom<Handler>("reads", "reads late", "ignores the body"),
  /** Whether the client waits for each response. Otherwise it sends everything at once. */
  waits: fc.boolean(),
  /** Where the bytes are cut, in thousandths, and the time between two pieces. */
  cuts: fc.array(fc.nat(1_000), { maxLength: 4 }),
  pauseMs: fc.constantFrom(0, 1, 5),
  /** Whether the client sends a byte every 40 ms once all else is sent, until the server resets the connection. */
  drips: fc.boolean()
})
type Script = typeof script extends fc.Arbitrary<infer A> ? A : never

const pieces = (bytes: string, cuts: ReadonlyArray<number>) => {
  const ends = [...cuts, 1_000].map((cut) => Math.floor(bytes.length * cut / 1_000)).toSorted((a, b) => a - b)
  return ends.map((end, index) => bytes.slice(ends[index - 1] ?? 0, end)).filter((piece) => piece !== "")
}

const requestBytes = (id: number, handler: Handler, fields: ReadonlyArray<string>, body: string) =>
  message(`${fields.length === 0 ? "GET" : "POST"} /${id} HTTP/1.1`, ["Host: x", `X: ${handler}`, ...fields], body)

/** Each final response, as its status and the id of its request. */
const responsesOf = (received: string) =>
  [...received.matchAll(/HTTP\/1\.1 (?!100)(\d+)[^]*?\r\n\r\n(\d+|rejected)/g)].map(([, status, id]) =>
    `${status} ${id}`
  )

/** Plays `script`. Returns what the client received, once the server has closed or `maxEndMs` have passed. */
const play = async (port: number, { cuts, drips, pauseMs, requests, tail, tailHandler, waits }: Script) => {
  const socket = connect({ port, host: "127.0.0.1", allowHalfOpen: drips }).on("error", () => {})
  let received = ""
  const state = { isOpen: true }
  socket.setEncoding("latin1").on("data", (text: string) => void (received += text))
  const late = new AbortController()
  socket.on("end", () => void (state.isOpen = false))
  const closed = new Promise<void>((resolve) => socket.on("close", () => resolve(void (state.isOpen = false))))
  let isLate = false
  const destroy = () => {
    isLate = true
    socket.destroy()
  }
  setTimeout(maxEndMs, undefined, { signal: late.signal }).then(destroy, () => {})
  const send = async (bytes: string) => {
    for (const piece of pieces(bytes, cuts)) {
      socket.write(piece, "latin1")
      await setTimeout(pauseMs)
    }
  }
  const { bytes, drip = "x", fields, halfCloses = false } = tails[tail] ?? assert.fail()
  const last = fields === undefined ? bytes : requestBytes(requests.length, tailHandler, fields, bytes)
  const all = requests.map(({ body, handler }, id) => requestBytes(id, handler, ...wholeBodies[body] ?? assert.fail()))
  if (waits) {
    for (const [index, request] of all.entries()) {
      await send(request)
      while (state.isOpen && responsesOf(received).length <= index) await Promise.race([setTimeout(5), closed])
    }
    await send(last)
  } else await send(all.join("") + last)
  if (halfCloses || !state.isOpen) socket.end()
  const timer = !drips || halfCloses ? undefined : setInterval(() => socket.write(drip), 40)
  await closed
  late.abort()
  clearInterval(timer)
  return { responses: responsesOf(received), isLate }
}

/** The responses that the client of `script` may get, and how many it must get at least. */
const expected = ({ requests, tail, tailHandler, waits }: Script) => {
  const { fields, status } = tails[tail] ?? assert.fail()
  const id = fields === undefined ? "rejected" : requests.length
  const statusOfTail = tailHandler === "ignores the body" && fields !== undefined ? 200 : status
  // A client that sends no request at all gets 408.
  const idle = requests.length === 0 ? ["408 rejected"] : []
  const ofTail = status === 0 ? [] : [`${statusOfTail} ${id}`]
  const responses = [...requests.map((_, index) => `200 ${index}`), ...ofTail]
  const failing = requests.findIndex(({ handler }) => handler === "hangs" || handler === "throws late")
  // Node closes the connection after a response to a client that still waits for 100 Continue.
  const closing = requests.findIndex(({ body, handler }) => body === expectsContinue && !handler.startsWith("reads"))
  const end = Math.min(...[failing, closing + 1 || -1, responses.length].filter((index) => index >= 0))
  // A third request is not run if it arrives while the second waits.
  return { responses: [...responses.slice(0, end), ...idle], least: waits ? end : Math.min(end, 2) }
}

const handle = Effect.gen(function*() {
  const request = yield* HttpServerRequest.HttpServerRequest
  const { source, url } = request
  const handler = request.headers.x
  const id = url.slice(1)
  if (handler === "hangs") return yield* Effect.never
  if (handler !== "responds" && handler !== "reads") yield* Effect.promise(() => setTimeout(20))
  if (handler === "throws late") return HttpServerResponse.raw(42)
  if (handler === "responds" || handler === "ignores the body") return HttpServerResponse.text(id)
  const body = yield* Effect.callback<SettledBody>((resume) => {
    if (isBodySource(source)) source.whenRead((settled) => resume(Effect.succeed(settled)))
  })
  if (body._tag === "Whole") return HttpServerResponse.text(id)
  return HttpServerResponse.text(id, { status: bodyErrorOf(body.fault).status })
})

/** Serves `handle` with the bounds of the service, in shorter times. Returns the port and the defects. */
const serveHandlers: Effect.Effect<
  { readonly port: number; readonly defects: ReadonlyArray<unknown> },
  unknown,
  Scope.Scope
> = Effect.gen(function*() {
  const defects: Array<unknown> = []
  const server = new OrderedServer({
    requireHostHeader: false,
    headersTimeout: 400,
    requestTimeout: 700,
    keepAliveTimeout: 200,
    connectionsCheckingInterval: 50,
    limits: { bodyBytes: 16_384, bodyChunks: 4_096, requestMs: 1_500, readMs: 1_000, unreadBytes: 64 * 1024 * 1024 },
    onDefect: (defect) => void defects.push(defect)
  })
  yield* ParserRejections.attach(
    server,
    ({ status }) =>
      Effect.succeed(HttpServerResponse.text("rejected", { status, headers: { ...close, "content-length": "8" } }))
  )
  const made = yield* NodeHttpServer.make(() => server, { host: "127.0.0.1", port: 0 })
  // Effect's router also makes handlers interruptible.
  yield* made.serve(Effect.interruptible(handle))
  server.removeAllListeners("upgrade")
  return { port: made.address._tag === "UnixPathAddress" ? 0 : made.address.port, defects }
})

const seeds = Number(process.env.SEEDS ?? 1)

it.live(
  "A connection gets one response for each whole request, in order, and ends in time",
  () =>
    Effect.gen(function*() {
      const { defects, port } = yield* serveHandlers
      for (let seed = 1; seed <= seeds; seed++) {
        const scripts = fc.sample(script, { seed, numRuns: connectionsPerSeed })
        const results = yield* Effect.promise(() => Promise.all(scripts.map((each) => play(port, each))))
        const faults = scripts.flatMap((each, index) => {
          const { isLate, responses } = results[index] ?? assert.fail()
          const { least, responses: all } = expected(each)
          const isPrefix = responses.every((response, at) => response === all[at])
          return !isLate && isPrefix && responses.length >= least
            ? []
            : [{ seed, ...each, isLate, responses, all, least }]
        })
        assert.isEmpty(faults, JSON.stringify(faults.slice(0, 5), null, 1))
      }
      assert.isNotEmpty(defects)
      for (const defect of defects) assert.propertyVal(defect, "code", "ERR_INVALID_ARG_TYPE")
    }).pipe(Effect.scoped),
  seeds * 20_000
)
