import { Effect, Layer } from "effect"
import { HttpServer } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import { AdminApi } from "../api/AdminApi.ts"
import { fixedHeaders } from "../api/ResponseHeaders.ts"
import * as ConcurrencyLimit from "../http/ConcurrencyLimit.ts"
import { type PortHooks, withHeaders } from "../http/PortMiddleware.ts"
import * as RequestBody from "../http/RequestBody.ts"
import { makeRoutesAt } from "../http/RoutePaths.ts"
import * as Validation from "../http/Validation.ts"
import * as AdminHandlers from "./AdminHandlers.ts"

/** The routes under `/admin`. */
export const layer = HttpApiBuilder.layer(AdminApi).pipe(
  Layer.provide(AdminHandlers.layer),
  Layer.provide([RequestBody.layer, ConcurrencyLimit.layer, Validation.layer]),
  Layer.provide(HttpServer.layerServices)
)

/** `pages` are the paths of documents that the port serves too. */
export const makeHooks = (pages: ReadonlyArray<string>): PortHooks => ({
  routesAt: makeRoutesAt(AdminApi, pages),
  trustedProxies: [],
  finish: (_, { requestId }, response) =>
    Effect.succeed(withHeaders(response, { ...fixedHeaders, ...response.headers, "x-request-id": requestId })),
  abort: () => Effect.void
})
