/** Responses to pipelined requests: how many wait on a connection, and how they are sent together. */
import { type IncomingMessage, ServerResponse } from "node:http"
import type { Socket } from "node:net"
import type { Duplex } from "node:stream"
import { IncomingRequest } from "./IncomingRequest.ts"
import type { ResponseBuffers } from "./ResponseBuffers.ts"

/**
 * The maximum of requests that wait on a connection for earlier responses, and of their bytes. Beyond either, the
 * connection closes after the responses that are ready.
 */
const maxWaiting = { requests: 500, bytes: 16 * 1024 * 1024 }

/** The maximum of requests of one connection that are handled at once. All of them must be safe. */
const maxParallel = 16

/**
 * Closes a connection after its last response. It reads and drops what the client still sends, because unread data
 * would reset the connection and lose the response. After one second it destroys the connection.
 */
export const closeGently = (socket: Duplex): void => {
  socket.end()
  socket.resume()
  setTimeout(() => socket.destroy(), 1_000).unref()
}

/** Safe methods (RFC 9110 §9.2.1). */
const safeMethods = new Set(["GET", "HEAD", "OPTIONS", "TRACE"])
const isSafe = ({ method = "" }: IncomingMessage): boolean => safeMethods.has(method)

/** The maximum of body bytes that Node buffers while no handler reads the body. */
const buffered = ({ headers, readableHighWaterMark }: IncomingMessage): number =>
  headers["transfer-encoding"] === undefined
    ? Math.min(Number(headers["content-length"] ?? 0), readableHighWaterMark)
    : readableHighWaterMark

/**
 * Returns the response that Node sends on the connection now. Node keeps it in `_httpMessage` and has no public
 * accessor. Without it, a client error could overtake the responses before it (`test/http/ApiServer.test.ts`).
 */
export const currentResponse = (socket: Duplex): ServerResponse | undefined => {
  const answer: unknown = Reflect.get(socket, "_httpMessage")
  return answer instanceof ServerResponse ? answer : undefined
}

const isReady = (response: ServerResponse): boolean => response instanceof PipelinedResponse && response.isReady

/** The responses that wait on a connection for earlier responses, in the order of their requests. */
class Line {
  static readonly #lines = new WeakMap<Socket, Line>()
  readonly #socket: Socket
  /** The waiting responses, with the bytes that each keeps. */
  readonly #waiting = new Map<ServerResponse, number>()
  #bytes = 0
  #isCut = false

  constructor(socket: Socket) {
    this.#socket = socket
    Line.#lines.set(socket, this)
    socket.once("close", () => {
      for (const answer of this.#waiting.keys()) answer.destroy()
      // Node 24 has emitted `close` by then. Node 22 does not emit it, and the waiting requests would never end.
      process.nextTick(() => {
        for (const answer of this.#waiting.keys()) if (!answer.closed) answer.emit("close")
      })
    })
  }

  static of(socket: Socket): Line {
    return Line.#lines.get(socket) ?? new Line(socket)
  }

  /** Whether another safe request can begin: few requests are handled on the connection, and all of them are safe. */
  get isParallel(): boolean {
    if (this.#waiting.size >= maxParallel - 1) return false
    for (const answer of this.#waiting.keys()) if (!isSafe(answer.req)) return false
    const current = currentResponse(this.#socket)
    return current !== undefined && isSafe(current.req)
  }

  /** Whether the connection is about to close, so that no further request on it may begin. */
  get isCut(): boolean {
    return this.#isCut
  }

  /**
   * Keeps `answer`, with so many more bytes, until it has the connection. Returns false beyond the limits: then the
   * connection closes.
   */
  keep(answer: ServerResponse, bytes: number): boolean {
    if (this.#isCut) return false
    const before = this.#waiting.get(answer)
    if (before === undefined) answer.once("socket", () => this.#leave(answer))
    this.#waiting.set(answer, (before ?? 0) + bytes)
    this.#bytes += bytes
    if (this.#waiting.size <= maxWaiting.requests && this.#bytes <= maxWaiting.bytes) return true
    this.#cut()
    return false
  }

  /** Closes the connection after the responses that are ready. */
  #cut(): void {
    this.#isCut = true
    this.#socket.pause()
    const current = currentResponse(this.#socket)
    if (current === undefined || !isReady(current)) {
      this.#socket.destroy()
      return
    }
    let last = current
    for (const answer of this.#waiting.keys()) {
      if (!isReady(answer)) break
      last = answer
    }
    last.prependOnceListener("finish", () => closeGently(this.#socket))
  }

  #leave(answer: ServerResponse): void {
    this.#bytes -= this.#waiting.get(answer) ?? 0
    this.#waiting.delete(answer)
  }
}

/** Sends the responses of one server. */
export class ResponseQueue {
  readonly buffers: ResponseBuffers
  #ended: Array<() => void> | undefined

  constructor(buffers: ResponseBuffers) {
    this.buffers = buffers
  }

  /**
   * Runs `end` at once for the first response of a turn of the event loop, and at the end of the turn for the others.
   * Their clients then wake once, and each write costs less. Measured: 1.4 times as many gets per second with 256
   * connections over a network with a delay of 1 ms, and 1.4 to 1.9 times with 8 to 256 connections on one machine.
   * Delaying the first response too costs clients over a network up to 12 % of their requests.
   */
  end(end: () => void): void {
    if (this.#ended !== undefined) {
      this.#ended.push(end)
      return
    }
    const ended: Array<() => void> = []
    this.#ended = ended
    setImmediate(() => {
      this.#ended = undefined
      for (const each of ended) each()
    })
    end()
  }
}

/** A response that waits for earlier responses on its connection, and is sent together with others of the same turn. */
export class PipelinedResponse<Request extends IncomingMessage = IncomingMessage> extends ServerResponse<Request> {
  readonly #outbox: ResponseQueue
  #isReady = false

  constructor(request: Request, outbox: ResponseQueue) {
    super(request)
    this.#outbox = outbox
  }

  /** Whether `end` was called, so that the whole response is known. */
  get isReady(): boolean {
    return this.#isReady
  }

  /**
   * Runs `begin` at most once. It runs at once if no earlier request on the connection waits for its response, or if
   * all of them and this request are safe. Else it runs after the earlier responses (RFC 9112 §9.3.2). It never runs if
   * the connection is closed.
   */
  takePlace(begin: () => void): void {
    const { socket } = this.req
    if (socket.destroyed) return
    if (this.req instanceof IncomingRequest) this.req.response = this
    if (this.socket !== null) return begin()
    const line = Line.of(socket)
    const isParallel = line.isParallel && isSafe(this.req)
    if (!line.keep(this, isParallel ? 0 : buffered(this.req))) return
    if (isParallel) begin()
    // Node gives the connection to each response in turn, even after the connection was closed.
    else this.once("socket", () => !socket.destroyed && !line.isCut && begin())
  }

  /** `writableEnded` is false until the response is sent, which happens at the end of the turn at the latest. */
  override end(...given: Array<unknown>): this {
    const [body] = given
    const bytes = typeof body === "string" || body instanceof Uint8Array ? Buffer.byteLength(body) : 0
    this.#isReady = true
    const isWaiting = this.socket === null
    if (isWaiting && Line.of(this.req.socket).keep(this, bytes)) this.#hold(bytes)
    this.#outbox.end(() => {
      // Nothing is written to a closed connection, so the length of the body cannot match `Content-Length`.
      if (this.destroyed) this.strictContentLength = false
      try {
        Reflect.apply(super.end, this, given)
      } catch {
        // No caller could catch this error, and it must not affect the other responses.
        this.req.socket.destroy()
      }
      if (!isWaiting && this.req.socket.writableLength > 0) this.#hold(bytes)
    })
    return this
  }

  /** Counts the response until it is flushed or its connection is closed. */
  #hold(bytes: number): void {
    if (this.closed || this.req.socket.destroyed) return
    const slot = this.req instanceof IncomingRequest ? this.req.requestContext?.slot : undefined
    this.once("close", this.#outbox.buffers.hold(this.req.socket, bytes, slot))
  }
}
