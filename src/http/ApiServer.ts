import { Effect, Layer } from "effect"
import { HttpServer } from "effect/http"
import { localUrl, Settings } from "../config/Settings.ts"
import * as ApiPort from "./ApiPort.ts"
import * as Documents from "./Documents.ts"
import * as PortMiddleware from "./PortMiddleware.ts"
import * as PortServer from "./PortServer.ts"

const server = Layer.unwrap(Effect.map(ApiPort.makeHooks(Documents.paths), (hooks) =>
  PortServer.layer(
    PortMiddleware.toHttpEffect(Layer.merge(ApiPort.routes, Documents.layer), hooks),
    Settings,
    hooks
  )))

const logStart = Effect.flatMap(HttpServer.HttpServer, (listening) =>
  Effect.logInfo(
    `Listening on ${HttpServer.formatAddress(listening.address)}, with documentation at ${localUrl(listening)}/docs`
  ))

export const layer = Layer.provideMerge(Layer.effectDiscard(logStart), server)
