/** The routes of the API port, for any server: the contract with its handlers and middleware, without Node. */
import { Layer } from "effect"
import { HttpRouter, HttpServerResponse } from "effect/http"
import { type HttpApi, HttpApiBuilder, type HttpApiGroup } from "effect/http-api"
import { PetstoreApi } from "../api/PetstoreApi.ts"
import * as PetHandlers from "./handlers/PetHandlers.ts"
import * as Authentication from "./middleware/Authentication.ts"
import * as RateLimiting from "./middleware/RateLimiting.ts"
import * as RequestValidation from "./middleware/RequestValidation.ts"
import * as ResponseMiddleware from "./response/ResponseMiddleware.ts"

/** The middleware that the contract declares for its operations. */
export const middleware = Layer.mergeAll(Authentication.layer, RateLimiting.layer, RequestValidation.layer)

/** The handlers of the contract, and their middleware. */
export const handlers = PetHandlers.layer.pipe(Layer.provideMerge([middleware, PetHandlers.sunset]))

/** The icon of the site, which browsers request with every page. There is none. */
const noIcon = HttpRouter.add("GET", "/favicon.ico", HttpServerResponse.empty({ status: 204 }))

/** The routes of `api`, with the response middleware around them. */
export const make = <Id extends string, Groups extends HttpApiGroup.Constraint>(
  api: HttpApi.HttpApi<Id, Groups>,
  environment: ResponseMiddleware.Environment
) => Layer.mergeAll(HttpApiBuilder.layer(api), noIcon, ResponseMiddleware.layer(api, environment))

/** The routes of the service in memory, for requests that arrive through no socket (`testing.ts`). */
export const layerMemory = Layer.provide(
  make(PetstoreApi, { fastCallOf: () => undefined, outageOf: () => undefined }),
  handlers
)
