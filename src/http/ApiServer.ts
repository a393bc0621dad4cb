/** The application on the API port. */
import { Effect, Layer } from "effect"
import { HttpRouter, HttpServerResponse } from "effect/http"
import { type HttpApi, HttpApiBuilder, type HttpApiGroup } from "effect/http-api"
import { PetstoreApi } from "../api/PetstoreApi.ts"
import * as Dispatcher from "./fast-path/Dispatcher.ts"
import * as FastPath from "./fast-path/FastPath.ts"
import * as Documents from "./handlers/Documents.ts"
import * as Pets from "./handlers/PetHandlers.ts"
import * as Auth from "./middleware/Authentication.ts"
import * as Body from "./middleware/JsonBody.ts"
import * as RateLimit from "./middleware/RateLimiting.ts"
import * as Validation from "./middleware/RequestValidation.ts"
import { AdmissionControl } from "./node/AdmissionControl.ts"
import * as Listening from "./node/Listener.ts"
import * as NodeServer from "./node/NodeServer.ts"
import * as Edge from "./response/CommonHeaders.ts"
import * as LongWay from "./response/ResponseMiddleware.ts"
import { methodsOf, routerConfig } from "./response/RoutePaths.ts"

/** The middleware of the contract. */
export const middleware = Layer.mergeAll(Auth.layer, RateLimit.layer, Validation.layer)

const handlers = Pets.layer.pipe(Layer.provideMerge([middleware, Pets.sunset]))

/** Browsers ask for it beside every page. */
const noIcon = HttpRouter.add("GET", "/favicon.ico", HttpServerResponse.empty({ status: 204 }))

/** The routes of `api` and of its documents, with what every response has around them. */
const routesOf = <Id extends string, Groups extends HttpApiGroup.Constraint>(
  api: HttpApi.HttpApi<Id, Groups>,
  fastPath: FastPath.FastPath
) => Layer.mergeAll(HttpApiBuilder.layer(api), Documents.layer, noIcon, LongWay.layer(api, fastPath))

/** All routes of the service, for requests that come by no socket. */
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
    reject: yield* Edge.rejecting
  })
})

export const address = Listening.address({ host: "HOST", port: "PORT" }, { host: "0.0.0.0", port: 8080 })

/** Serves `api` on `HOST` and `PORT`: by `fastPath` what it takes, and by HttpApi the rest. */
export const serve = <Id extends string, Groups extends HttpApiGroup.Constraint, R>(
  api: HttpApi.HttpApi<Id, Groups>,
  fastPath: Effect.Effect<FastPath.FastPath, never, R>
) =>
  Layer.unwrap(
    Effect.map(fastPath, (compiled) =>
      HttpRouter.serve(routesOf(api, compiled), { disableLogger: true, routerConfig }).pipe(
        Layer.provideMerge(Listening.layer(makeServer(api, compiled), address))
      ))
  ).pipe(Layer.provideMerge(AdmissionControl.layer))

/** Serves the contract on `HOST` and `PORT`. */
export const layer = Layer.provide(
  serve(PetstoreApi, FastPath.compile(PetstoreApi, { maxBodyBytes: Body.maxBytes })),
  handlers
)
