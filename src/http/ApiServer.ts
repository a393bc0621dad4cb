/** The server of the API port: the routes of the contract, its middleware and its documents. */
import { Effect, Layer } from "effect"
import { HttpMiddleware, HttpRouter, HttpServerResponse } from "effect/http"
import { type HttpApi, HttpApiBuilder, type HttpApiGroup } from "effect/http-api"
import { PetstoreApi } from "../api/PetstoreApi.ts"
import * as Settings from "../config/Settings.ts"
import * as Dispatcher from "./fast-path/Dispatcher.ts"
import * as FastPath from "./fast-path/FastPath.ts"
import * as Documents from "./handlers/Documents.ts"
import * as PetHandlers from "./handlers/PetHandlers.ts"
import * as Authentication from "./middleware/Authentication.ts"
import * as JsonBody from "./middleware/JsonBody.ts"
import * as RateLimiting from "./middleware/RateLimiting.ts"
import * as RequestValidation from "./middleware/RequestValidation.ts"
import { AdmissionControl } from "./node/AdmissionControl.ts"
import * as Listener from "./node/Listener.ts"
import * as NodeServer from "./node/NodeServer.ts"
import * as CommonHeaders from "./response/CommonHeaders.ts"
import * as ResponseMiddleware from "./response/ResponseMiddleware.ts"
import { methodsOf, routerConfig } from "./response/RoutePaths.ts"

/** The middleware that the contract declares for its operations. */
export const middleware = Layer.mergeAll(Authentication.layer, RateLimiting.layer, RequestValidation.layer)

const handlers = PetHandlers.layer.pipe(Layer.provideMerge([middleware, PetHandlers.sunset]))

/** The icon of the site, which browsers request with every page. There is none. */
const noIcon = HttpRouter.add("GET", "/favicon.ico", HttpServerResponse.empty({ status: 204 }))

/** The routes of `api` and of its documents, with the response middleware around them. */
const routesOf = <Id extends string, Groups extends HttpApiGroup.Constraint>(
  api: HttpApi.HttpApi<Id, Groups>,
  fastPath: FastPath.FastPath
) => Layer.mergeAll(HttpApiBuilder.layer(api), Documents.layer, noIcon, ResponseMiddleware.layer(api, fastPath))

/** The routes of the service, for requests that arrive through no socket (`testing.ts`). */
export const routes = Layer.provide(routesOf(PetstoreApi, () => undefined), handlers)

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
    reject: yield* CommonHeaders.makeReject
  })
})

/** Serves `api` on `HOST` and `PORT`. `fastPath` serves the requests that it can, and HttpApi the others. */
export const serve = <Id extends string, Groups extends HttpApiGroup.Constraint, R>(
  api: HttpApi.HttpApi<Id, Groups>,
  fastPath: Effect.Effect<FastPath.FastPath, never, R>
) =>
  Layer.unwrap(
    Effect.map(fastPath, (compiled) =>
      HttpRouter.serve(routesOf(api, compiled), { disableLogger: true, routerConfig }).pipe(
        // Effect's server makes no span of its own, because the request context already has one.
        Layer.provide(Layer.succeed(HttpMiddleware.TracerDisabledWhen, () =>
          true)),
        Layer.provideMerge(Listener.layer(makeServer(api, compiled), Settings))
      ))
  ).pipe(Layer.provideMerge(AdmissionControl.layer))

/** Serves the contract on `HOST` and `PORT`. */
export const layer = Layer.provide(
  serve(PetstoreApi, FastPath.compile(PetstoreApi, { maxBodyBytes: JsonBody.maxBodyBytes })),
  handlers
)
