/** Answers to requests that come one behind the other on a connection, and how many of them wait there. */
import { type IncomingMessage, ServerResponse } from "node:http"
import type { Socket } from "node:net"
import type { Duplex } from "node:stream"

/** Most that may wait on a connection for the answers before: requests, and bytes of answers. Beyond either it is cut off. */
const mostWaiting = { requests: 500, bytes: 16 * 1024 * 1024 }

const isSafe = ({ method = "" }: IncomingMessage): boolean => ["GET", "HEAD", "OPTIONS", "TRACE"].includes(method)

/** The answer that has the connection. Node keeps it there, and says so nowhere. */
export const answerOn = (socket: Duplex): ServerResponse | undefined => {
  const answer: unknown = Reflect.get(socket, "_httpMessage")
  return answer instanceof ServerResponse ? answer : undefined
}

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

  /** Whether all that was asked on the connection, and is not answered yet, is safe. */
  get isSafe(): boolean {
    for (const answer of this.#answers) if (!isSafe(answer.req)) return false
    const current = answerOn(this.#socket)
    return current !== undefined && isSafe(current.req)
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

  /**
   * Runs `begin` where the request may begin: at once, or when those before it are answered, where they or it are to change
   * something (RFC 9112 §9.3.2); never where the connection is gone, or cut off here.
   */
  takePlace(begin: () => void): void {
    const { socket } = this.req
    if (socket.destroyed) return
    if (this.socket !== null) return begin()
    const line = Line.of(socket)
    const isParallel = line.isSafe && isSafe(this.req)
    if (!line.keep(this, 0)) return
    if (isParallel) begin()
    else this.once("socket", begin)
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
