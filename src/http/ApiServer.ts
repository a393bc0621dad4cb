import { Effect, Layer } from "effect"
import { HttpServer } from "effect/http"
import * as Brand from "../api/Brand.ts"
import { localUrl, Settings } from "../config/Settings.ts"
import * as ApiRoutes from "./ApiRoutes.ts"
import * as Documents from "./Documents.ts"
import * as PortServer from "./PortServer.ts"
import * as RequestLifecycle from "./RequestLifecycle.ts"

export const layer = Layer.unwrap(Effect.map(ApiRoutes.makeHooks(Documents.paths), (hooks) =>
  PortServer.layer(
    RequestLifecycle.toHttpEffect(Layer.merge(ApiRoutes.routes, Documents.layer), hooks),
    Settings,
    hooks
  )))

/** The URL of an operation, on this machine. */
export const exampleUrl = Effect.map(
  HttpServer.HttpServer,
  (listening) => `${localUrl(listening)}${Brand.basePaths.api}/${Brand.collection}`
)

/** Logs where the API is. Run it once the other port listens too, so that a failed start does not announce this one. */
export const logStart = Effect.flatMap(HttpServer.HttpServer, (listening) =>
  Effect.logInfo(
    `Listening on ${HttpServer.formatAddress(listening.address)}, with documentation at ${localUrl(listening)}/docs`
  ))
