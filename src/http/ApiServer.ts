/** The server of the API port: the routes of the contract and its documents on Node's server, with the fast path. */
import { type Context, Effect, Layer } from "effect"
import { HttpMiddleware, HttpRouter } from "effect/http"
import type { HttpApi, HttpApiGroup } from "effect/http-api"
import { IncomingMessage } from "node:http"
import { PetstoreApi } from "../api/PetstoreApi.ts"
import * as Settings from "../config/Settings.ts"
import { AdmissionControl } from "./admission/AdmissionControl.ts"
import * as ApiRoutes from "./ApiRoutes.ts"
import * as Dispatcher from "./fast-path/Dispatcher.ts"
import * as FastPath from "./fast-path/FastPath.ts"
import * as Documents from "./handlers/Documents.ts"
import * as JsonBody from "./middleware/JsonBody.ts"
import * as EarlyRejection from "./node/EarlyRejection.ts"
import * as Listener from "./node/Listener.ts"
import * as NodeServer from "./node/NodeServer.ts"
import { outageOf } from "./response/DatabaseErrors.ts"
import type { FastCall } from "./response/ResponseMiddleware.ts"
import { methodsOf, routerConfig } from "./response/RoutePaths.ts"
import * as StartMessages from "./StartMessages.ts"

/** Returns a function that finds the call of the fast path for the source of a request. */
const fastCallOf = (fastPath: FastPath.FastPath) => (source: object): FastCall | undefined => {
  const call = source instanceof IncomingMessage ? fastPath(source) : undefined
  return call && {
    route: call.endpoint.path,
    serve: Effect.updateContext(
      Effect.interruptible(call.serve),
      (services: Context.Context<never>) => call.addTo(services)
    )
  }
}

/** The routes of `api`, and its documents. */
const routesOf = <Id extends string, Groups extends HttpApiGroup.Constraint>(
  api: HttpApi.HttpApi<Id, Groups>,
  fastPath: FastPath.FastPath
) => Layer.merge(ApiRoutes.make(api, { fastCallOf: fastCallOf(fastPath), outageOf }), Documents.layer)

const makeServer = Effect.fnUntraced(function*<Id extends string, Groups extends HttpApiGroup.Constraint>(
  api: HttpApi.HttpApi<Id, Groups>,
  fastPath: FastPath.FastPath
) {
  const { maxStallMs } = yield* AdmissionControl
  return yield* NodeServer.make({
    handle: yield* Dispatcher.make(fastPath),
    isAllowedHost: () => true,
    maxStallMs,
    allow: methodsOf(api, [])("*"),
    reject: yield* EarlyRejection.make
  })
})

/** Serves `api` on `HOST` and `PORT`. `fastPath` serves the requests that it can, and HttpApi the others. */
export const serve = <Id extends string, Groups extends HttpApiGroup.Constraint, R>(
  api: HttpApi.HttpApi<Id, Groups>,
  fastPath: Effect.Effect<FastPath.FastPath, never, R>
) =>
  Layer.unwrap(
    Effect.map(fastPath, (compiled) =>
      HttpRouter.serve(routesOf(api, compiled), {
        disableLogger: true,
        disableListenLog: true,
        routerConfig
      }).pipe(
        Layer.tap(() => StartMessages.logApi),
        // Effect's server makes no span of its own, because the request context already has one.
        Layer.provide(Layer.succeed(HttpMiddleware.TracerDisabledWhen, () => true)),
        Layer.provideMerge(Listener.layer(makeServer(api, compiled), Settings))
      ))
  ).pipe(Layer.provideMerge(AdmissionControl.layer))

/** Serves the contract on `HOST` and `PORT`. */
export const layer = Layer.provide(
  serve(PetstoreApi, FastPath.compile(PetstoreApi, { maxBodyBytes: JsonBody.maxBodyBytes })),
  ApiRoutes.handlers
)
