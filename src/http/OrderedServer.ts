/**
 * Node's HTTP server with two rules of this service: the requests of a connection run one at a time, and a body arrives
 * in one piece. So a client cannot make the process hold more than a connection is allowed to.
 */
import { IncomingMessage, Server, type ServerOptions, ServerResponse } from "node:http"
import type { Duplex } from "node:stream"
import * as JsonBody from "./JsonBody.ts"

/** The maximum number of pieces in which a body arrives: chunks, or segments of the network. */
const maxBodyPieces = 4_096

/** The maximum number of requests that wait behind the running one. The next one destroys the connection. */
const maxWaiting = 16

/** The milliseconds for which a closing connection is read. */
const maxCloseMs = 1_000

/**
 * Closes a connection after its last response. It drops what the client still sends, because unread data would reset
 * the connection and lose the response.
 */
export const closeGently = (socket: Duplex): void => {
  socket.end()
  socket.resume()
  const timer = setTimeout(() => socket.destroy(), maxCloseMs).unref()
  socket.once("close", () => clearTimeout(timer))
}

const empty = Buffer.alloc(0)

class TooManyPieces extends Error {
  readonly code = "ERR_TOO_MANY_PIECES"
}

/** A request whose body is one buffer. A fault in the body fails its readers and leaves the connection open. */
export class Request extends IncomingMessage {
  #bytes = empty
  #size = 0
  #pieces = 0
  #hasFault = false

  // Node's parser calls this with each piece, which is a view of the 64 KiB that one read of the socket allocates.
  override push(piece: Buffer | null): boolean {
    const size = this.#size + (piece?.length ?? 0)
    if (piece === null || size > JsonBody.maxBytes) {
      if (this.#size > 0) super.push(this.#bytes.subarray(0, this.#size))
      this.#bytes = empty
      this.#size = 0
      return super.push(piece)
    }
    if (++this.#pieces > maxBodyPieces) this.fail(new TooManyPieces("The body arrives in too many pieces"))
    if (size > this.#bytes.length) {
      const bytes = Buffer.allocUnsafe(Math.min(Math.max(size, 2 * this.#bytes.length), JsonBody.maxBytes))
      this.#bytes.copy(bytes, 0, 0, this.#size)
      this.#bytes = bytes
    }
    piece.copy(this.#bytes, this.#size)
    this.#size = size
    return !this.#hasFault
  }

  /** Fails the current and later readers of the body with `fault`. */
  fail(fault: Error): void {
    this.#hasFault = true
    this.destroy(fault)
  }

  // Without this, Node closes the connection before the client gets a response.
  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    if (!this.#hasFault) return super._destroy(error, done)
    // Without a reader, nothing would handle an emitted error.
    process.nextTick(() => done(this.listenerCount("error") === 0 ? null : error))
  }
}

interface Connection {
  readonly waiting: Array<() => void>
  isBusy: boolean
  /** The response to the last request that arrived. */
  last?: ServerResponse<Request>
}

export class OrderedServer extends Server<typeof Request> {
  // The requests of a socket that closes are collected with it.
  readonly #connections = new WeakMap<Duplex, Connection>()

  constructor(options: ServerOptions<typeof Request>) {
    super({ ...options, IncomingMessage: Request })
    // A client that half-closes after its request still gets the response.
    Object.assign(this, { httpAllowHalfOpen: true })
    // Without a listener, Node responds to an unknown `Expect` itself.
    this.on("checkExpectation", () => {})
    this.on("connection", (socket) => {
      socket.destroySoon = () => closeGently(socket)
    })
  }

  // Holds the events of a request back until the response before it is sent (RFC 9112 §9.3.2).
  override emit(event: string, ...values: ReadonlyArray<unknown>): boolean {
    const [request, response] = values
    if (!(request instanceof Request && response instanceof ServerResponse)) return super.emit(event, ...values)
    const { socket } = request
    const connection = this.#connectionOf(socket)
    connection.last = response
    // Node's parser drops what follows an upgrade, which this service ignores, in the same read.
    if (request.headers.upgrade !== undefined) response.shouldKeepAlive = false
    this.#enqueue(socket, connection, () => {
      response.once("finish", () => this.#startNext(socket, connection))
      super.emit(event === "checkExpectation" ? "request" : event, request, response)
    })
    return true
  }

  /**
   * Ends a connection whose next bytes are not HTTP. If they belong to a body, its request fails with `fault`, so that
   * no request gets two responses. Otherwise `respond` runs after the responses before it.
   */
  end(socket: Duplex, fault: Error, respond: () => void): void {
    const connection = this.#connectionOf(socket)
    const { last } = connection
    if (last === undefined || last.req.complete) this.#enqueue(socket, connection, respond)
    else if (last.writableEnded) closeGently(socket)
    else {
      last.shouldKeepAlive = false
      last.req.fail(fault)
    }
  }

  #connectionOf(socket: Duplex): Connection {
    const existing = this.#connections.get(socket)
    if (existing !== undefined) return existing
    const connection: Connection = { waiting: [], isBusy: false }
    this.#connections.set(socket, connection)
    return connection
  }

  #enqueue(socket: Duplex, connection: Connection, start: () => void): void {
    if (connection.waiting.length === maxWaiting) socket.destroy()
    else if (connection.isBusy) connection.waiting.push(start)
    else {
      connection.isBusy = true
      start()
    }
  }

  #startNext(socket: Duplex, connection: Connection): void {
    // A closing connection stays busy, so that no further request starts.
    if (socket.writableEnded) return
    const start = connection.waiting.shift()
    connection.isBusy = start !== undefined
    start?.()
  }
}
