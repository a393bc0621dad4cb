/**
 * Node's HTTP server with the limits of the service, for both ports. Effect's server serves the routes of a port on it.
 * This file adds what Node leaves open: the order of pipelined requests, and responses to requests that its parser
 * rejects.
 */
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import * as NodeHttpServerRequest from "@effect/platform-node/NodeHttpServerRequest"
import { Clock, Context, Data, Effect, Layer, Logger, Option, Predicate, References, Scope, Tracer } from "effect"
import {
  HttpIncomingMessage,
  HttpRouter,
  HttpServer,
  HttpServerRequest,
  type HttpServerResponse,
  UrlParams
} from "effect/http"
import { createServer, IncomingMessage, type Server, ServerResponse } from "node:http"
import { Socket } from "node:net"
import type { Duplex } from "node:stream"
import { type ApiError, MethodNotAllowed, ServiceUnavailable } from "../api/Errors.ts"
import type { Setting } from "../config/Setting.ts"
import { Settings } from "../config/Settings.ts"
import { isOutage, isReadOnly } from "../database/Outage.ts"
import { AccessLogEnabled, JsonLines } from "../observability/LogLines.ts"
import { Call, type RequestHead } from "./Call.ts"
import { makePeerNetwork } from "./ClientAddress.ts"
import { errorOfParser, OutageOf } from "./ErrorResponses.ts"
import * as JsonBody from "./JsonBody.ts"
import { type Port, reject } from "./Responses.ts"
import { routerConfig } from "./RoutePaths.ts"

const bounds = {
  maxHeaderSize: 16 * 1024,
  /** Milliseconds for the head of a request, and for the whole request. */
  headersTimeout: 10_000,
  requestTimeout: 30_000,
  connectionsCheckingInterval: 1_000
}

/** The maximum of connections of one address (IPv4, or the /64 of IPv6) that is not a trusted proxy. */
const maxConnectionsPerAddress = 4_000

/** The milliseconds for which a closing connection is read. */
const maxCloseMs = 1_000

/** A request whose body can fail while its response can still be sent. */
class Request extends IncomingMessage {
  #hasFault = false

  /** Ends the body with `fault`, which current and later readers of the body receive. */
  failBody(fault: Error): void {
    this.#hasFault = true
    this.destroy(fault)
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    if (!this.#hasFault) return super._destroy(error, done)
    // The connection stays open. Without a reader of the body, nothing would handle an emitted error.
    process.nextTick(() => done(this.listenerCount("error") === 0 ? null : error))
  }
}

let laterSends: Array<() => void> | undefined

/**
 * A response that is sent together with others of the same turn of the event loop, except for the first. The clients
 * then wake once. Measured: 1.4 times as many gets a second with 256 connections over a network with a delay of 1 ms.
 */
class GroupedResponse<R extends IncomingMessage = IncomingMessage> extends ServerResponse<R> {
  override end(...args: ReadonlyArray<unknown>): this {
    if (laterSends !== undefined) {
      laterSends.push(() => {
        if (!this.destroyed) Reflect.apply(super.end, this, args)
      })
      return this
    }
    const sends: Array<() => void> = laterSends = []
    setImmediate(() => {
      laterSends = undefined
      for (const send of sends) send()
    })
    return Reflect.apply(super.end, this, args)
  }
}

/**
 * Closes a connection after its last response. It reads and drops what the client still sends, because unread data
 * would reset the connection and lose the response.
 */
const closeGently = (socket: Duplex): void => {
  socket.end()
  socket.resume()
  const timer = setTimeout(() => socket.destroy(), maxCloseMs).unref()
  socket.once("close", () => clearTimeout(timer))
}

/** Returns the response that Node sends on a connection now. Node has no public accessor of it. */
const currentResponse = (socket: Duplex): ServerResponse | undefined => {
  const response: unknown = Reflect.get(socket, "_httpMessage")
  return response instanceof ServerResponse ? response : undefined
}

/** The number of pipelined requests that wait on each connection. */
const waiting = new WeakMap<Socket, number>()

const addWaiting = (socket: Socket, change: 1 | -1): void => {
  const count = (waiting.get(socket) ?? 0) + change
  waiting.set(socket, count)
  if (count === 0) socket.resume()
  else keepPaused(socket)
}

/** Stops reading a connection on which a request waits. So a client that sends faster than it reads is paused. */
const keepPaused = (socket: Socket): void => {
  if (!socket.writableEnded && (waiting.get(socket) ?? 0) > 0) socket.pause()
}

/** Waits until the responses ahead of `response` on its connection are sent. */
const turnOf = (response: ServerResponse): Effect.Effect<void> =>
  Effect.callback((resume) => {
    const { req } = response
    const leave = (): void => {
      response.off("socket", start)
      req.off("close", end)
      addWaiting(req.socket, -1)
    }
    const start = (): void => {
      leave()
      resume(Effect.void)
    }
    const end = (): void => {
      leave()
      resume(Effect.interrupt)
    }
    response.once("socket", start)
    req.once("close", end)
    addWaiting(req.socket, 1)
    return Effect.sync(leave)
  })

/** Starts pipelined requests one after another (RFC 9112 §9.3.2), and none after the last response of a connection. */
const inOrder = <E, R>(httpEffect: Effect.Effect<HttpServerResponse.HttpServerResponse, E, R>) =>
  Effect.flatMap(HttpServerRequest.HttpServerRequest, (request): typeof httpEffect => {
    const response = NodeHttpServerRequest.toServerResponse(request)
    if (!(response instanceof ServerResponse)) return httpEffect
    if (response.req.socket.writableEnded) return Effect.interruptible(Effect.never)
    return response.socket === null
      ? Effect.andThen(Effect.interruptible(turnOf(response)), httpEffect)
      : httpEffect
  })

/**
 * Runs `respond` after the responses to the requests before it. The handler of an incomplete request responds itself to
 * a fault in its body. The parser reads no further request then.
 */
const inTurn = (socket: Duplex, respond: () => void, fault?: Error): void => {
  const response = currentResponse(socket)
  if (response === undefined) respond()
  else if (fault !== undefined && response.req instanceof Request && !response.req.complete) {
    response.shouldKeepAlive = false
    response.req.failBody(fault)
  } else response.once("finish", () => inTurn(socket, respond, fault))
}

/** Makes `server` respond to requests that Node's parser rejects, to requests that take too long, and to CONNECT. */
const attachRejections = Effect.fnUntraced(function*(server: Server, port: Port) {
  const clock = yield* Clock.Clock
  const run = Effect.runForkWith(yield* Effect.context())
  /** Connections on which no further request begins. Later errors on them are ignored. */
  const rejected = new WeakSet<Duplex>()

  const respond = Effect.fnUntraced(function*(error: ApiError, socket: Socket, request: IncomingMessage) {
    const { headers, method, url } = request
    const head: RequestHead = {
      method: method ?? "none",
      url: url ?? "",
      headers,
      remoteAddress: Option.fromUndefinedOr(socket.remoteAddress)
    }
    const call = new Call(headers["x-request-id"], clock.monotonicTimeNanosUnsafe())
    const { body, headers: sent, status } = yield* reject(port, head, call, error)
    if (!socket.writable) return
    const response = new ServerResponse(request)
    response.assignSocket(socket)
    response.on("finish", () => closeGently(socket))
    response.writeHead(status, sent).end(body._tag === "Uint8Array" ? body.body : undefined)
  })
  server.on("clientError", (fault, socket) => {
    if (rejected.has(socket) || !(socket instanceof Socket)) return
    rejected.add(socket)
    socket.on("error", () => socket.destroy())
    // A connection on which the client sent nothing gets no response.
    if (!socket.writable || socket.bytesRead === 0) socket.destroy()
    else inTurn(socket, () => run(respond(errorOfParser(fault), socket, new IncomingMessage(socket))), fault)
  })
  server.on("connect", (request, socket) => {
    socket.on("error", () => socket.destroy())
    const error = new MethodNotAllowed({ message: "CONNECT is not allowed here." })
    inTurn(socket, () => run(respond(error, request.socket, request)))
  })
})

/** Makes Node's server for `port`. It is not listening yet. */
const make = Effect.fnUntraced(function*(port: Port) {
  const peerNetwork = yield* makePeerNetwork
  const server = createServer({
    ...bounds,
    keepAliveTimeout: 1_000 * (yield* Settings.keepAliveSeconds.config),
    IncomingMessage: Request,
    ServerResponse: GroupedResponse,
    // Node's own response would have no Error body.
    requireHostHeader: false
  })
  server.maxConnections = yield* Settings.maxConnections.config
  // Closes a connection without traffic during a request after this time, in milliseconds. Between requests,
  // Node waits for `keepAliveTimeout`.
  server.setTimeout(60_000)
  // A client that half-closes after its request still gets the response.
  Object.assign(server, { httpAllowHalfOpen: true })
  const connections = new Map<string, number>()
  server.on("connection", (socket: Socket) => {
    socket.destroySoon = () => closeGently(socket)
    // Node resumes a connection when it reads a body.
    socket.on("resume", () => keepPaused(socket))
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
  // The middleware responds to an unknown `Expect`, instead of Node.
  server.on("checkExpectation", (request, response) => server.emit("request", request, response))
  yield* attachRejections(server, port)
  return server
})

/** The settings of an address. */
interface Address {
  readonly host: Setting<string>
  readonly port: Setting<number>
  /** Whether other processes may listen on the same port. */
  readonly reusePort?: Setting<boolean>
}

/** The server cannot listen. The message names the setting that an operator can change. */
export class CannotListen extends Data.TaggedError("CannotListen")<{
  readonly message: string
  /** The system's error, unless the message says the same. */
  readonly cause?: unknown
}> {}

/** Describes why a server cannot listen, by the code of the system's error. */
const describe = ({ host, port }: Address, address: string, portNumber: number, cause: unknown): CannotListen => {
  switch (Predicate.hasProperty(cause, "code") ? cause.code : undefined) {
    case "EADDRINUSE":
      return new CannotListen({
        message: `${port.name}: port ${portNumber} of ${address} is in use. ` +
          `End the program that uses it, or set ${port.name} to another one`
      })
    case "EADDRNOTAVAIL":
    case "ENOTFOUND":
      return new CannotListen({
        message: `${host.name}: this machine has no address "${address}". Set ${host.name} to one that it has`
      })
    default:
      return new CannotListen({
        message: `${host.name} and ${port.name}: the service cannot listen on port ${portNumber} of ${address}`,
        cause
      })
  }
}

/**
 * Removes all services but those that each request needs. Effect copies the context of the server for each request, so
 * that each service in it costs time.
 */
const pickForRequests = Context.pick(
  Scope.Scope,
  Clock.Clock,
  Tracer.Tracer,
  Logger.CurrentLoggers,
  References.MinimumLogLevel,
  JsonLines,
  AccessLogEnabled,
  OutageOf,
  HttpIncomingMessage.MaxBodySize,
  UrlParams.CurrentRedactedNames
)

/** The query parameters whose values spans hide: all but those of the contract. A client can send a secret in them. */
const redactedNames = [/^(?!(?:limit|status|cursor)$)/]

/** Returns the 503 for an outage of the database. */
const outageOf = (failure: unknown): ServiceUnavailable | undefined =>
  isReadOnly(failure)
    ? new ServiceUnavailable({ message: "The database accepts no writes at the moment. Reads work." })
    : isOutage(failure)
    ? new ServiceUnavailable()
    : undefined

type Response = HttpServerResponse.HttpServerResponse

/** Serves the routes of a port on the address that two settings name. With port 0 the system chooses a free port. */
export const layer = <E, R>(
  routes: Effect.Effect<Effect.Effect<Response, unknown, Scope.Scope | HttpServerRequest.HttpServerRequest>, E, R>,
  port: Port,
  address: Address
) =>
  Layer.effect(
    HttpServer.HttpServer,
    Effect.gen(function*() {
      const node = yield* make(port)
      const host = yield* address.host.config
      const portNumber = yield* address.port.config
      const drainSeconds = yield* Settings.drainSeconds.config
      const httpEffect = yield* routes
      const server = yield* Effect.catchTag(
        NodeHttpServer.make(() => node, {
          host,
          port: portNumber,
          reusePort: address.reusePort !== undefined && (yield* address.reusePort.config),
          backlog: 4_096,
          gracefulShutdownTimeout: `${7 - drainSeconds} seconds`
        }),
        "ServeError",
        ({ cause }) => describe(address, host, portNumber, cause)
      )
      yield* Effect.updateContext(server.serve(inOrder(httpEffect)), pickForRequests<Scope.Scope>)
      // Node passes an upgrade as any other request if there is no listener (RFC 9110 §7.8).
      node.removeAllListeners("upgrade")
      return server
    })
  ).pipe(
    Layer.provide(Layer.succeed(HttpRouter.RouterConfig, routerConfig)),
    Layer.provide(Layer.succeed(HttpIncomingMessage.MaxBodySize, JsonBody.maxSize)),
    Layer.provide(Layer.succeed(OutageOf, outageOf)),
    Layer.provide(Layer.succeed(UrlParams.CurrentRedactedNames, redactedNames))
  )
