import { type Effect, Layer, type Scope } from "effect"
import { HttpRouter, type HttpServerRequest, type HttpServerResponse } from "effect/http"
import * as NodeServer from "../node-server/NodeServer.ts"
import { type PortHooks, reject } from "./PortMiddleware.ts"
import { routerConfig } from "./RoutePaths.ts"

/** Serves `routes`, which must include the port's middleware, on `address`. */
export const layer = <E, R>(
  routes: Effect.Effect<
    Effect.Effect<HttpServerResponse.HttpServerResponse, unknown, Scope.Scope | HttpServerRequest.HttpServerRequest>,
    E,
    R
  >,
  hooks: PortHooks,
  address: NodeServer.Address
) =>
  NodeServer.layer(routes, {
    ...address,
    trustedProxies: hooks.trustedProxies,
    reject: (error, head) => reject(hooks, error, head)
  }).pipe(Layer.provide(Layer.succeed(HttpRouter.RouterConfig, routerConfig)))
