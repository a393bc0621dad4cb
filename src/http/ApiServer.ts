import { Effect, Layer } from "effect"
import { HttpRouter, HttpServer } from "effect/http"
import { localUrl, Settings } from "../config/Settings.ts"
import * as ApiRoutes from "./ApiRoutes.ts"
import * as Documents from "./Documents.ts"
import * as Server from "./Server.ts"

const server = Layer.unwrap(
  Effect.map(
    ApiRoutes.makeHooks(Documents.paths),
    (hooks) =>
      Server.layer(HttpRouter.toHttpEffect(Layer.merge(ApiRoutes.layer(hooks), Documents.layer)), hooks, Settings)
  )
)

const logStart = Effect.flatMap(HttpServer.HttpServer, (listening) =>
  Effect.logInfo(
    `Listening on ${HttpServer.formatAddress(listening.address)}, with documentation at ${localUrl(listening)}/docs`
  ))

export const layer = Layer.provideMerge(Layer.effectDiscard(logStart), server)
