/**
 * Extends Node's HTTP server: the requests of a connection run one at a time, each body is collected in one buffer, the
 * responses of an event-loop turn are sent together, and every connection has an end.
 *
 * Node's order of calls for a request, and the files that take part:
 * 1. `connection`: Node attaches its parser to the socket, and this file makes the `OrderedConnection`.
 * 2. After a request's head, the parser makes a `BufferedRequest` and an `OrderedResponse`. It calls `assignSocket` of
 *    the response, unless an earlier response is not sent yet, and emits `request` (with `Expect`: `checkContinue`,
 *    `checkExpectation`). `emit` passes it to `OrderedConnection.receive`, which lets at most one request wait.
 *    Once the earlier responses are sent, the next tick emits `request` to Effect's handler.
 * 3. For each piece of the body, the parser calls `push` of the request, and `push(null)` at its end.
 * 4. Effect's handler reads the body, if there is one, with `whenRead`. It calls `writeHead` and `end` of the response.
 *    At the end of the turn, `TurnSends` (`OrderedResponse.ts`) calls `send` of the response, which calls Node's `end`.
 *    `UnreadResponses` counts the response's bytes if the socket does not take all of them at once.
 * 5. Once the response is sent, Node calls its `detachSocket`. After the last response, Node then closes the connection
 *    (`destroySoon`). Otherwise, if a response waits, it calls `assignSocket` of that one, which starts its request.
 * 6. Malformed input and requests that arrive too slowly come as `clientError`, `CONNECT` as `connect`.
 *    `ParserRejections` passes them to `OrderedConnection.fail`.
 *
 * Laws:
 * - Each whole request gets exactly one response, in order, or its connection ends.
 * - Within the times of `limits`, each connection gets its next whole request, or ends, whatever its client sends (the
 *   laws of `OrderedConnection`).
 * - If a listener for a connection or a request, a reader of a body, or the sending of a response throws, its own
 *   connection ends, and no other. `onDefect` gets the error. Other callbacks cannot throw: they only change fields and
 *   maps, and end or destroy sockets, whose events come later.
 */
import { Server, type ServerOptions } from "node:http"
import { Socket } from "node:net"
import { BufferedRequest } from "./BufferedRequest.ts"
import { type ConnectionLimits, OrderedConnection } from "./OrderedConnection.ts"
import { OrderedResponse, TurnSends } from "./OrderedResponse.ts"
import type { UnreadResponses } from "./UnreadResponses.ts"

interface Options extends ServerOptions<typeof BufferedRequest, typeof OrderedResponse> {
  readonly keepAliveTimeout: number
  readonly headersTimeout: number
  /** The time between two checks for connections that must end, in milliseconds. */
  readonly connectionsCheckingInterval: number
  readonly limits: Omit<ConnectionLimits, "idleMs">
  readonly unread: UnreadResponses
  /** Gets what a listener of the server, a reader of a body, or the sending of a response throws. Must not throw. */
  readonly onDefect: (defect: unknown) => void
}

/** By default, Node keeps an idle connection for this time longer than `keepAliveTimeout`. */
const keepAliveBufferMs = 1_000

export class EdgeServer extends Server<typeof BufferedRequest, typeof OrderedResponse> {
  readonly limits: ConnectionLimits
  readonly sends = new TurnSends()
  readonly unread: UnreadResponses
  readonly onDefect: (defect: unknown) => void
  readonly #connections = new Map<Socket, OrderedConnection>()

  constructor(options: Options) {
    super({ ...options, IncomingMessage: BufferedRequest, ServerResponse: OrderedResponse })
    const { connectionsCheckingInterval, headersTimeout, keepAliveTimeout, limits, onDefect, unread } = options
    this.onDefect = onDefect
    // Node's own timeouts end idle connections earlier. `idleMs` is for clients that postpone Node's timeouts with
    // empty lines between requests.
    const idleMs = keepAliveTimeout + keepAliveBufferMs + headersTimeout + 2 * connectionsCheckingInterval
    this.limits = { ...limits, idleMs }
    this.unread = unread
    // Respond even to a client that half-closes its socket after the request.
    Object.assign(this, { httpAllowHalfOpen: true })
    // Without this listener, Node itself responds to an unknown `Expect`, with a 417 that has no Error body.
    this.on("checkExpectation", () => {})
    this.on("connection", (socket) => {
      this.#connections.set(socket, new OrderedConnection(socket, this))
      socket.on("close", () => this.#connections.delete(socket))
    })
    this.on("listening", () => {
      const timer = setInterval(() => this.#endLate(), connectionsCheckingInterval).unref()
      this.once("close", () => clearInterval(timer))
    })
  }

  connectionOf(socket: Socket): OrderedConnection | undefined {
    return this.#connections.get(socket)
  }

  override emit(event: string, ...values: ReadonlyArray<unknown>): boolean {
    // `request`, `checkContinue` and `checkExpectation`: all of them become `request`, once the earlier responses are
    // sent.
    const [request, response] = values
    if (request instanceof BufferedRequest && response instanceof OrderedResponse) {
      this.#receive(event, request, response)
      return true
    }
    const socket = values.find((value) => value instanceof Socket)
    if (socket === undefined) return super.emit(event, ...values)
    try {
      return super.emit(event, ...values)
    } catch (defect) {
      this.#crash(socket, defect)
      return true
    }
  }

  #receive(event: string, request: BufferedRequest, response: OrderedResponse): void {
    const { socket } = request
    if (event === "checkContinue") {
      request.sendContinue = () => {
        if (!response.headersSent) response.writeContinue()
      }
    }
    const start = () => {
      try {
        super.emit("request", request, response)
      } catch (defect) {
        this.#crash(socket, defect)
      }
    }
    this.#connections.get(socket)?.receive(request, response, start)
  }

  #crash(socket: Socket, defect: unknown): void {
    socket.destroy()
    this.onDefect(defect)
  }

  #endLate(): void {
    const now = performance.now()
    for (const [socket, { endsAt }] of this.#connections) {
      if (endsAt <= now) socket.destroy()
    }
  }
}
