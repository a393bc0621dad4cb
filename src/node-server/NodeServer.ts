/**
 * Listens with Node's HTTP server. Only this folder uses Node's undocumented internals (README.md). They let a service
 * bound the memory of its connections, and respond to requests that Node rejects before Effect's server sees them.
 */
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { ByteSize, Cause, type Context, Data, type Duration, Effect, FiberSet, Layer, type Scope } from "effect"
import { HttpIncomingMessage, HttpServer } from "effect/http"
import type { HttpServerRequest, HttpServerResponse } from "effect/http"
import { EdgeServer } from "./EdgeServer.ts"
import * as ParserRejections from "./ParserRejections.ts"
import type { UnreadResponses } from "./UnreadResponses.ts"

export interface Address {
  readonly host: string
  readonly port: number
  /** Whether several processes may listen on the port together. */
  readonly reusePort: boolean
  /** How errors name the settings of the host and of the port. */
  readonly names: { readonly host: string; readonly port: string }
}

/** The bounds of a server, and of what each of its connections can hold. Times are in milliseconds. */
export interface Limits {
  readonly headBytes: number
  readonly headerFields: number
  readonly headMs: number
  readonly bodyBytes: number
  readonly bodyChunks: number
  /** The maximum time from the first byte of a request to the last one of its body. */
  readonly arrivalMs: number
  /** The maximum time from the start of a request's handler, or from a fault, until the response is written. */
  readonly requestMs: number
  /** How long a client may take to read a response that the socket does not take at once, from its writing. */
  readonly readMs: number
  readonly keepAliveMs: number
  readonly connections: number
  readonly connectionsPerNetwork: number
}

export interface Options {
  readonly address: Address
  readonly limits: Limits
  /** Bounds the unread responses of all servers that share it. */
  readonly unread: UnreadResponses
  /** Returns the network of `peer`, whose connections count together. A peer without one counts only in the total. */
  readonly networkOf: (peer: string) => string | undefined
  /** Makes the response to a request that never reaches the routes. */
  readonly reject: ParserRejections.Reject
  /**
   * Reduces the server's context to what requests use. Effect copies the context for every request, so a smaller one
   * costs less.
   */
  readonly contextOf: (context: Context.Context<Scope.Scope>) => Context.Context<Scope.Scope>
  /** How long requests in flight may take once the server closes. Then they are interrupted. */
  readonly maxClose: Duration.Duration
}

const makeNodeServer = Effect.fnUntraced(function*({ limits, unread }: Options) {
  const run = yield* FiberSet.makeRuntime()
  const server = new EdgeServer({
    limits,
    unread,
    onDefect: (defect) => void run(Effect.logError("A connection failed", Cause.die(defect))),
    maxHeaderSize: limits.headBytes,
    headersTimeout: limits.headMs,
    requestTimeout: limits.arrivalMs,
    connectionsCheckingInterval: 1_000,
    keepAliveTimeout: limits.keepAliveMs,
    // Disable Node's check of `Host`, because the 400 that Node sends has no Error body. The routes must check `Host`.
    requireHostHeader: false
  })
  // Node silently drops headers over this maximum. One extra lets the routes see the excess.
  server.maxHeadersCount = limits.headerFields + 1
  return server
})

/** Limits open connections, in total and per network. */
const limitConnections = (server: EdgeServer, { limits, networkOf }: Options) => {
  server.maxConnections = limits.connections
  const connections = new Map<string, number>()
  const change = (network: string, by: 1 | -1): number => {
    const open = (connections.get(network) ?? 0) + by
    if (open === 0) connections.delete(network)
    else connections.set(network, open)
    return open
  }
  server.on("connection", (socket) => {
    const peer = socket.remoteAddress
    // If a connection has no address, its client has already reset it. Destroy it, because no limit per network could
    // apply.
    if (peer === undefined) {
      socket.destroy()
      return
    }
    const network = networkOf(peer)
    if (network === undefined) return
    socket.on("close", () => change(network, -1))
    if (change(network, 1) > limits.connectionsPerNetwork) socket.destroy()
  })
}

export class CannotListen extends Data.TaggedError("CannotListen")<{ message: string; cause?: unknown }> {}

const cannotListen = ({ host, names, port }: Address, cause: unknown): CannotListen => {
  const code = cause instanceof Error && "code" in cause ? cause.code : undefined
  if (code === "EADDRINUSE") {
    const advice = `Stop the program that uses it, or set ${names.port} to another port`
    return new CannotListen({ message: `${names.port}: port ${port} on ${host} is already in use. ${advice}` })
  }
  if (code === "EADDRNOTAVAIL" || code === "ENOTFOUND") {
    const advice = `Set ${names.host} to one that it has`
    return new CannotListen({ message: `${names.host}: this machine has no address "${host}". ${advice}` })
  }
  const message = `${names.host} and ${names.port}: the service cannot listen on port ${port} on ${host}`
  return new CannotListen({ message, cause })
}

/** An effect that builds the routes, and returns the effect that handles each request. */
export type Routes<E, R> = Effect.Effect<
  Effect.Effect<
    HttpServerResponse.HttpServerResponse,
    unknown,
    Scope.Scope | HttpServerRequest.HttpServerRequest
  >,
  E,
  R
>

export const layer = <E, R>(
  routes: Routes<E, R>,
  options: Options
) =>
  Layer.effect(
    HttpServer.HttpServer,
    Effect.gen(function*() {
      const { address, contextOf, maxClose, reject } = options
      const node = yield* makeNodeServer(options)
      limitConnections(node, options)
      yield* ParserRejections.attach(node, reject)
      const httpEffect = yield* routes
      const server = yield* Effect.catchTag(
        NodeHttpServer.make(() => node, {
          host: address.host,
          port: address.port,
          reusePort: address.reusePort,
          backlog: 4_096,
          gracefulShutdownTimeout: maxClose
        }),
        "ServeError",
        ({ cause }) => cannotListen(address, cause)
      )
      yield* Effect.updateContext(server.serve(httpEffect), contextOf)
      // Remove Effect's `upgrade` listener, so that Node ignores `Upgrade` and handles the request (RFC 9110 §7.8).
      node.removeAllListeners("upgrade")
      return server
    })
  ).pipe(Layer.provide(Layer.succeed(HttpIncomingMessage.MaxBodySize, ByteSize.bytes(options.limits.bodyBytes))))
