/** Responses to pipelined requests: how many wait on a connection, and how they are sent together. */
import { type IncomingMessage, ServerResponse } from "node:http"
import type { Socket } from "node:net"
import type { Duplex } from "node:stream"
import { IncomingRequest } from "./IncomingRequest.ts"
import type { ResponseBuffers } from "./ResponseBuffers.ts"

/**
 * Requests that may wait on a connection for the responses before theirs, and bytes of their bodies and responses.
 * Beyond either the connection is closed behind the responses that are ready.
 */
const maxWaiting = { requests: 500, bytes: 16 * 1024 * 1024 }

/** Requests of one connection that are handled at once, if all of them are safe. */
const maxParallel = 16

/**
 * Closes a connection after its last response. What the peer still sends is read and dropped, because unread data would
 * reset the connection and lose the response. After a second it is destroyed, so that no peer can hold it open.
 */
export const closeGently = (socket: Duplex): void => {
  socket.end()
  socket.resume()
  setTimeout(() => socket.destroy(), 1_000).unref()
}

/** RFC 9110 §9.2.1. */
const safeMethods = new Set(["GET", "HEAD", "OPTIONS", "TRACE"])
const isSafe = ({ method = "" }: IncomingMessage): boolean => safeMethods.has(method)

/** Bytes of the body that are kept at most while nobody reads it. */
const buffered = ({ headers, readableHighWaterMark }: IncomingMessage): number =>
  headers["transfer-encoding"] === undefined
    ? Math.min(Number(headers["content-length"] ?? 0), readableHighWaterMark)
    : readableHighWaterMark

/** The answer that has the connection. Node keeps it there, and says so nowhere. */
export const currentResponse = (socket: Duplex): ServerResponse | undefined => {
  const answer: unknown = Reflect.get(socket, "_httpMessage")
  return answer instanceof ServerResponse ? answer : undefined
}

const isReady = (response: ServerResponse): boolean => response instanceof PipelinedResponse && response.isReady

/** The responses that wait on a connection for those before them, in the order of their requests. */
class Line {
  static readonly #lines = new WeakMap<Socket, Line>()
  readonly #socket: Socket
  /** With the bytes that each keeps. */
  readonly #waiting = new Map<ServerResponse, number>()
  #bytes = 0
  #isCut = false

  constructor(socket: Socket) {
    this.#socket = socket
    Line.#lines.set(socket, this)
    socket.once("close", () => {
      for (const answer of this.#waiting.keys()) answer.destroy()
      // Node 24 has told them by then. Before, nobody does, and who waits for their end would wait for ever.
      process.nextTick(() => {
        for (const answer of this.#waiting.keys()) if (!answer.closed) answer.emit("close")
      })
    })
  }

  static of(socket: Socket): Line {
    return Line.#lines.get(socket) ?? new Line(socket)
  }

  /** Whether another safe request can be handled beside those that have no response yet: few, and all of them safe. */
  get isParallel(): boolean {
    if (this.#waiting.size >= maxParallel - 1) return false
    for (const answer of this.#waiting.keys()) if (!isSafe(answer.req)) return false
    const current = currentResponse(this.#socket)
    return current !== undefined && isSafe(current.req)
  }

  /** Whether the connection is about to be closed, and no further request on it may begin. */
  get isCut(): boolean {
    return this.#isCut
  }

  /**
   * Keeps `answer`, with so many bytes more, until it has the connection. Returns false where that is too much: then
   * the connection is closed.
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

  /** Closes the connection behind the responses that are ready. */
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

/** How the responses of one server are sent. */
export class ResponseQueue {
  readonly buffers: ResponseBuffers
  #ended: Array<() => void> | undefined

  constructor(buffers: ResponseBuffers) {
    this.buffers = buffers
  }

  /**
   * Runs `end` at once for the first response of a turn of the event loop, and for the others when the turn ends. Their
   * clients then wake once, and each write costs less: with 256 connections over a network with a delay of 1 ms, 1.4
   * times as many gets a second as without, with 8 to 256 connections on one machine 1.4 to 1.9 times. To hold the
   * first one back too costs clients over a network up to 12 % of their requests.
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

/** A response that waits while another has the connection, and is sent with those that are ready in the same turn. */
export class PipelinedResponse<Request extends IncomingMessage = IncomingMessage> extends ServerResponse<Request> {
  readonly #outbox: ResponseQueue
  #isReady = false

  constructor(request: Request, outbox: ResponseQueue) {
    super(request)
    this.#outbox = outbox
  }

  /** Whether `end` was called: all of the response is there. */
  get isReady(): boolean {
    return this.#isReady
  }

  /**
   * Runs `begin` at most once: at once where nothing before it on the connection is unanswered, or where all of that
   * and the request itself change nothing; else when those before it are answered (RFC 9112 §9.3.2). Never if the
   * connection is gone or is closed here.
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
    // Node gives the connection to each response in turn, even if it is closed behind the one before.
    else this.once("socket", () => !socket.destroyed && !line.isCut && begin())
  }

  /** Until the response is sent, at the end of the turn at the latest, `writableEnded` is false. */
  override end(...given: Array<unknown>): this {
    const [body] = given
    const bytes = typeof body === "string" || body instanceof Uint8Array ? Buffer.byteLength(body) : 0
    this.#isReady = true
    const isWaiting = this.socket === null
    if (isWaiting && Line.of(this.req.socket).keep(this, bytes)) this.#hold(bytes)
    this.#outbox.end(() => {
      // Nothing is written to a connection that is gone, so `Content-Length` cannot be met: it is not checked.
      if (this.destroyed) this.strictContentLength = false
      try {
        Reflect.apply(super.end, this, given)
      } catch {
        // No caller could catch it, and the other responses must not suffer.
        this.req.socket.destroy()
      }
      if (!isWaiting && this.req.socket.writableLength > 0) this.#hold(bytes)
    })
    return this
  }

  /** Counts the response until it is flushed, or its connection is closed. */
  #hold(bytes: number): void {
    if (this.closed || this.req.socket.destroyed) return
    const slot = this.req instanceof IncomingRequest ? this.req.requestContext?.slot : undefined
    this.once("close", this.#outbox.buffers.hold(this.req.socket, bytes, slot))
  }
}
