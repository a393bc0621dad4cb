/** The application on the API port. */
import { Effect, Layer } from "effect"
import { HttpRouter, HttpServerResponse } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import { PetstoreApi } from "../api/PetstoreApi.ts"
import { AdmissionControl } from "./AdmissionControl.ts"
import * as Auth from "./Auth.ts"
import * as Body from "./Body.ts"
import * as Documents from "./Documents.ts"
import * as Edge from "./Edge.ts"
import * as Dispatcher from "./fast-path/Dispatcher.ts"
import * as FastPath from "./fast-path/FastPath.ts"
import * as Listening from "./Listening.ts"
import * as LongWay from "./LongWay.ts"
import * as NodeServer from "./NodeServer.ts"
import { methodsOf, routerConfig } from "./Paths.ts"
import * as Pets from "./Pets.ts"
import * as RateLimit from "./RateLimit.ts"
import * as Validation from "./Validation.ts"

/** The handlers and the middleware of the contract. */
const handlers = Pets.layer.pipe(
  Layer.provideMerge([Auth.layer, RateLimit.layer, Validation.layer, Pets.sunset])
)

const compileFastPath = FastPath.compile(PetstoreApi, { maxBodyBytes: Body.maxBytes })

/** Browsers ask for it beside every page. */
const noIcon = HttpRouter.add("GET", "/favicon.ico", HttpServerResponse.empty({ status: 204 }))

/** All routes, with what every answer has around them. */
export const routes = Layer.mergeAll(
  HttpApiBuilder.layer(PetstoreApi),
  Documents.layer,
  noIcon,
  Layer.unwrap(Effect.map(compileFastPath, LongWay.layer))
).pipe(Layer.provide(handlers))

const makeServer = Effect.gen(function*() {
  const dispatch = yield* Dispatcher.make(yield* compileFastPath)
  const { maxStallMs } = yield* AdmissionControl
  return yield* NodeServer.make({
    handle: dispatch,
    isAllowedHost: () => true,
    maxStallMs,
    allow: methodsOf(PetstoreApi, [])("*"),
    reject: yield* Edge.rejecting
  })
})

export const address = Listening.address({ host: "HOST", port: "PORT" }, { host: "0.0.0.0", port: 8080 })

/** Serves the API on `HOST` and `PORT`. */
export const layer = HttpRouter.serve(routes, { disableLogger: true, routerConfig }).pipe(
  Layer.provideMerge(Layer.provide(Listening.layer(makeServer, address), handlers)),
  Layer.provideMerge(AdmissionControl.layer)
)
