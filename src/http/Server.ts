/** Serves the routes of a port on Node's HTTP server, with the limits of the service, for both ports. */
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { ByteSize, Clock, Context, Data, Effect, Layer, Logger, Predicate, References, Scope, Tracer } from "effect"
import {
  HttpIncomingMessage,
  HttpRouter,
  HttpServer,
  type HttpServerRequest,
  type HttpServerResponse,
  UrlParams
} from "effect/http"
import { ServiceUnavailable } from "../api/Errors.ts"
import type { Setting } from "../config/Setting.ts"
import { Settings } from "../config/Settings.ts"
import { isOutage, isReadOnly } from "../database/Outage.ts"
import { JsonLines } from "../observability/LogLines.ts"
import * as ConnectionLimits from "./ConnectionLimits.ts"
import { OutageOf } from "./ErrorResponses.ts"
import * as JsonBody from "./JsonBody.ts"
import { OrderedServer } from "./OrderedServer.ts"
import * as ParserRejections from "./ParserRejections.ts"
import type { Port } from "./Responses.ts"
import { routerConfig } from "./RoutePaths.ts"

/** Makes Node's server for `port`. It is not listening yet. */
const make = Effect.fnUntraced(function*(port: Port) {
  const server = new OrderedServer({
    maxHeaderSize: 16 * 1024,
    /** Milliseconds for the head of a request, and for the whole request. */
    headersTimeout: 10_000,
    requestTimeout: 30_000,
    connectionsCheckingInterval: 1_000,
    keepAliveTimeout: 1_000 * (yield* Settings.keepAliveSeconds.config),
    // Node's own response would have no Error body.
    requireHostHeader: false
  })
  // The idle timeout of a connection during a request, in milliseconds. Between requests `keepAliveTimeout` holds.
  server.setTimeout(60_000)
  yield* ConnectionLimits.attach(server, port.trustedProxies)
  yield* ParserRejections.attach(server, port)
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
      yield* Effect.updateContext(server.serve(httpEffect), pickForRequests<Scope.Scope>)
      // Node passes an upgrade as any other request if there is no listener (RFC 9110 §7.8).
      node.removeAllListeners("upgrade")
      return server
    })
  ).pipe(
    Layer.provide(Layer.succeed(HttpRouter.RouterConfig, routerConfig)),
    Layer.provide(Layer.succeed(HttpIncomingMessage.MaxBodySize, ByteSize.bytes(JsonBody.maxBytes))),
    Layer.provide(Layer.succeed(OutageOf, outageOf)),
    Layer.provide(Layer.succeed(UrlParams.CurrentRedactedNames, redactedNames))
  )
