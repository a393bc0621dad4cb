import { Context, Effect, Layer, type Scope } from "effect"
import { HttpServer } from "effect/http"
import type { HttpApi, HttpApiGroup } from "effect/http-api"
import * as Brand from "../api/Brand.ts"
import { localUrl, Settings } from "../config/Settings.ts"
import * as ApiRoutes from "./ApiRoutes.ts"
import * as Documents from "./Documents.ts"
import * as PortServer from "./PortServer.ts"
import * as RequestLifecycle from "./RequestLifecycle.ts"

/** Serves `api` and its documents on the API port. `routes` come from `HttpApiBuilder.layer`, and require `Stores`. */
export const layer = <Id extends string, Groups extends HttpApiGroup.Constraint, Stores>(
  api: HttpApi.HttpApi<Id, Groups>,
  routes: Layer.Layer<never, never, Stores | ApiRoutes.RouteServices>
) =>
  Layer.unwrap(Effect.gen(function*() {
    const stores = yield* Effect.context<Stores>()
    // Not `Layer.provide`: for a generic `Stores`, its type cannot show that the result no longer requires the stores.
    const ownRoutes = Layer.effectDiscard(Effect.updateContext(
      Layer.build(routes),
      (context: Context.Context<ApiRoutes.RouteServices | Scope.Scope>) => Context.merge(stores, context)
    ))
    const hooks = yield* ApiRoutes.makeHooks(api, Documents.paths)
    return PortServer.layer(
      RequestLifecycle.toHttpEffect(Layer.merge(ApiRoutes.layer(ownRoutes), Documents.layer(api)), hooks),
      { host: Settings.host, port: Settings.port, reusePort: Settings.reusePort },
      hooks
    )
  }))

/** The URL of a list on this machine, for the `curl` command that the service prints with the first API key. */
export const exampleUrl = Effect.map(
  HttpServer.HttpServer,
  (listening) => `${localUrl(listening)}${Brand.basePaths.api}/${Brand.collection}`
)

/** Logs the URL of the API. Run this once both ports listen, so that no API is announced if a port cannot listen. */
export const logStart = Effect.flatMap(HttpServer.HttpServer, (listening) =>
  Effect.logInfo(
    `Listening on ${HttpServer.formatAddress(listening.address)}, with documentation at ${localUrl(listening)}/docs`
  ))
