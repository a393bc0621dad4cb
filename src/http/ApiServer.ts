import { Effect, Layer } from "effect"
import { HttpServer } from "effect/http"
import { localUrl, Settings } from "../config/Settings.ts"
import * as NodeServer from "../node-server/NodeServer.ts"
import * as ApiPort from "./ApiPort.ts"
import * as Documents from "./Documents.ts"
import * as PortMiddleware from "./PortMiddleware.ts"

export const layer = Layer.unwrap(Effect.map(ApiPort.makeHooks(Documents.paths), (hooks) =>
  NodeServer.layer(
    PortMiddleware.toHttpEffect(Layer.merge(ApiPort.routes, Documents.layer), hooks),
    Settings,
    hooks.trustedProxies,
    PortMiddleware.reject(hooks),
    { spanName: PortMiddleware.spanNameOf(hooks) }
  )))

/** Logs where the API is. Run it once the other listeners listen too, so that a failed start says nothing of this one. */
export const logStart = Effect.flatMap(HttpServer.HttpServer, (listening) =>
  Effect.logInfo(
    `Listening on ${HttpServer.formatAddress(listening.address)}, with documentation at ${localUrl(listening)}/docs`
  ))
