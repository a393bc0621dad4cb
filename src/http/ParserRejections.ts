/** Responds to requests that Node's parser rejects, that arrive too slowly or in too many chunks, and to CONNECT. */
import { Clock, Effect, FiberSet, Option, Predicate } from "effect"
import { ServerResponse } from "node:http"
import { Socket } from "node:net"
import { type ApiError, MethodNotAllowed } from "../api/Errors.ts"
import { errorOfParser } from "./ErrorResponses.ts"
import { closeGently, type OrderedServer, Request } from "./OrderedServer.ts"
import { RequestContext } from "./RequestContext.ts"
import { type PortHooks, reject } from "./Responses.ts"

/** Finds `Origin` in the raw bytes, for the CORS headers. Node does not pass on the headers of a rejected request. */
const originOf = (fault: object): { readonly origin?: string } => {
  const bytes = Predicate.hasProperty(fault, "rawPacket") && Buffer.isBuffer(fault.rawPacket)
    ? fault.rawPacket.toString("latin1")
    : ""
  const [, origin] = /^origin: *([!-~]{1,1000})\r?$/im.exec(bytes) ?? []
  return origin === undefined ? {} : { origin }
}

export const attach = Effect.fnUntraced(function*(server: OrderedServer, hooks: PortHooks) {
  const clock = yield* Clock.Clock
  const run = yield* FiberSet.makeRuntime()
  const rejected = new WeakSet<Socket>()

  const respond = Effect.fnUntraced(function*(error: ApiError, request: Request, headers = request.headers) {
    const { socket, url = "" } = request
    if (!socket.writable) return
    // After a parser error, `method` is null, although Node's type says otherwise.
    const method = request.method ?? "none"
    const head = { method, url, headers, remoteAddress: Option.fromUndefinedOr(socket.remoteAddress) }
    const context = RequestContext.make(headers["x-request-id"], clock.monotonicTimeNanosUnsafe())
    const { body, headers: sent, status } = yield* reject(hooks, head, context, error)
    if (!socket.writable) return
    const response = new ServerResponse(request)
    response.assignSocket(socket)
    response.on("finish", () => closeGently(socket))
    response.writeHead(status, sent).end(body._tag === "Uint8Array" ? body.body : undefined)
  })
  const end = (socket: Socket, fault: Error, error: ApiError, request: Request, headers = request.headers): void => {
    rejected.add(socket)
    socket.on("error", () => socket.destroy())
    // Remove Node's listener, which would end the socket before the response if the client half-closes.
    socket.removeAllListeners("end")
    const destroy = () => Effect.sync(() => socket.destroy())
    if (!socket.writable || socket.bytesRead === 0) socket.destroy()
    else server.end(socket, fault, () => run(Effect.onError(respond(error, request, headers), destroy)))
  }
  server.on("clientError", (fault, socket) => {
    // Ignore repeated errors: Node's parser reports the error again when more bytes arrive.
    if (!(socket instanceof Socket) || rejected.has(socket)) return
    end(socket, fault, errorOfParser(fault), new Request(socket), originOf(fault))
  })
  server.on("connect", (request) => {
    const error = new MethodNotAllowed({ message: "CONNECT is not allowed here." })
    if (!rejected.has(request.socket)) end(request.socket, error, error, request)
  })
})
