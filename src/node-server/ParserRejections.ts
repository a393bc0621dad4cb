/** Handles CONNECT, and requests that Node's parser rejects or that arrive too slowly. */
import { type Cause, Effect, FiberSet, Option } from "effect"
import type { HttpServerResponse } from "effect/http"
import { ServerResponse } from "node:http"
import { Socket } from "node:net"
import * as Errors from "../api/Errors.ts"
import { BufferedRequest } from "./BufferedRequest.ts"
import { errorOfParser, originOf } from "./NodeErrors.ts"
import type { OrderedServer } from "./OrderedServer.ts"

interface Head {
  readonly method: string
  readonly url: string
  readonly headers: BufferedRequest["headers"]
  readonly remoteAddress: Option.Option<string>
}

export type Reject = (error: Errors.ApiError, head: Head) => Effect.Effect<HttpServerResponse.HttpServerResponse>

export const attach = Effect.fnUntraced(function*(server: OrderedServer, reject: Reject) {
  const run = yield* FiberSet.makeRuntime()

  const respond = Effect.fnUntraced(
    function*(error: Errors.ApiError, request: BufferedRequest, headers = request.headers) {
      const { socket, url = "" } = request
      if (!socket.writable) return
      const method = request.method ?? "none"
      const head = { method, url, headers, remoteAddress: Option.fromUndefinedOr(socket.remoteAddress) }
      const { body, headers: sent, status } = yield* reject(error, head)
      if (!socket.writable) return
      const response = new ServerResponse(request)
      response.assignSocket(socket)
      response.on("finish", () => server.connectionOf(socket)?.end())
      response.writeHead(status, sent).end(body._tag === "Uint8Array" ? body.body : undefined)
    }
  )
  const end = (
    socket: Socket,
    fault: Error,
    error: Errors.ApiError,
    request: BufferedRequest,
    headers = request.headers
  ) => {
    const destroy = (cause: Cause.Cause<never>) =>
      Effect.andThen(Effect.logError("The rejection of a request failed", cause), Effect.sync(() => socket.destroy()))
    if (!socket.writable || socket.bytesRead === 0) socket.destroy()
    else {
      server.connectionOf(socket)?.fail(
        fault,
        () => void run(Effect.onError(respond(error, request, headers), destroy))
      )
    }
  }
  server.on("clientError", (fault, socket) => {
    if (socket instanceof Socket) end(socket, fault, errorOfParser(fault), new BufferedRequest(socket), originOf(fault))
  })
  server.on("connect", (request) => {
    const error = new Errors.MethodNotAllowed({ message: "CONNECT is not allowed here." })
    end(request.socket, error, error, request)
  })
})
