/**
 * Node's HTTP server as both ports use it: the same limits, the same checks and the same responses to client errors.
 */
import { Effect } from "effect"
import { IncomingMessage, Server, type ServerResponse } from "node:http"
import type { Socket } from "node:net"
import * as ClientAddress from "../middleware/ClientAddress.ts"
import * as ClientErrors from "./ClientErrors.ts"
import { IncomingRequest, RequestBodies } from "./IncomingRequest.ts"
import { PipelinedResponse, ResponseQueue } from "./Pipelining.ts"
import { headError } from "./RequestHead.ts"
import { ResponseBuffers } from "./ResponseBuffers.ts"

/** How much and how long a port waits for any client: milliseconds and bytes. */
const bounds = {
  maxHeaderSize: 16 * 1024,
  /** For the head of a request, and for all of it. */
  headersTimeout: 10_000,
  requestTimeout: 30_000,
  connectionsCheckingInterval: 1_000,
  /** Longer than balancers keep an idle connection, so that none is closed as it is used again. */
  keepAliveTimeout: 65_000
}

const maxConnections = 10_000
/** The share of one address (IPv4, or the /64 of IPv6) that is no trusted proxy: more are closed at once. */
const maxConnectionsPerAddress = 4_000

/** How one port differs from the other. */
export interface Port {
  /** Handles a request; `next` passes it to Effect's HTTP server, and says whether that still listens. */
  readonly handle: (request: IncomingMessage, response: ServerResponse, next: () => boolean) => void
  /** Whether the port serves the host that a request is for. */
  readonly isAllowedHost: (request: IncomingMessage) => boolean
  /** For how many milliseconds a client may read nothing of a response that waits for it, as things stand. */
  readonly maxStallMs: () => number
  /** The methods of the port's operations. */
  readonly allow: ReadonlyArray<string>
  readonly reject: ClientErrors.Reject
}

/** A server that is not listening yet. */
export const make = Effect.fnUntraced(function*({ allow, handle, isAllowedHost, maxStallMs, reject }: Port) {
  const bodies = new RequestBodies()
  const outbox = new ResponseQueue(new ResponseBuffers(maxStallMs))
  class Request extends IncomingRequest {
    constructor(socket: Socket) {
      super(socket, bodies)
    }
  }
  class Response<R extends IncomingMessage> extends PipelinedResponse<R> {
    constructor(request: R) {
      super(request, outbox)
    }
  }
  const server: Server = new class extends Server<typeof Request, typeof Response> {
    /** Requests pass here before they come to Effect's handlers. */
    override emit(event: string | symbol, ...given: ReadonlyArray<unknown>): boolean {
      const [request, response] = given
      const next = (): boolean => {
        const isTaken: boolean = Reflect.apply(super.emit, this, [event, ...given])
        // During shutdown, when Effect no longer listens, nothing else would end the request.
        if (!isTaken && request instanceof IncomingMessage) request.socket.destroy()
        return isTaken
      }
      if (
        (event !== "request" && event !== "checkContinue") ||
        !(request instanceof IncomingMessage) || !(response instanceof PipelinedResponse)
      ) return next()
      const error = headError(request, isAllowedHost)
      response.takePlace(() => {
        // A request behind the last response of its connection must have no effect.
        if (request.socket.writableEnded) return
        if (error === undefined) handle(request, response, next)
        else respondWith(error, response)
      })
      return true
    }

    /** An upgrade is a request like any other (RFC 9110 §7.8), though Effect listens for it. */
    override listenerCount(event: string | symbol, listener?: (...given: Array<unknown>) => void): number {
      return event === "upgrade" ? 0 : super.listenerCount(event, listener)
    }
  }({
    ...bounds,
    IncomingMessage: Request,
    ServerResponse: Response,
    // Node's own response would have no Error body.
    requireHostHeader: false
  })
  server.maxConnections = maxConnections
  const peerNetwork = yield* ClientAddress.peerNetwork
  const connections = new Map<string, number>()
  server.on("connection", (socket: Socket) => {
    const network = peerNetwork(socket.remoteAddress ?? "")
    if (network === undefined) return
    const before = connections.get(network) ?? 0
    if (before >= maxConnectionsPerAddress) {
      socket.destroy()
      return
    }
    connections.set(network, before + 1)
    socket.on("close", () => {
      const open = (connections.get(network) ?? 0) - 1
      if (open > 0) connections.set(network, open)
      else connections.delete(network)
    })
  })
  // A client that half-closes after its request still gets the response.
  Object.assign(server, { httpAllowHalfOpen: true })
  // A client that stops reading, or vanishes, holds a connection no longer than this.
  server.setTimeout(60_000)
  const respondWith = yield* ClientErrors.attach(server, reject, allow)
  return server
})
