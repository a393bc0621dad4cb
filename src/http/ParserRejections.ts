/** Responds to requests that Node's parser rejects, to requests that take too long to arrive, and to CONNECT. */
import { Clock, Effect, Option } from "effect"
import { ServerResponse } from "node:http"
import { Socket } from "node:net"
import { type ApiError, MethodNotAllowed } from "../api/Errors.ts"
import { errorOfParser } from "./ErrorResponses.ts"
import { closeGently, type OrderedServer, Request } from "./OrderedServer.ts"
import { RequestContext } from "./RequestContext.ts"
import { type Port, reject } from "./Responses.ts"

export const attach = Effect.fnUntraced(function*(server: OrderedServer, port: Port) {
  const clock = yield* Clock.Clock
  const run = Effect.runForkWith(yield* Effect.context())
  const rejected = new WeakSet<Socket>()

  const respond = Effect.fnUntraced(function*(error: ApiError, request: Request) {
    const { headers, method = "none", socket, url = "" } = request
    const head = { method, url, headers, remoteAddress: Option.fromUndefinedOr(socket.remoteAddress) }
    const context = RequestContext.make(headers["x-request-id"], clock.monotonicTimeNanosUnsafe())
    const { body, headers: sent, status } = yield* reject(port, head, context, error)
    if (!socket.writable) return
    const response = new ServerResponse(request)
    response.assignSocket(socket)
    response.on("finish", () => closeGently(socket))
    response.writeHead(status, sent).end(body._tag === "Uint8Array" ? body.body : undefined)
  })
  const end = (socket: Socket, fault: Error, error: ApiError, request = new Request(socket)): void => {
    // The parser reports an error again for all that follows.
    if (rejected.has(socket)) return
    rejected.add(socket)
    socket.on("error", () => socket.destroy())
    // A connection on which the client sent nothing gets no response.
    if (!socket.writable || socket.bytesRead === 0) socket.destroy()
    else server.end(socket, fault, () => run(respond(error, request)))
  }
  server.on("clientError", (fault, socket) => {
    if (socket instanceof Socket) end(socket, fault, errorOfParser(fault))
  })
  server.on("connect", (request) => {
    const error = new MethodNotAllowed({ message: "CONNECT is not allowed here." })
    end(request.socket, error, error, request)
  })
})
