/**
 * Answers to what Node's HTTP server does not take for a request: its parser refuses it, it does not come to its end, or
 * it asks for something else than an answer. They carry what the edge gives to all others.
 */
import { Effect, Predicate } from "effect"
import { type IncomingMessage, type Server, STATUS_CODES } from "node:http"
import { Socket } from "node:net"
import type { Duplex } from "node:stream"
import * as Errors from "../api/Errors.ts"
import * as Edge from "./Edge.ts"
import * as Failure from "./Failure.ts"
import { answerOn } from "./Pipeline.ts"
import * as RateLimit from "./RateLimit.ts"

/** Makes `server` answer, from now on, also what is no request. */
export const attach = Effect.fnUntraced(function*(server: Server) {
  const charge = yield* Edge.charging
  const requestIdOf = yield* Edge.requestIds
  const run = Effect.runForkWith(yield* Effect.context())

  /** Writes the answer as the last thing on the socket. */
  const refuse = Effect.fnUntraced(function*(socket: Duplex, refusal: Errors.ApiError, request?: IncomingMessage) {
    const header = (name: string) => request?.headers[name]?.toString()
    const requestId = requestIdOf(header("x-request-id"))
    const peer = socket instanceof Socket ? socket.remoteAddress ?? "" : ""
    const decision = yield* charge(peer, header("x-forwarded-for"), false)
    const error = decision.admitted ? refusal : RateLimit.exceeded(decision)
    const { status } = error
    const body = Failure.bodyOf(error)
    const headers = {
      ...Edge.headers(requestId, decision),
      ...status === 405 && { allow: "GET, HEAD, POST, OPTIONS" },
      "content-type": "application/json",
      "content-length": Buffer.byteLength(body),
      date: new Date(decision.decidedAt).toUTCString(),
      connection: "close"
    }
    const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`)
    if (socket.writable) socket.end(`HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${lines.join("")}\r\n${body}`)
    // What is still sent is not read, and nobody holds the connection open.
    socket.resume()
    setTimeout(() => socket.destroy(), 1_000).unref()
    yield* Effect.annotateLogs(Effect.logInfo("request"), { method: request?.method ?? "none", status, requestId })
  })

  /** Refuses after the answers to the requests before, if those are under way. */
  const refuseInTurn = (socket: Duplex, refusal: Errors.ApiError, request?: IncomingMessage): void => {
    const answer = answerOn(socket)
    if (answer === undefined) {
      run(refuse(socket, refusal, request))
    } else if (answer.req.complete) {
      answer.once("finish", () => refuseInTurn(socket, refusal, request))
    } else if (answer.headersSent) {
      socket.destroy()
    } else {
      run(refuse(socket, refusal, request))
    }
  }

  server.on("clientError", (error, socket) => {
    socket.on("error", () => socket.destroy())
    // Who said nothing is told nothing: a connection that was opened ahead and not used.
    if (!socket.writable || (socket instanceof Socket && socket.bytesRead === 0)) socket.destroy()
    else refuseInTurn(socket, toRefusal(error))
  })
  server.on("connect", (request, socket) => {
    socket.on("error", () => socket.destroy())
    refuseInTurn(socket, new Errors.MethodNotAllowed({ message: "CONNECT is not allowed here." }), request)
  })
  // The edge refuses it.
  server.on("checkExpectation", (request, response) => server.emit("request", request, response))
})

/** What Node says of the bytes it refused, as an answer. */
const toRefusal = (error: Error): Errors.ApiError => {
  switch (Predicate.hasProperty(error, "code") ? error.code : undefined) {
    case "HPE_HEADER_OVERFLOW":
      return new Errors.HeaderFieldsTooLarge({ message: "The head of the request is larger than 16 KiB." })
    case "HPE_CHUNK_EXTENSIONS_OVERFLOW":
      return new Errors.PayloadTooLarge({ message: "The chunks of the body are larger than what they hold." })
    case "ERR_HTTP_REQUEST_TIMEOUT":
      return new Errors.RequestTimeout({ message: "The request took too long to arrive." })
    default:
      return new Errors.InvalidRequest({ message: "Invalid request: expected a request of HTTP/1.1." })
  }
}
