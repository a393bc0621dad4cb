/**
 * Listens with Node's HTTP server. Only this folder uses Node's undocumented internals. With them, the service bounds
 * memory across connections, and responds to requests that Node rejects before Effect's server sees them.
 */
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import {
  ByteSize,
  Cause,
  Clock,
  Context,
  Data,
  Effect,
  ErrorReporter,
  FiberSet,
  Layer,
  Metric,
  References,
  Scope
} from "effect"
import { HttpIncomingMessage, HttpMiddleware, HttpServer, UrlParams } from "effect/http"
import type { HttpServerRequest, HttpServerResponse } from "effect/http"
import { requestLimits } from "../api/Errors.ts"
import type { Setting } from "../config/SettingForms.ts"
import { Settings } from "../config/Settings.ts"
import { maxResponsesClose } from "../config/Shutdown.ts"
import { AccessLogEnabled, JsonLines } from "../observability/LogReferences.ts"
import { peerNetwork, type TrustedProxies } from "../rate-limit/ClientAddress.ts"
import { OrderedServer } from "./OrderedServer.ts"
import * as ParserRejections from "./ParserRejections.ts"

export interface Address {
  readonly host: Setting<string>
  readonly port: Setting<number>
  readonly reusePort?: Setting<boolean>
}

/** The bounds of what a connection can hold (SECURITY.md). */
const limits = {
  bodyBytes: requestLimits.bodyBytes,
  bodyChunks: 4_096,
  requestMs: 60_000,
  readMs: 60_000,
  unreadBytes: 64 * 1024 * 1024
}

const makeNodeServer = Effect.gen(function*() {
  const run = yield* FiberSet.makeRuntime()
  const server = new OrderedServer({
    limits,
    onDefect: (defect) => void run(Effect.logError("A connection failed", Cause.die(defect))),
    maxHeaderSize: requestLimits.headBytes,
    headersTimeout: 10_000,
    requestTimeout: 30_000,
    connectionsCheckingInterval: 1_000,
    keepAliveTimeout: 1_000 * (yield* Settings.keepAliveSeconds.config),
    // Disable Node's check of `Host`, because its 400 would have no Error body. `headError` checks `Host`.
    requireHostHeader: false
  })
  // Node silently drops headers over this maximum. One extra lets `headError` see the excess.
  server.maxHeadersCount = requestLimits.headerFields + 1
  return server
})

/** Limits open connections, in total and per client address. Trusted proxies count only towards the total. */
const limitConnections = Effect.fnUntraced(function*(server: OrderedServer, trustedProxies: TrustedProxies) {
  const maxPerAddress = yield* Settings.maxConnectionsPerAddress.config
  server.maxConnections = yield* Settings.maxConnections.config
  const connections = new Map<string, number>()
  const change = (network: string, by: 1 | -1): number => {
    const open = (connections.get(network) ?? 0) + by
    if (open === 0) connections.delete(network)
    else connections.set(network, open)
    return open
  }
  server.on("connection", (socket) => {
    // A connection that the client has already reset has no address, so no limit per address could apply.
    if (socket.remoteAddress === undefined) socket.destroy()
    const network = peerNetwork(trustedProxies, socket.remoteAddress ?? "")
    if (network === undefined) return
    socket.on("close", () => change(network, -1))
    if (change(network, 1) > maxPerAddress) socket.destroy()
  })
})

export class CannotListen extends Data.TaggedError("CannotListen")<{ message: string; cause?: unknown }> {}

const cannotListen = ({ host, port }: Address, address: string, portNumber: number, cause: unknown): CannotListen => {
  const code = cause instanceof Error && "code" in cause ? cause.code : undefined
  if (code === "EADDRINUSE") {
    const advice = `Stop the program that uses it, or set ${port.name} to another port`
    return new CannotListen({ message: `${port.name}: port ${portNumber} on ${address} is already in use. ${advice}` })
  }
  if (code === "EADDRNOTAVAIL" || code === "ENOTFOUND") {
    const advice = `Set ${host.name} to one that it has`
    return new CannotListen({ message: `${host.name}: this machine has no address "${address}". ${advice}` })
  }
  const message = `${host.name} and ${port.name}: the service cannot listen on port ${portNumber} on ${address}`
  return new CannotListen({ message, cause })
}

/**
 * Effect copies the server's context for every request. Copying all services would take 5 % more CPU time for a list
 * and 7 % for a get, so keep only the services and references that requests use.
 */
const pickForRequests = Context.pick(
  Scope.Scope,
  Clock.Clock,
  References.Tracer,
  References.CurrentLoggers,
  ErrorReporter.CurrentErrorReporters,
  Metric.MetricRegistry,
  Metric.CurrentMetricAttributes,
  References.MinimumLogLevel,
  JsonLines,
  AccessLogEnabled,
  HttpIncomingMessage.MaxBodySize,
  HttpMiddleware.SpanNameGenerator,
  HttpMiddleware.TracerDisabledWhen,
  UrlParams.CurrentRedactedNames
)

/** Spans show only these three query parameters, because a client can send a secret in any other. */
const redactedNames = [/^(?!(?:limit|status|cursor)$)/]

type Response = HttpServerResponse.HttpServerResponse

/** How requests are traced. */
export interface Tracing {
  /** The name of a request's span. */
  readonly spanName: (request: HttpServerRequest.HttpServerRequest) => string
  /** Whether a request has no span. */
  readonly isUntraced?: (request: HttpServerRequest.HttpServerRequest) => boolean
}

export const layer = <E, R>(
  routes: Effect.Effect<Effect.Effect<Response, unknown, Scope.Scope | HttpServerRequest.HttpServerRequest>, E, R>,
  address: Address,
  trustedProxies: TrustedProxies,
  reject: ParserRejections.Reject,
  { isUntraced = () => false, spanName }: Tracing
) =>
  Layer.effect(
    HttpServer.HttpServer,
    Effect.gen(function*() {
      const node = yield* makeNodeServer
      yield* limitConnections(node, trustedProxies)
      yield* ParserRejections.attach(node, reject)
      const host = yield* address.host.config
      const portNumber = yield* address.port.config
      const httpEffect = yield* routes
      const server = yield* Effect.catchTag(
        NodeHttpServer.make(() => node, {
          host,
          port: portNumber,
          reusePort: address.reusePort !== undefined && (yield* address.reusePort.config),
          backlog: 4_096,
          gracefulShutdownTimeout: yield* maxResponsesClose
        }),
        "ServeError",
        ({ cause }) => cannotListen(address, host, portNumber, cause)
      )
      yield* Effect.updateContext(server.serve(httpEffect), pickForRequests<Scope.Scope>)
      // Remove Effect's `upgrade` listener, so that Node ignores `Upgrade` and handles the request (RFC 9110 §7.8).
      node.removeAllListeners("upgrade")
      return server
    })
  ).pipe(
    Layer.provide(Layer.succeed(HttpIncomingMessage.MaxBodySize, ByteSize.bytes(requestLimits.bodyBytes))),
    Layer.provide(Layer.succeed(UrlParams.CurrentRedactedNames, redactedNames)),
    Layer.provide(Layer.succeed(HttpMiddleware.SpanNameGenerator, spanName)),
    Layer.provide(Layer.succeed(HttpMiddleware.TracerDisabledWhen, isUntraced))
  )
