/**
 * Responses to client errors: requests that Node's parser rejects, that never end, or whose head is invalid. These
 * responses have the port's common headers and close the connection.
 */
import { Clock, Effect } from "effect"
import { type IncomingMessage, type Server, type ServerResponse, STATUS_CODES } from "node:http"
import { Socket } from "node:net"
import type { Duplex } from "node:stream"
import * as Errors from "../../api/Errors.ts"
import * as ErrorResponse from "../response/ErrorResponse.ts"
import { IncomingRequest } from "./IncomingRequest.ts"
import { closeGently, currentResponse } from "./Pipelining.ts"

/** A request to reject, with the known part of its head. */
export interface Rejected {
  readonly error: Errors.ApiError
  /** The address of the client or proxy. */
  readonly peer: string
  /** The method, or `none` if the parser read no method. */
  readonly method: string
  readonly header: (name: string) => string | undefined
}

/** Returns the response of a port to a rejected request: the error, which may become a 429, and the port's headers. */
export type Reject = (rejected: Rejected) => Effect.Effect<{
  readonly error: Errors.ApiError
  readonly headers: Readonly<Record<string, string>>
}>

/** Makes Node close the connection gently after its last response. Without it, Node destroys the socket. */
const closeGentlyAfterResponse = (socket: Socket): void => {
  socket.destroySoon = () => closeGently(socket)
}

/**
 * Makes `server` respond to client errors as `reject` decides, and to CONNECT with 405 and the methods in `allow`.
 * Returns a function that rejects a request before its handler runs.
 */
export const attach = Effect.fnUntraced(function*(server: Server, reject: Reject, allow: ReadonlyArray<string>) {
  const clock = yield* Clock.Clock
  const run = Effect.runForkWith(yield* Effect.context())

  /** Renders the status, headers and body of a rejection. */
  const render = Effect.fnUntraced(function*(socket: Duplex, error: Errors.ApiError, request?: IncomingMessage) {
    const rejection = yield* reject({
      error,
      peer: socket instanceof Socket ? socket.remoteAddress ?? "" : "",
      method: request?.method ?? "none",
      header: (name) => request?.headers[name]?.toString()
    })
    const { status } = rejection.error
    const body = ErrorResponse.bodyOf(rejection.error)
    const headers = {
      ...rejection.headers,
      ...status === 405 && { allow: allow.join(", ") },
      "content-type": "application/json",
      "content-length": Buffer.byteLength(body),
      connection: "close"
    }
    return { status, headers, body }
  })

  /** Writes the response as the last bytes on the socket. */
  const writeOn = (socket: Duplex, error: Errors.ApiError, request?: IncomingMessage): Effect.Effect<void> =>
    Effect.map(render(socket, error, request), ({ body, headers, status }) => {
      const date = new Date(clock.currentTimeMillisUnsafe()).toUTCString()
      const lines = Object.entries({ ...headers, date }).map(([name, value]) => `${name}: ${value}\r\n`)
      if (socket.writable) socket.write(`HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${lines.join("")}\r\n${body}`)
      closeGently(socket)
    })

  /**
   * Writes the response after the responses to the requests before it. A fault in the body of the request in flight is
   * reported by that request's response. If that response is sent already, the connection closes after it.
   */
  const inTurn = (socket: Duplex, write: Effect.Effect<void>, fault?: Error): void => {
    const response = currentResponse(socket)
    if (response === undefined) run(write)
    else if (response.req.complete) response.once("finish", () => inTurn(socket, write, fault))
    else if (response.req instanceof IncomingRequest && fault !== undefined && !response.headersSent) {
      // The parser reads no further request from this connection.
      response.shouldKeepAlive = false
      closeGentlyAfterResponse(response.req.socket)
      response.req.fail(fault)
    }
  }

  /** Connections that had a client error. Later errors on them are ignored. */
  const ended = new WeakSet<Duplex>()

  server.on("clientError", (error, socket) => {
    if (ended.has(socket)) return
    ended.add(socket)
    socket.on("error", () => socket.destroy())
    // A connection on which the client sent nothing gets no response.
    if (!socket.writable || (socket instanceof Socket && socket.bytesRead === 0)) socket.destroy()
    else inTurn(socket, writeOn(socket, ErrorResponse.errorOfParser(error)), error)
  })
  server.on("connect", (request, socket) => {
    socket.on("error", () => socket.destroy())
    const notAllowed = new Errors.MethodNotAllowed({ message: "CONNECT is not allowed here." })
    inTurn(socket, writeOn(socket, notAllowed, request))
  })

  return (error: Errors.ApiError, response: ServerResponse): void => {
    const { req: request } = response
    // The rest of the request is not read, and no later request on the connection begins.
    ended.add(request.socket)
    closeGentlyAfterResponse(request.socket)
    run(Effect.map(render(request.socket, error, request), ({ body, headers, status }) => {
      response.writeHead(status, headers).end(body)
    }))
  }
})
