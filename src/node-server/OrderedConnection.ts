/**
 * The state of one connection: its latest request, the function that starts it if it waits, and the time when the
 * connection must end. A fault is a body over its limits, a half-close within a body, or whatever `ParserRejections`
 * reports.
 *
 * Laws, whatever the client sends and however it cuts it:
 * - Requests start one at a time, in order, each after the response before it was sent. At most one waits.
 * - After a third unanswered request or a fault, further input is dropped: pending responses are sent, then the
 *   connection ends.
 * - Only the first fault counts. It fails the body of an incomplete request, or else gets a response of its own, unless
 *   a pending response closes the connection.
 * - `endsAt` always has a value. Only these move it: the start of a request, the writing of its response, the end of
 *   both its body and its response, a fault unless the client is reading a response, and the beginning of the
 *   connection's end. Bytes within a head or a body do not.
 */
import type { Socket } from "node:net"
import type { BufferedRequest, RequestHost } from "./BufferedRequest.ts"
import type { OrderedResponse, ResponseHost, TurnSends } from "./OrderedResponse.ts"
import type { UnreadResponses } from "./UnreadResponses.ts"

export interface ConnectionLimits {
  readonly bodyBytes: number
  readonly bodyChunks: number
  /** How long a connection may take from its start, or from the end of a request, to the end of the next head. */
  readonly idleMs: number
  /** The maximum time from the start of a request's handler, or from a fault, until the response is written. */
  readonly requestMs: number
  /** How long a client may take to read a response that the socket does not take at once, from its writing. */
  readonly readMs: number
}

/** The parts of a server that its connections use. */
interface ConnectionHost {
  readonly limits: ConnectionLimits
  readonly sends: TurnSends
  readonly unread: UnreadResponses
  readonly onDefect: (defect: unknown) => void
}

/** How long the connection may stay open after its last response was sent. Then it is destroyed. */
const closeMs = 1_000

/** A parser callback that makes Node drop a request, and the rest of the bytes that were read with it. */
const dropIncoming = (request: { upgrade: boolean }) => {
  // Node would destroy the connection for a request with `Upgrade`, and lose the pending responses.
  request.upgrade = false
  // 2: Node's parser skips the body and stops.
  return 2
}

export class OrderedConnection implements RequestHost, ResponseHost {
  readonly limits: ConnectionLimits
  readonly sends: TurnSends
  /** When the server destroys the connection, in milliseconds of `performance.now()`. */
  endsAt: number
  readonly #host: ConnectionHost
  readonly #socket: Socket
  /** The latest request, until its body is whole and its response sent. */
  #request: BufferedRequest | undefined
  /** The response of the latest request, until it is sent. */
  #response: OrderedResponse | undefined
  /** Starts the latest request, while it waits for the response before it. */
  #start: (() => void) | undefined
  #hasFault = false
  /**
   * The total size in bytes of the requests with `Upgrade` at the beginning of the connection. Once the connection has
   * received anything else, `socket.bytesRead` differs, and this no longer changes.
   */
  #upgradeBytes = 0
  #undoUpgrade: (() => void) | undefined

  constructor(socket: Socket, host: ConnectionHost) {
    this.#socket = socket
    this.#host = host
    this.limits = host.limits
    this.sends = host.sends
    this.endsAt = performance.now() + host.limits.idleMs
    // Without a listener, Node throws the error of a reset connection. Node removes its own before it emits `connect`.
    socket.on("error", () => {})
    // Node's parser does not report a half-close within the body of a request with `Upgrade`.
    socket.on("end", () => {
      if (this.#request?.isWhole === false) this.fail(new Error("The client half-closed within a body"), () => {})
    })
    // Node calls `destroySoon` after the last response. Node's own version can reset the connection before the client
    // has read the response.
    socket.destroySoon = () => this.end()
  }

  /** Runs `start` once the earlier responses are sent, or drops a third request. */
  receive(request: BufferedRequest, response: OrderedResponse, start: () => void): void {
    if (this.#start !== undefined) {
      this.#response?.makeLast()
      this.#stopReading()
      return
    }
    request.host = this
    response.host = this
    this.#request = request
    this.#response = response
    if (request.headers.upgrade !== undefined) this.#closeUnlessKept(request, response)
    this.#start = start
    // Without an earlier response, Node has called `assignSocket` already, before `host` was set. Otherwise
    // `assignSocket` calls `mayStart` later.
    if (response.socket !== null) this.mayStart()
  }

  mayStart(): void {
    const start = this.#start
    this.#start = undefined
    if (start === undefined) return
    this.endsAt = performance.now() + this.limits.requestMs
    // Let Node first parse the remaining bytes of the current read: they can change whether the connection stays open.
    process.nextTick(start)
  }

  responseWritten(response: OrderedResponse, bytes: number): void {
    if (this.#socket.writableLength === 0) return
    this.#limitEnd(this.limits.readMs)
    this.#host.unread.add(response, bytes, () => this.#socket.destroy())
  }

  responseSent(response: OrderedResponse): void {
    if (this.#response !== response) return
    this.#response = undefined
    this.#becomeIdle()
  }

  bodyWhole(request: BufferedRequest): void {
    this.#undoUpgrade?.()
    if (this.#request === request) this.#becomeIdle()
  }

  bodyFault(fault: Error): void {
    this.fail(fault, () => {})
  }

  /**
   * Ends the connection after `fault`. If the body of a request is incomplete, makes the body fail, so that the handler
   * responds. If the handler has already responded, only closes the connection. Without an incomplete body, calls
   * `respond` after any pending response. If the socket is still writable then, `respond` must call `end`.
   */
  fail(fault: Error, respond: () => void): void {
    if (this.#hasFault) return
    this.#hasFault = true
    this.#stopReading()
    // Node's listener would end the socket before the response if the client half-closes.
    this.#socket.removeAllListeners("end")
    // A fault gives the client no more time to read a response that is already written.
    if (this.#socket.writableLength === 0) this.#limitEnd(this.limits.requestMs)
    const request = this.#request
    const response = this.#response
    const isInBody = request?.isWhole === false
    if (isInBody) {
      response?.makeLast()
      request.failBody(fault)
    }
    const next = isInBody ? () => this.end() : respond
    if (response === undefined) next()
    else response.once("finish", next)
  }

  /**
   * Closes the connection after its last response, and discards further input until the client closes it too, at most
   * for one to two seconds. Closing a socket that has unread input would reset the connection, and the client could
   * lose the response.
   */
  end(): void {
    this.#stopReading()
    this.#socket.end()
    this.#socket.resume()
    this.#limitEnd(closeMs)
  }

  crash(defect: unknown): void {
    this.#socket.destroy()
    this.#host.onDefect(defect)
  }

  #limitEnd(ms: number): void {
    this.endsAt = performance.now() + ms
  }

  #becomeIdle(): void {
    if (this.#response !== undefined || this.#request?.isWhole === false) return
    this.#request = undefined
    if (!this.#hasFault) this.#limitEnd(this.limits.idleMs)
  }

  /**
   * Drops the rest of the bytes that were last read, which can hold thousands of requests, and discards further input.
   */
  #stopReading(): void {
    Object.assign(Object(Reflect.get(this.#socket, "parser")), { onIncoming: dropIncoming })
    this.#socket.removeAllListeners("data").on("data", () => {})
  }

  /**
   * For a request with `Upgrade`, which is ignored (RFC 9110 §7.8), Node's parser can drop the bytes that arrive in the
   * same read behind it. So close the connection after the response, unless the connection has received only requests
   * with `Upgrade`, and `socket.bytesRead` is their total size, with one space after the colon of each header.
   */
  #closeUnlessKept(request: BufferedRequest, response: OrderedResponse): void {
    response.makeLast()
    this.#undoUpgrade = () => {
      this.#undoUpgrade = undefined
      const { headers, method = "", rawHeaders, url = "" } = request
      const fields = rawHeaders.reduce((size, text) => size + text.length + ": ".length, 0)
      // The size of a chunked body is not known. `NaN` equals no number, so the connection closes.
      const body = headers["transfer-encoding"] === undefined ? Number(headers["content-length"] ?? 0) : NaN
      const readTo = this.#upgradeBytes + `${method} ${url} HTTP/1.1\r\n\r\n`.length + fields + body
      if (this.#socket.bytesRead !== readTo) return
      this.#upgradeBytes = readTo
      response.unmakeLast()
    }
  }
}
