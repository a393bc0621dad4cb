/**
 * Answers to requests that come one behind the other on a connection: how many wait there, and how they go out
 * together.
 */
import { type IncomingMessage, ServerResponse } from "node:http"
import type { Socket } from "node:net"
import type { Duplex } from "node:stream"

/**
 * Most that may wait on a connection for the answers before: requests, and bytes of bodies and answers. Beyond either
 * it is cut off.
 */
const mostWaiting = { requests: 500, bytes: 16 * 1024 * 1024 }

/** RFC 9110 §9.2.1. */
const safeMethods = new Set(["GET", "HEAD", "OPTIONS", "TRACE"])
const isSafe = ({ method = "" }: IncomingMessage): boolean => safeMethods.has(method)

/** Bytes of the body that are kept at most while nobody reads it. */
const buffered = ({ headers, readableHighWaterMark }: IncomingMessage): number =>
  headers["transfer-encoding"] === undefined
    ? Math.min(Number(headers["content-length"] ?? 0), readableHighWaterMark)
    : readableHighWaterMark

/** The answer that has the connection. Node keeps it there, and says so nowhere. */
export const answerOn = (socket: Duplex): ServerResponse | undefined => {
  const answer: unknown = Reflect.get(socket, "_httpMessage")
  return answer instanceof ServerResponse ? answer : undefined
}

/** The answers that wait on a connection for those before them. */
class Line {
  static readonly #lines = new WeakMap<Socket, Line>()
  readonly #socket: Socket
  /** With the bytes that each keeps. */
  readonly #waiting = new Map<ServerResponse, number>()
  #bytes = 0

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

  /** Whether all that was asked on the connection, and is not answered yet, is safe. */
  get isSafe(): boolean {
    for (const answer of this.#waiting.keys()) if (!isSafe(answer.req)) return false
    const current = answerOn(this.#socket)
    return current !== undefined && isSafe(current.req)
  }

  /**
   * Keeps `answer`, with so many bytes more, until it has the connection; false where that is too much, and cut off.
   */
  keep(answer: ServerResponse, bytes: number): boolean {
    const before = this.#waiting.get(answer)
    if (before === undefined) answer.once("socket", () => this.#leave(answer))
    this.#waiting.set(answer, (before ?? 0) + bytes)
    this.#bytes += bytes
    if (this.#waiting.size <= mostWaiting.requests && this.#bytes <= mostWaiting.bytes) return true
    this.#socket.destroy()
    return false
  }

  #leave(answer: ServerResponse): void {
    this.#bytes -= this.#waiting.get(answer) ?? 0
    this.#waiting.delete(answer)
  }
}

/** An answer that waits where another has the connection, and goes out with those that are ready in the same turn. */
export class PipelinedResponse<Request extends IncomingMessage> extends ServerResponse<Request> {
  static #ended: Array<() => void> = []

  /**
   * Runs `begin` at most once: at once where nothing before it on the connection is unanswered, or where all of that
   * and the request itself change nothing; else when those before it are answered (RFC 9112 §9.3.2). Never if the
   * connection is gone or is cut off here.
   */
  takePlace(begin: () => void): void {
    const { socket } = this.req
    if (socket.destroyed) return
    if (this.socket !== null) return begin()
    const line = Line.of(socket)
    const isParallel = line.isSafe && isSafe(this.req)
    if (!line.keep(this, isParallel ? 0 : buffered(this.req))) return
    if (isParallel) begin()
    // One that was cut off ends what it has, and only then is closed.
    else this.once("socket", () => !socket.destroyed && begin())
  }

  /**
   * Ends when this turn of the event loop ends (until then `writableEnded` is false), together with the answers to all
   * requests read in the same turn. A caller on this machine that sleeps until the first of them arrives then wakes
   * once for all: 15,000 gets a second became 24,000 (wrk, 32 connections).
   */
  override end(...given: Array<unknown>): this {
    const [body] = given
    if (this.socket === null && (typeof body === "string" || body instanceof Uint8Array)) {
      Line.of(this.req.socket).keep(this, Buffer.byteLength(body))
    }
    const end = () => {
      // To who is gone meanwhile nothing is written, so that `Content-Length` cannot be met: it is not checked.
      if (this.destroyed) this.strictContentLength = false
      try {
        Reflect.apply(super.end, this, given)
      } catch {
        // Nobody is there to catch it, and the others are not to suffer; nor is anything to wait for this one.
        this.req.socket.destroy()
      }
    }
    if (PipelinedResponse.#ended.push(end) === 1) {
      setImmediate(() => {
        const ended = PipelinedResponse.#ended
        PipelinedResponse.#ended = []
        for (const each of ended) each()
      })
    }
    return this
  }
}
