/** Listens on a port: turns settings and fixed limits into the options of `node-server/NodeServer.ts`. */
import { Context, Effect, Layer, Scope } from "effect"
import { HttpMiddleware, UrlParams } from "effect/http"
import { OtlpExporter } from "effect/observability"
import { requestLimits } from "../api/Errors.ts"
import type { Setting } from "../config/SettingForms.ts"
import { Settings } from "../config/Settings.ts"
import { maxResponsesClose } from "../config/Shutdown.ts"
import * as HeldServices from "../node-server/HeldServices.ts"
import * as NodeServer from "../node-server/NodeServer.ts"
import { UnreadResponses } from "../node-server/UnreadResponses.ts"
import { AccessLogEnabled, JsonLines } from "../observability/LogReferences.ts"
import * as PageTurns from "./PageTurns.ts"
import { errorOf } from "./ParserErrors.ts"
import { peerNetwork } from "./RequestHead.ts"
import { type PortHooks, reject, spanNameOf } from "./RequestLifecycle.ts"

export interface PortSettings {
  readonly host: Setting<string>
  readonly port: Setting<number>
  readonly reusePort?: Setting<boolean>
}

/** The fixed limits of a connection and its requests (SECURITY.md). Settings add the configurable ones. */
const limits = {
  ...requestLimits,
  headMs: 10_000,
  bodyChunks: 4_096,
  arrivalMs: 30_000,
  requestMs: 60_000,
  readMs: 60_000
}

/**
 * The maximum for the bodies of all unread responses to requests, on both ports together. A byte counts twice, because
 * Effect keeps a body's text and Node its bytes. Responses to requests that never reach the routes do not count.
 */
const maxUnreadBytes = 64 * 1024 * 1024

/** Bounds the responses that clients have not read yet. Both ports share one instance. */
export class Unread extends Context.Service<Unread, UnreadResponses>()("petstore/http/Unread") {
  static readonly layer = Layer.sync(Unread, () => new UnreadResponses(maxUnreadBytes))
}

/**
 * Removes from the server's context what layers hold and what only the start reads, because Effect copies the context
 * for each request. Restores the type of `Scope` with `Context.merge`, not `Context.add`: Effect copies a context at
 * its ninth `add`, so an `add` here would leave each request one service fewer to add without a copy.
 */
const contextOfRequests = (context: Context.Context<Scope.Scope>): Context.Context<Scope.Scope> => {
  const reduced = Context.omit(AccessLogEnabled, JsonLines, OtlpExporter.Flusher)(HeldServices.omit(context))
  return Context.merge(reduced, Context.pick(Scope.Scope)(context))
}

/** In spans, redacts all query parameters but these three, because a client can send a secret under any other name. */
const redactedNames = [/^(?!(?:limit|status|cursor)$)/]

export const layer = <E, R>(
  routes: NodeServer.Routes<E, R>,
  { host, port, reusePort }: PortSettings,
  hooks: PortHooks
) =>
  Layer.unwrap(Effect.gen(function*() {
    const toResponse = reject(hooks)
    return NodeServer.layer(routes, {
      address: {
        host: yield* host.config,
        port: yield* port.config,
        reusePort: reusePort !== undefined && (yield* reusePort.config),
        names: { host: host.name, port: port.name }
      },
      limits: {
        ...limits,
        keepAliveMs: 1_000 * (yield* Settings.keepAliveSeconds.config),
        connections: yield* Settings.maxConnections.config,
        connectionsPerNetwork: yield* Settings.maxConnectionsPerAddress.config
      },
      unread: yield* Unread,
      networkOf: (peer) => peerNetwork(hooks.trustedProxies, peer),
      reject: (fault, head) => toResponse(errorOf(fault), head),
      contextOf: contextOfRequests,
      maxClose: yield* maxResponsesClose
    })
  })).pipe(
    Layer.provide([
      Layer.sync(PageTurns.PageTurns, () => PageTurns.make(setImmediate)),
      Layer.succeed(UrlParams.CurrentRedactedNames, redactedNames),
      Layer.succeed(HttpMiddleware.SpanNameGenerator, spanNameOf(hooks)),
      Layer.succeed(HttpMiddleware.TracerDisabledWhen, hooks.isUntraced ?? (() => false))
    ]),
    HeldServices.provide(Unread.layer)
  )
