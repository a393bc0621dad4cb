/** Extends Node's HTTP server: pipelined requests run one at a time, and each body is copied into one buffer. */
import { IncomingMessage, Server, type ServerOptions, ServerResponse } from "node:http"
import type { Socket } from "node:net"
import * as JsonBody from "./JsonBody.ts"

/** The limits of the pipelined requests that wait on a connection. Exceeding one destroys the connection. */
const maxQueuedRequests = 16
const maxQueuedBytes = 65_536

const maxResponseReadMs = 60_000

const maxBodyChunks = 4_096

/**
 * Closes a connection after its last response, and discards further input for up to one second. Closing a socket with
 * unread input would reset the connection, and the client could lose the response.
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
  #chunks = 0
  #hasFault = false

  // Copies each chunk of the body into one buffer. A chunk of one byte that is kept as an object takes 500 bytes.
  override push(chunk: Buffer | null): boolean {
    if (this.#hasFault) return true
    const size = this.#size + (chunk?.length ?? 0)
    if (chunk === null || size > JsonBody.maxBytes) {
      if (this.#size > 0) super.push(this.#bytes.subarray(0, this.#size))
      this.#bytes = empty
      this.#size = 0
      return super.push(chunk)
    }
    if (++this.#chunks > maxBodyChunks) {
      const fault = Object.assign(new Error("The body has too many chunks"), { code: "ERR_TOO_MANY_CHUNKS" })
      const server: unknown = Reflect.get(this.socket, "server")
      this.#hasFault = true
      if (server instanceof OrderedServer) server.emit("clientError", fault, this.socket)
      return true
    }
    if (size > this.#bytes.length) {
      const larger = Buffer.allocUnsafe(Math.min(Math.max(size, 2 * this.#bytes.length), JsonBody.maxBytes))
      this.#bytes.copy(larger, 0, 0, this.#size)
      this.#bytes = larger
    }
    chunk.copy(this.#bytes, this.#size)
    this.#size = size
    return true
  }

  /** Makes reading the body fail, but keeps the connection open for the response. `destroy` alone would close it. */
  fail(fault: Error): void {
    this.#hasFault = true
    this.destroy(fault)
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    if (!this.#hasFault) return super._destroy(error, done)
    // Drop the error if nothing listens for it, because Node would throw it and end the process.
    process.nextTick(() => done(this.listenerCount("error") === 0 ? null : error))
  }
}

interface Connection {
  readonly queue: Array<() => void>
  isBusy: boolean
  /** The value of `socket.bytesRead` when a request was last added to an empty queue. */
  queuedFrom: number
  lastResponse?: ServerResponse<Request>
}

export class OrderedServer extends Server<typeof Request> {
  readonly #connections = new WeakMap<Socket, Connection>()

  constructor(options: ServerOptions<typeof Request>) {
    super({ ...options, IncomingMessage: Request })
    // Respond even to a client that half-closes its socket after the request.
    Object.assign(this, { httpAllowHalfOpen: true })
    // Without this listener, Node itself responds to an unknown `Expect`, with a 417 that has no Error body.
    this.on("checkExpectation", () => {})
    this.on("connection", (socket) => {
      socket.destroySoon = () => closeGently(socket)
    })
  }

  // Queues a pipelined request until the previous response is sent (RFC 9112 §9.3.2).
  override emit(event: string, ...values: ReadonlyArray<unknown>): boolean {
    const [request, response] = values
    if (!(request instanceof Request && response instanceof ServerResponse)) return super.emit(event, ...values)
    const { socket } = request
    const connection = this.#connectionOf(socket)
    connection.lastResponse = response
    // Close the connection after a request with `Upgrade`. Node's parser may have dropped the requests behind it.
    if (request.headers.upgrade !== undefined) response.shouldKeepAlive = false
    this.#enqueue(socket, connection, () => {
      response.once("finish", () => this.#startNext(socket, connection))
      // Close the connection of a client that reads too slowly. Node's idle timeout does not, if the client sends
      // bytes.
      response.once("prefinish", () => {
        if (socket.writableLength === 0) return
        const timer = setTimeout(() => socket.destroy(), maxResponseReadMs).unref()
        response.once("close", () => clearTimeout(timer))
      })
      super.emit(event === "checkExpectation" ? "request" : event, request, response)
    })
    return true
  }

  /**
   * Ends a connection after `fault`. If all requests have arrived, queues `respond` as the last response. Otherwise
   * makes reading the incomplete body fail, so that its handler responds last. If the handler already has, only closes.
   */
  end(socket: Socket, fault: Error, respond: () => void): void {
    const connection = this.#connectionOf(socket)
    const { lastResponse: last } = connection
    if (last === undefined || last.req.complete) this.#enqueue(socket, connection, respond)
    else if (last.writableEnded) closeGently(socket)
    else {
      last.shouldKeepAlive = false
      last.req.fail(fault)
    }
  }

  #connectionOf(socket: Socket): Connection {
    const connection = this.#connections.get(socket) ?? { queue: [], isBusy: false, queuedFrom: 0 }
    this.#connections.set(socket, connection)
    return connection
  }

  #enqueue(socket: Socket, connection: Connection, start: () => void): void {
    const { queue } = connection
    if (!connection.isBusy) {
      connection.isBusy = true
      start()
      return
    }
    if (queue.length === 0) connection.queuedFrom = socket.bytesRead
    if (queue.length < maxQueuedRequests && socket.bytesRead - connection.queuedFrom <= maxQueuedBytes) {
      queue.push(start)
      return
    }
    // Make `onIncoming` return 2, which stops Node's parser. Otherwise it would parse all requests that it has already
    // read, and 60 connections with too many requests could stall the process for two seconds.
    Object.assign(Object(Reflect.get(socket, "parser")), { onIncoming: () => 2 })
    socket.destroy()
  }

  #startNext(socket: Socket, connection: Connection): void {
    if (!socket.writable) return
    const start = connection.queue.shift()
    connection.isBusy = start !== undefined
    start?.()
  }
}
