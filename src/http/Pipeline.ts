/** Answers to requests that come one behind the other on a connection, and how many of them wait there. */
import { type IncomingMessage, ServerResponse } from "node:http"
import type { Socket } from "node:net"

/** Most that may wait on a connection for the answers before: requests, and bytes of answers. Beyond either it is cut off. */
const mostWaiting = { requests: 500, bytes: 16 * 1024 * 1024 }

/** The answers that wait on a connection for those before them. */
class Line {
  static readonly #lines = new WeakMap<Socket, Line>()
  readonly #socket: Socket
  readonly #answers = new Set<ServerResponse>()
  #bytes = 0

  constructor(socket: Socket) {
    this.#socket = socket
    // Before Node 24 nobody tells them that their connection is gone, and who waits for their end would wait for ever.
    socket.once("close", () => {
      for (const answer of this.#answers) if (!answer.closed) answer.emit("close")
    })
  }

  static of(socket: Socket): Line {
    const line = Line.#lines.get(socket) ?? new Line(socket)
    Line.#lines.set(socket, line)
    return line
  }

  /** Keeps `answer`, with so many bytes more, until it has the connection; false where that is cut off as too much. */
  keep(answer: ServerResponse, bytes: number): boolean {
    this.#answers.add(answer)
    this.#bytes += bytes
    answer.once("socket", () => {
      this.#answers.delete(answer)
      this.#bytes -= bytes
    })
    if (this.#answers.size <= mostWaiting.requests && this.#bytes <= mostWaiting.bytes) return true
    this.#socket.destroy()
    return false
  }
}

/** An answer that waits where another has the connection, and goes out with those that are ready in the same turn. */
export class Answer<Request extends IncomingMessage> extends ServerResponse<Request> {
  static #ended: Array<() => void> = []

  /** Takes its place behind the answers before it; false where the connection is gone or is cut off here, and nothing is to begin. */
  takePlace(): boolean {
    const { socket } = this.req
    return !socket.destroyed && (this.socket !== null || Line.of(socket).keep(this, 0))
  }

  /**
   * Ends at the end of the turn of the event loop, together with all others whose requests were read in it: a caller on this
   * machine that went to sleep over the first of them wakes once for all: 15,000 gets a second became 24,000 (wrk, 32 connections).
   */
  override end(...given: Array<unknown>): this {
    const [body] = given
    if (this.socket === null && (typeof body === "string" || body instanceof Uint8Array)) {
      Line.of(this.req.socket).keep(this, Buffer.byteLength(body))
    }
    const end = () => {
      // Of who is gone meanwhile nothing is sent, and so none of the length that was told.
      if (this.destroyed) this.strictContentLength = false
      try {
        Reflect.apply(super.end, this, given)
      } catch {
        // Nobody is there to catch it, and the others are not to suffer.
        this.destroy()
      }
    }
    if (Answer.#ended.push(end) === 1) {
      setImmediate(() => {
        const ended = Answer.#ended
        Answer.#ended = []
        for (const each of ended) each()
      })
    }
    return this
  }
}
