import { Effect, Layer } from "effect"
import { HttpServer } from "effect/http"
import { localUrl, Settings } from "../config/Settings.ts"
import * as NodeServer from "../node-server/NodeServer.ts"
import * as ApiRoutes from "./ApiRoutes.ts"
import * as Documents from "./Documents.ts"
import * as RequestLifecycle from "./RequestLifecycle.ts"

const server = Layer.unwrap(Effect.map(ApiRoutes.makeHooks(Documents.paths), (hooks) =>
  NodeServer.layer(
    RequestLifecycle.toHttpEffect(Layer.merge(ApiRoutes.routes, Documents.layer), hooks),
    Settings,
    hooks.trustedProxies,
    RequestLifecycle.reject(hooks)
  )))

const logStart = Effect.flatMap(HttpServer.HttpServer, (listening) =>
  Effect.logInfo(
    `Listening on ${HttpServer.formatAddress(listening.address)}, with documentation at ${localUrl(listening)}/docs`
  ))

export const layer = Layer.provideMerge(Layer.effectDiscard(logStart), server)
