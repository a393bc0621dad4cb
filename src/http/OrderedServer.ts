/** Node's HTTP server, which runs the requests of a connection one at a time, and copies each body into one buffer. */
import { IncomingMessage, Server, type ServerOptions, ServerResponse } from "node:http"
import type { Socket } from "node:net"
import * as JsonBody from "./JsonBody.ts"

/** The requests that may wait behind the running one. One more destroys the connection. */
const maxWaiting = 16

/** The bytes that may arrive behind the running request. */
const maxWaitingBytes = 65_536

/** The time in which a client must read a response. */
const maxUnreadMs = 60_000

/** The pieces in which a body may arrive: chunks, or segments of the network. */
const maxBodyPieces = 4_096

/**
 * Closes a connection after its last response. Reads and discards what the client still sends: otherwise the close
 * would reset the connection, and the client could lose the response.
 */
export const closeGently = (socket: Socket): void => {
  socket.end()
  socket.resume()
  const timer = setTimeout(() => socket.destroy(), 1_000).unref()
  socket.once("close", () => clearTimeout(timer))
}

const empty = Buffer.alloc(0)

export class Request extends IncomingMessage {
  #bytes = empty
  #size = 0
  #pieces = 0
  #hasFault = false

  get #server(): OrderedServer | undefined {
    const server: unknown = Reflect.get(this.socket, "server")
    return server instanceof OrderedServer ? server : undefined
  }

  // The parser calls this with each piece: a view that keeps the 64 KiB of a whole read of the socket alive.
  override push(piece: Buffer | null): boolean {
    if (this.#hasFault) return true
    const size = this.#size + (piece?.length ?? 0)
    if (piece === null || size > JsonBody.maxBytes) {
      if (this.#size > 0) super.push(this.#bytes.subarray(0, this.#size))
      this.#bytes = empty
      this.#size = 0
      return super.push(piece)
    }
    if (++this.#pieces > maxBodyPieces) {
      const fault = Object.assign(new Error("The body has too many pieces"), { code: "ERR_TOO_MANY_PIECES" })
      this.#hasFault = true
      this.#server?.emit("clientError", fault, this.socket)
      return true
    }
    if (size > this.#bytes.length) {
      const larger = Buffer.allocUnsafe(Math.min(Math.max(size, 2 * this.#bytes.length), JsonBody.maxBytes))
      this.#bytes.copy(larger, 0, 0, this.#size)
      this.#bytes = larger
    }
    piece.copy(this.#bytes, this.#size)
    this.#size = size
    return true
  }

  /** Fails current and later readers of the body. Unlike `destroy`, it leaves the connection open for the response. */
  fail(fault: Error): void {
    this.#hasFault = true
    this.destroy(fault)
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    if (!this.#hasFault) return super._destroy(error, done)
    // Without a reader, nothing would handle the error.
    process.nextTick(() => done(this.listenerCount("error") === 0 ? null : error))
  }
}

interface Connection {
  readonly waiting: Array<() => void>
  isBusy: boolean
  /** The bytes that had arrived when the first waiting request did. */
  waitingFrom: number
  last?: ServerResponse<Request>
}

export class OrderedServer extends Server<typeof Request> {
  // Weak, so that what waits is collected with its socket.
  readonly #connections = new WeakMap<Socket, Connection>()

  constructor(options: ServerOptions<typeof Request>) {
    super({ ...options, IncomingMessage: Request })
    // Allows half-open sockets: a client that half-closes after its request still gets the response.
    Object.assign(this, { httpAllowHalfOpen: true })
    // Without a listener, Node responds to an unknown `Expect` itself.
    this.on("checkExpectation", () => {})
    this.on("connection", (socket) => {
      socket.destroySoon = () => closeGently(socket)
    })
  }

  // Holds a request back until the response before it is sent (RFC 9112 §9.3.2).
  override emit(event: string, ...values: ReadonlyArray<unknown>): boolean {
    const [request, response] = values
    if (!(request instanceof Request && response instanceof ServerResponse)) return super.emit(event, ...values)
    const { socket } = request
    const connection = this.#connectionOf(socket)
    connection.last = response
    // If an `Upgrade` is ignored, Node's parser drops pipelined bytes of the same socket read.
    if (request.headers.upgrade !== undefined) response.shouldKeepAlive = false
    this.#enqueue(socket, connection, () => {
      response.once("finish", () => this.#startNext(socket, connection))
      // Node's idle timeout restarts with each byte that the client sends, also while it does not read.
      response.once("prefinish", () => {
        if (socket.writableLength === 0) return
        const timer = setTimeout(() => socket.destroy(), maxUnreadMs).unref()
        response.once("close", () => clearTimeout(timer))
      })
      super.emit(event === "checkExpectation" ? "request" : event, request, response)
    })
    return true
  }

  /**
   * Ends a connection whose next bytes are not HTTP. In a body, they fail its request, so that no request gets two
   * responses. Otherwise `respond` runs after the responses before it.
   */
  end(socket: Socket, fault: Error, respond: () => void): void {
    const connection = this.#connectionOf(socket)
    const { last } = connection
    if (last === undefined || last.req.complete) this.#enqueue(socket, connection, respond)
    else if (last.writableEnded) closeGently(socket)
    else {
      last.shouldKeepAlive = false
      last.req.fail(fault)
    }
  }

  #connectionOf(socket: Socket): Connection {
    const connection = this.#connections.get(socket) ?? { waiting: [], isBusy: false, waitingFrom: 0 }
    this.#connections.set(socket, connection)
    return connection
  }

  #enqueue(socket: Socket, connection: Connection, start: () => void): void {
    const { waiting } = connection
    if (!connection.isBusy) {
      connection.isBusy = true
      start()
      return
    }
    if (waiting.length === 0) connection.waitingFrom = socket.bytesRead
    if (waiting.length < maxWaiting && socket.bytesRead - connection.waitingFrom <= maxWaitingBytes) {
      waiting.push(start)
      return
    }
    // Without this, Node's parser makes objects of all requests of the read, for 42 µs each: 60 connections of 64 KB
    // stall the process for two seconds instead of 0.2 (measured). A result of 2 ends the parsing.
    Object.assign(Object(Reflect.get(socket, "parser")), { onIncoming: () => 2 })
    socket.destroy()
  }

  #startNext(socket: Socket, connection: Connection): void {
    // After its last response, a connection stays marked as busy, so that no further request starts on it.
    if (!socket.writable) return
    const start = connection.waiting.shift()
    connection.isBusy = start !== undefined
    start?.()
  }
}
