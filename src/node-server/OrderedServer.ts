/**
 * Extends Node's HTTP server: the requests of a connection run one at a time, each body is copied into one buffer, and
 * responses that wait for their clients hold a bounded number of bytes.
 */
import { IncomingMessage, Server, type ServerOptions, ServerResponse } from "node:http"
import type { Socket } from "node:net"
import { requestLimits } from "../api/Errors.ts"

const maxResponseReadMs = 60_000

const maxUnreadBytes = 64 * 1024 * 1024

const { bodyBytes: maxBodyBytes } = requestLimits
const maxBodyChunks = 4_096

/** Discards further input unparsed: Node's parser would run costly callbacks for each chunk and each request. */
const bypassParser = (socket: Socket): void => {
  socket.removeAllListeners("data").on("data", () => {})
}

/**
 * Closes a connection after its last response, and discards further input for up to one second. Closing a socket with
 * unread input would reset the connection, and the client could lose the response.
 */
export const closeGently = (socket: Socket): void => {
  bypassParser(socket)
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
  onComplete?: () => void
  /** Cleared when the response is sent, so that the request does not keep the response's body in memory. */
  response: Response | undefined

  // Collects the body in one buffer, because one-byte chunks in separate buffers would take 500 bytes each.
  override push(chunk: Buffer | null): boolean {
    if (this.#hasFault) return true
    const size = this.#size + (chunk?.length ?? 0)
    if (chunk === null) this.onComplete?.()
    if (chunk === null || size > maxBodyBytes) {
      if (this.#size > 0) super.push(this.#bytes.subarray(0, this.#size))
      this.#bytes = empty
      this.#size = 0
      return super.push(chunk)
    }
    if (++this.#chunks > maxBodyChunks) {
      const fault = Object.assign(new Error("The body has too many chunks"), { code: "ERR_TOO_MANY_CHUNKS" })
      const server: unknown = Reflect.get(this.socket, "server")
      this.#hasFault = true
      bypassParser(this.socket)
      if (server instanceof OrderedServer) server.emit("clientError", fault, this.socket)
      return true
    }
    if (size > this.#bytes.length) {
      const larger = Buffer.allocUnsafe(Math.min(Math.max(size, 2 * this.#bytes.length), maxBodyBytes))
      this.#bytes.copy(larger, 0, 0, this.#size)
      this.#bytes = larger
    }
    chunk.copy(this.#bytes, this.#size)
    this.#size = size
    return true
  }

  /** Makes reading the body fail, but, unlike `destroy` alone, keeps the connection open for the response. */
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

/** Each connection's latest request. Removed when the response is sent, unless the request's body is incomplete. */
const latestRequests = new WeakMap<Socket, Request>()

/** The total size of a connection's `Upgrade` requests, if the connection has received nothing else. */
const upgradeBytes = new WeakMap<Socket, number>()

let sends: Array<() => void> = []

/**
 * Sends all responses of an event-loop turn together, so that each client process wakes only once for them. A get then
 * takes 0.5 to 0.7 times the CPU time (docs/performance.md).
 */
const sendAll = (): void => {
  const sending = sends
  sends = []
  for (const send of sending) send()
}

class Response extends ServerResponse<Request> {
  #run: (() => void) | undefined

  get isWaiting(): boolean {
    return this.#run !== undefined
  }

  runInTurn(run: () => void): void {
    if (this.socket === null) this.#run = run
    else run()
  }

  /** Node calls this when the connection's earlier responses are sent (RFC 9112 §9.3.2). */
  override assignSocket(socket: Socket): void {
    super.assignSocket(socket)
    const run = this.#run
    this.#run = undefined
    run?.()
  }

  override detachSocket(socket: Socket): void {
    super.detachSocket(socket)
    this.req.response = undefined
    if (this.req.complete && latestRequests.get(socket) === this.req) latestRequests.delete(socket)
  }

  override end(...values: ReadonlyArray<unknown>): this {
    if (sends.length === 0) setImmediate(sendAll)
    sends.push(() => {
      if (this.destroyed) return
      Reflect.apply(super.end, this, values)
      if (this.socket === null || this.socket.writableLength === 0) return
      const [body] = values
      const bytes = typeof body === "string" || body instanceof Uint8Array ? Buffer.byteLength(body) : 0
      // Count the body twice: Effect keeps the body's text, and Node its encoded bytes.
      this.#limitUnread(this.socket, 2 * bytes)
    })
    return this
  }

  /**
   * For a request with `Upgrade` (ignored, RFC 9110 §7.8), Node's parser drops the bytes that follow in the same read.
   * Closes the connection after the response, unless `socket.bytesRead` shows that no bytes followed: the connection
   * has received only `Upgrade` requests, and `bytesRead` is their total size.
   */
  keepAliveUnlessDropped(): void {
    const { shouldKeepAlive } = this
    this.shouldKeepAlive = false
    this.req.onComplete = () => {
      const { headers, method = "", rawHeaders, socket, url = "" } = this.req
      const fields = rawHeaders.reduce((size, text) => size + text.length + ": ".length, 0)
      const body = headers["transfer-encoding"] === undefined ? Number(headers["content-length"] ?? 0) : NaN
      const size = `${method} ${url} HTTP/1.1\r\n\r\n`.length + fields + body
      const readTo = (upgradeBytes.get(socket) ?? 0) + size
      if (socket.bytesRead !== readTo) return
      upgradeBytes.set(socket, readTo)
      this.shouldKeepAlive = shouldKeepAlive
    }
  }

  static #unreadBytes = 0
  static readonly #unread = new Map<Response, () => void>()

  #limitUnread(socket: Socket, bytes: number): void {
    const close = () => {
      release()
      socket.destroy()
    }
    // Node's idle timeout never fires for a client that keeps sending bytes without reading.
    const timer = setTimeout(close, maxResponseReadMs).unref()
    const release = () => {
      if (!Response.#unread.delete(this)) return
      clearTimeout(timer)
      Response.#unreadBytes -= bytes
    }
    Response.#unread.set(this, close)
    Response.#unreadBytes += bytes
    this.once("close", release)
    for (const closeOldest of Response.#unread.values()) {
      if (Response.#unreadBytes <= maxUnreadBytes) break
      closeOldest()
    }
  }
}

export class OrderedServer extends Server<typeof Request, typeof Response> {
  constructor(options: ServerOptions<typeof Request, typeof Response>) {
    super({ ...options, IncomingMessage: Request, ServerResponse: Response })
    // Respond even to a client that half-closes its socket after the request.
    Object.assign(this, { httpAllowHalfOpen: true })
    // Without this listener, Node itself responds to an unknown `Expect`, with a 417 that has no Error body.
    this.on("checkExpectation", () => {})
    this.on("connection", (socket) => {
      socket.destroySoon = () => closeGently(socket)
    })
  }

  // Runs a connection's requests one at a time. At most one waits, because it can arrive before Node reports the
  // previous response as sent.
  override emit(event: string, ...values: ReadonlyArray<unknown>): boolean {
    const [request, response] = values
    if (!(request instanceof Request && response instanceof Response)) return super.emit(event, ...values)
    const { socket } = request
    const latest = latestRequests.get(socket)
    if (latest?.response?.isWaiting === true) {
      latest.response.shouldKeepAlive = false
      stopReading(socket)
      return true
    }
    latestRequests.set(socket, request)
    request.response = response
    if (request.headers.upgrade !== undefined) response.keepAliveUnlessDropped()
    const run = () => void super.emit(event === "checkExpectation" ? "request" : event, request, response)
    // Let Node first parse the remaining bytes of the current read, because they can change `shouldKeepAlive`.
    response.runInTurn(() => process.nextTick(run))
    return true
  }

  /**
   * Ends a connection after `fault`. If a request's body is incomplete, makes reading it fail, so that the handler
   * responds, or only closes the connection if the handler has already responded. Otherwise calls `respond`, after any
   * pending response.
   */
  end(socket: Socket, fault: Error, respond: () => void): void {
    sendAll()
    const last = latestRequests.get(socket)
    const response = last?.response
    if (last === undefined || last.complete) {
      if (response === undefined) respond()
      else response.once("finish", respond)
    } else if (response === undefined || response.writableEnded) closeGently(socket)
    else {
      response.shouldKeepAlive = false
      last.fail(fault)
    }
  }
}

/** Stops reading, and makes Node's parser drop the rest of the current read, which can hold 2,521 requests. */
const stopReading = (socket: Socket): void => {
  Object.assign(Object(Reflect.get(socket, "parser")), { onIncoming: () => 2 })
  bypassParser(socket)
  socket.pause()
}
