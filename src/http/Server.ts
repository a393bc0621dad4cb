/** The application on the API port. */
import { Effect, Layer } from "effect"
import { HttpRouter, HttpServerResponse } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import { PetstoreApi } from "../api/PetstoreApi.ts"
import { AdmissionControl } from "./AdmissionControl.ts"
import * as Auth from "./Auth.ts"
import * as Documents from "./Documents.ts"
import * as Edge from "./Edge.ts"
import * as Listening from "./Listening.ts"
import * as LongWay from "./LongWay.ts"
import * as NodeServer from "./NodeServer.ts"
import { methodsOf, routerConfig } from "./Paths.ts"
import * as Pets from "./Pets.ts"
import * as RateLimit from "./RateLimit.ts"
import * as ShortWay from "./ShortWay.ts"
import * as Validation from "./Validation.ts"

const api = HttpApiBuilder.layer(PetstoreApi).pipe(
  Layer.provide(Pets.layer),
  Layer.provide([Auth.layer, RateLimit.layer, Validation.layer])
)

/** Browsers ask for it beside every page. */
const noIcon = HttpRouter.add("GET", "/favicon.ico", HttpServerResponse.empty({ status: 204 }))

/** All routes, with what every answer has around them. */
export const routes = Layer.mergeAll(api, Documents.layer, noIcon, LongWay.layer)

const makeServer = Effect.gen(function*() {
  const shortWay = yield* ShortWay.make
  const { maxStallMs } = yield* AdmissionControl
  return yield* NodeServer.make({
    // A request that waits for 100 Continue is not plain: the short way leaves it to `next`.
    handle: shortWay,
    isAllowedHost: () => true,
    maxStallMs,
    allow: methodsOf(PetstoreApi, [])("*"),
    reject: yield* Edge.rejecting
  })
})

export const address = Listening.address({ host: "HOST", port: "PORT" }, { host: "0.0.0.0", port: 8080 })

/** Serves the API on `HOST` and `PORT`. */
export const layer = HttpRouter.serve(routes, { disableLogger: true, routerConfig }).pipe(
  Layer.provideMerge(Listening.layer(makeServer, address)),
  Layer.provideMerge(AdmissionControl.layer)
)
