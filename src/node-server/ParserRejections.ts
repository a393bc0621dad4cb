/** Handles CONNECT, and requests that Node's parser rejects or that arrive too slowly. */
import { type Cause, Effect, FiberSet, Option } from "effect"
import type { HttpServerResponse } from "effect/http"
import { ServerResponse } from "node:http"
import { Socket } from "node:net"
import { BufferedRequest } from "./BufferedRequest.ts"
import type { EdgeServer } from "./EdgeServer.ts"
import { faultOf, originOf, type ParserFault } from "./ParserFaults.ts"

interface Head {
  readonly method: string
  readonly url: string
  readonly headers: BufferedRequest["headers"]
  readonly remoteAddress: Option.Option<string>
}

/** Makes the response to a `CONNECT`, or to a request that Node rejects. */
export type Reject = (fault: ParserFault, head: Head) => Effect.Effect<HttpServerResponse.HttpServerResponse>

export const attach = Effect.fnUntraced(function*(server: EdgeServer, reject: Reject) {
  const run = yield* FiberSet.makeRuntime()

  const respond = Effect.fnUntraced(
    function*(fault: ParserFault, request: BufferedRequest, headers = request.headers) {
      const { socket, url = "" } = request
      if (!socket.writable) return
      const method = request.method ?? "none"
      const head = { method, url, headers, remoteAddress: Option.fromUndefinedOr(socket.remoteAddress) }
      const { body, headers: sent, status } = yield* reject(fault, head)
      if (!socket.writable) return
      const response = new ServerResponse(request)
      response.assignSocket(socket)
      response.on("finish", () => server.connectionOf(socket)?.end())
      response.writeHead(status, sent).end(body._tag === "Uint8Array" ? body.body : undefined)
    }
  )
  const end = (
    socket: Socket,
    error: Error,
    fault: ParserFault,
    request: BufferedRequest,
    headers = request.headers
  ) => {
    const destroy = (cause: Cause.Cause<never>) =>
      Effect.andThen(Effect.logError("The rejection of a request failed", cause), Effect.sync(() => socket.destroy()))
    if (!socket.writable || socket.bytesRead === 0) socket.destroy()
    else {
      server.connectionOf(socket)?.fail(
        error,
        () => void run(Effect.onError(respond(fault, request, headers), destroy))
      )
    }
  }
  server.on("clientError", (error, socket) => {
    if (socket instanceof Socket) end(socket, error, faultOf(error), new BufferedRequest(socket), originOf(error))
  })
  server.on("connect", (request) => {
    end(request.socket, new Error("CONNECT is not allowed"), { _tag: "MethodNotAllowed", method: "CONNECT" }, request)
  })
})
