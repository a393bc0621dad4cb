/**
 * Answers to what Node's HTTP server does not take for a request: its parser refuses it, it does not come to its end,
 * or it asks for something else than an answer. They carry what the edge gives to all others.
 */
import { Effect } from "effect"
import { IncomingMessage, type Server, STATUS_CODES } from "node:http"
import { Socket } from "node:net"
import type { Duplex } from "node:stream"
import * as Errors from "../api/Errors.ts"
import * as Edge from "./Edge.ts"
import { Exchange } from "./Exchange.ts"
import * as Failure from "./Failure.ts"
import { answerOn } from "./Pipeline.ts"
import * as RateLimit from "./RateLimit.ts"
import { report } from "./Report.ts"

/** A request whose body may come to nothing while its answer can still be sent. */
export class Incoming extends IncomingMessage {
  #isFaulty = false

  /** Ends the body where it is: who reads it, now or later, is told of `fault`. */
  fail(fault: Error): void {
    this.#isFaulty = true
    this.destroy(fault)
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    if (!this.#isFaulty) return super._destroy(error, done)
    // The connection stays, and where nobody reads there is nobody to tell.
    process.nextTick(() => done(this.listenerCount("error") === 0 ? null : error))
  }
}

/**
 * Closes a connection after its last answer. What the peer still sends is read and dropped, because unread data would
 * reset the connection and lose the answer. After a while it is destroyed, so that nobody can hold it open.
 */
const closeGently = (socket: Duplex): void => {
  socket.end()
  socket.resume()
  setTimeout(() => socket.destroy(), 1_000).unref()
}

/** Makes `server` answer, from now on, also what is no request. */
export const attach = Effect.fnUntraced(function*(server: Server) {
  const charge = yield* RateLimit.chargingAddresses
  const edge = yield* Edge.make
  const newExchange = yield* Exchange.making
  const run = Effect.runForkWith(yield* Effect.context())

  /** Writes the answer as the last thing on the socket. */
  const refuse = Effect.fnUntraced(function*(socket: Duplex, refusal: Errors.ApiError, request?: IncomingMessage) {
    const header = (name: string) => request?.headers[name]?.toString()
    const exchange = newExchange(header("x-request-id"))
    const peer = socket instanceof Socket ? socket.remoteAddress ?? "" : ""
    const decision = yield* charge(peer, header("x-forwarded-for"), false)
    const error = decision.admitted ? refusal : RateLimit.exceeded(decision)
    const { status } = error
    const body = Failure.bodyOf(error)
    const method = request?.method ?? "none"
    const headers = {
      ...edge({ requestId: exchange.requestId, decision, method, origin: header("origin") }),
      ...status === 405 && { allow: "GET, HEAD, POST, OPTIONS" },
      "content-type": "application/json",
      "content-length": Buffer.byteLength(body),
      date: new Date(decision.decidedAt).toUTCString(),
      connection: "close"
    }
    const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`)
    if (socket.writable) socket.write(`HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${lines.join("")}\r\n${body}`)
    closeGently(socket)
    yield* report(method, exchange, status)
  })

  /**
   * Refuses once the requests before are answered, if any are under way. A fault in the body of the request that is
   * being answered is reported by that answer; if that is sent already, the connection just closes behind it.
   */
  const inTurn = (socket: Duplex, refused: Effect.Effect<void>, fault?: Error): void => {
    const answer = answerOn(socket)
    if (answer === undefined) run(refused)
    else if (answer.req.complete) answer.once("finish", () => inTurn(socket, refused, fault))
    else if (answer.req instanceof Incoming && fault !== undefined && !answer.headersSent) {
      // Node closes so behind an answer that is the last.
      answer.req.socket.destroySoon = () => closeGently(socket)
      answer.req.fail(fault)
    }
  }

  /** Connections that ended with something that Node refused: whatever still comes there is no news. */
  const ended = new WeakSet<Duplex>()

  server.on("clientError", (error, socket) => {
    if (ended.has(socket)) return
    ended.add(socket)
    socket.on("error", () => socket.destroy())
    // Who said nothing is told nothing: a connection that was opened ahead and not used.
    if (!socket.writable || (socket instanceof Socket && socket.bytesRead === 0)) socket.destroy()
    else inTurn(socket, refuse(socket, Failure.unreadable(error)), error)
  })
  server.on("connect", (request, socket) => {
    socket.on("error", () => socket.destroy())
    const notAllowed = new Errors.MethodNotAllowed({ message: "CONNECT is not allowed here." })
    inTurn(socket, refuse(socket, notAllowed, request))
  })
})
