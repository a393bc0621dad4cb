/**
 * Node's HTTP server for the API port and the management port: the same limits, checks and responses to client errors.
 */
import { Effect } from "effect"
import { IncomingMessage, Server, type ServerResponse } from "node:http"
import type { Socket } from "node:net"
import * as ClientAddress from "../middleware/ClientAddress.ts"
import * as ClientErrors from "./ClientErrors.ts"
import { IncomingRequest, RequestBodies } from "./IncomingRequest.ts"
import { PipelinedResponse, ResponseScheduler } from "./Pipelining.ts"
import { headError } from "./RequestHead.ts"
import { ResponseBuffers } from "./ResponseBuffers.ts"

/** Limits for every client, in milliseconds and bytes. */
const bounds = {
  maxHeaderSize: 16 * 1024,
  /** Milliseconds for the head of a request, and for the whole request. */
  headersTimeout: 10_000,
  requestTimeout: 30_000,
  connectionsCheckingInterval: 1_000,
  /** Longer than balancers keep an idle connection, so that no balancer reuses a connection that is closing. */
  keepAliveTimeout: 65_000
}

const maxConnections = 10_000
/**
 * The maximum for one address (IPv4, or the /64 of IPv6) that is not a trusted proxy. More connections are closed at
 * once.
 */
const maxConnectionsPerAddress = 4_000

/** The differences between the two ports. */
export interface Port {
  /** Handles a request. `next` passes it to Effect's HTTP server, and returns `false` if that server has closed. */
  readonly handle: (request: IncomingMessage, response: ServerResponse, next: () => boolean) => void
  /** Whether the port serves the host that a request is for. */
  readonly isAllowedHost: (request: IncomingMessage) => boolean
  /** Returns the milliseconds for which a client may read nothing of a response. */
  readonly maxStallMs: () => number
  /** The methods of the port's operations. */
  readonly allow: ReadonlyArray<string>
  readonly reject: ClientErrors.Reject
}

/** Makes a server that is not listening yet. */
export const make = Effect.fnUntraced(function*({ allow, handle, isAllowedHost, maxStallMs, reject }: Port) {
  const bodies = new RequestBodies()
  const scheduler = new ResponseScheduler(new ResponseBuffers(maxStallMs))
  class Request extends IncomingRequest {
    constructor(socket: Socket) {
      super(socket, bodies)
    }
  }
  class Response<R extends IncomingMessage> extends PipelinedResponse<R> {
    constructor(request: R) {
      super(request, scheduler)
    }
  }
  const server: Server = new class extends Server<typeof Request, typeof Response> {
    /** Every request passes here before it reaches Effect's handlers. */
    override emit(event: string | symbol, ...args: ReadonlyArray<unknown>): boolean {
      const [request, response] = args
      const next = (): boolean => {
        const isHandled: boolean = Reflect.apply(super.emit, this, [event, ...args])
        // During shutdown, when Effect no longer listens, no other code would end the request.
        if (!isHandled && request instanceof IncomingMessage) request.socket.destroy()
        return isHandled
      }
      if (
        (event !== "request" && event !== "checkContinue") ||
        !(request instanceof IncomingMessage) || !(response instanceof PipelinedResponse)
      ) return next()
      const error = headError(request, isAllowedHost)
      response.startInOrder(() => {
        // A request after the last response of its connection must have no effect.
        if (request.socket.writableEnded) return
        if (error === undefined) handle(request, response, next)
        else respondWith(error, response)
      })
      return true
    }

    /** Handles an upgrade like any other request (RFC 9110 §7.8), although Effect listens for upgrades. */
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
  // Closes a connection without traffic after this time, in milliseconds.
  server.setTimeout(60_000)
  const respondWith = yield* ClientErrors.attach(server, reject, allow)
  return server
})
