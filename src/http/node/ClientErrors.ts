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
import { closeGently, closeGentlyAfterResponse } from "./GentleClose.ts"
import { IncomingRequest } from "./IncomingRequest.ts"
import { currentResponse } from "./Pipelining.ts"

/** A request to reject, with the known part of its head. */
export interface Rejected {
  readonly error: Errors.ApiError
  /** The address of the client or proxy. */
  readonly peer: string
  /** The method, or `none` if the parser read no method. */
  readonly method: string
  /** The target of the request, if the parser read one. */
  readonly url: string | undefined
  readonly header: (name: string) => string | undefined
}

/** Returns the response of a port to a rejected request: the error, which may become a 429, and the port's headers. */
export type Reject = (rejected: Rejected) => Effect.Effect<{
  readonly error: Errors.ApiError
  readonly headers: Readonly<Record<string, string>>
}>

/** The complete response to a rejected request. */
interface Rejection {
  readonly status: number
  readonly headers: Readonly<Record<string, string | number>>
  readonly body: string
}

/** Returns a function that renders rejections as `reject` decides. A 405 names the methods in `allow`. */
const makeRender = (reject: Reject, allow: ReadonlyArray<string>) =>
  Effect.fnUntraced(function*(
    socket: Duplex,
    error: Errors.ApiError,
    request?: IncomingMessage
  ): Effect.fn.Return<Rejection> {
    const rejection = yield* reject({
      error,
      peer: socket instanceof Socket ? socket.remoteAddress ?? "" : "",
      method: request?.method ?? "none",
      url: request?.url,
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

/** Writes a response as the last bytes on a socket that has no `ServerResponse`. */
const writeLast = (socket: Duplex, { body, headers, status }: Rejection) =>
  Effect.map(Clock.currentTimeMillis, (now) => {
    const lines = Object.entries({ ...headers, date: new Date(now).toUTCString() })
      .map(([name, value]) => `${name}: ${value}\r\n`)
    if (socket.writable) socket.write(`HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${lines.join("")}\r\n${body}`)
    closeGently(socket)
  })

/**
 * Calls `write` after the responses to the requests before it. A fault in the body of the request in flight is reported
 * by that request's response. If that response is sent already, the connection closes after it.
 */
const writeInTurn = (socket: Duplex, write: () => void, fault?: Error): void => {
  const response = currentResponse(socket)
  if (response === undefined) write()
  else if (response.req.complete) response.once("finish", () => writeInTurn(socket, write, fault))
  else if (response.req instanceof IncomingRequest && fault !== undefined && !response.headersSent) {
    // The parser reads no further request from this connection.
    response.shouldKeepAlive = false
    closeGentlyAfterResponse(response.req.socket)
    response.req.fail(fault)
  }
}

/**
 * Makes `server` respond to client errors as `reject` decides, and to CONNECT with 405 and the methods in `allow`.
 * Returns a function that rejects a request before its handler runs.
 */
export const attach = Effect.fnUntraced(function*(server: Server, reject: Reject, allow: ReadonlyArray<string>) {
  const run = Effect.runForkWith(yield* Effect.context())
  const render = makeRender(reject, allow)
  /** Connections on which no further request begins. Later errors on them are ignored. */
  const ended = new WeakSet<Duplex>()

  const respondLast = (
    socket: Duplex,
    error: Errors.ApiError,
    { fault, request }: { readonly fault?: Error; readonly request?: IncomingMessage }
  ): void => {
    const respond = Effect.flatMap(render(socket, error, request), (rejection) => writeLast(socket, rejection))
    writeInTurn(socket, () => run(respond), fault)
  }

  server.on("clientError", (error, socket) => {
    if (ended.has(socket)) return
    ended.add(socket)
    socket.on("error", () => socket.destroy())
    // A connection on which the client sent nothing gets no response.
    if (!socket.writable || (socket instanceof Socket && socket.bytesRead === 0)) {
      socket.destroy()
      return
    }
    respondLast(socket, ErrorResponse.errorOfParser(error), { fault: error })
  })
  server.on("connect", (request, socket) => {
    socket.on("error", () => socket.destroy())
    respondLast(socket, new Errors.MethodNotAllowed({ message: "CONNECT is not allowed here." }), { request })
  })

  return (error: Errors.ApiError, response: ServerResponse): void => {
    const { req: request } = response
    // The rest of the request is not read.
    ended.add(request.socket)
    closeGentlyAfterResponse(request.socket)
    run(Effect.map(render(request.socket, error, request), ({ body, headers, status }) => {
      response.writeHead(status, headers).end(body)
    }))
  }
})
