/** The application on the API port. */
import { Effect, Layer } from "effect"
import { HttpRouter, HttpServerResponse } from "effect/http"
import { HttpApiBuilder, HttpApiSwagger, OpenApi } from "effect/http-api"
import { IncomingMessage, Server } from "node:http"
import { openApiDocument } from "../api/OpenApiDocument.ts"
import { PetstoreApi } from "../api/PetstoreApi.ts"
import * as Auth from "./Auth.ts"
import * as Listening from "./Listening.ts"
import * as LongWay from "./LongWay.ts"
import { routerConfig } from "./Paths.ts"
import * as Pets from "./Pets.ts"
import { PipelinedResponse } from "./Pipeline.ts"
import * as RateLimit from "./RateLimit.ts"
import * as ShortWay from "./ShortWay.ts"
import * as Unparsed from "./Unparsed.ts"
import * as Validation from "./Validation.ts"

const api = HttpApiBuilder.layer(PetstoreApi).pipe(
  Layer.provide(Pets.layer),
  Layer.provide([Auth.layer, RateLimit.layer, Validation.layer])
)

const openApi = HttpRouter.add("GET", "/openapi.json", HttpServerResponse.jsonUnsafe(openApiDocument))

/** The explorer page, with all that it needs in it. */
const docs = HttpApiSwagger.layer(PetstoreApi.annotate(OpenApi.Transform, () => openApiDocument), { path: "/docs" })

/** Browsers ask for it beside every page. */
const noIcon = HttpRouter.add("GET", "/favicon.ico", HttpServerResponse.empty({ status: 204 }))

/** All routes, with what every answer has around them. */
export const routes = Layer.mergeAll(api, openApi, docs, noIcon, LongWay.layer)

/** How much and how long the API waits for anybody: milliseconds and bytes. */
const bounds = {
  maxHeaderSize: 16 * 1024,
  /** For the head of a request, and for all of it. */
  headersTimeout: 10_000,
  requestTimeout: 30_000,
  connectionsCheckingInterval: 1_000,
  /** Longer than balancers keep an idle connection, so that none is closed as it is used again. */
  keepAliveTimeout: 65_000
}

const makeServer = Effect.gen(function*() {
  const shortWay = yield* ShortWay.make
  const server = new class extends Server<typeof Unparsed.Incoming, typeof PipelinedResponse> {
    /** Requests come to Effect's handlers by the long way, if they have to. */
    override emit(event: string | symbol, ...given: ReadonlyArray<unknown>): boolean {
      const [request, response] = given
      const longWay = (): boolean => {
        const isTaken: boolean = Reflect.apply(super.emit, this, [event, ...given])
        // At the end, when Effect listens no more, nobody would ever answer.
        if (!isTaken && request instanceof IncomingMessage) request.socket.destroy()
        return isTaken
      }
      if (
        (event !== "request" && event !== "checkContinue") ||
        !(request instanceof IncomingMessage) || !(response instanceof PipelinedResponse)
      ) return longWay()
      // One that waits to be told to go on is not plain, and goes the long way.
      response.takePlace(() => shortWay(request, response, longWay))
      return true
    }

    /** An upgrade is a request like any other (RFC 9110 §7.8), though Effect listens for it. */
    override listenerCount(event: string | symbol, listener?: (...given: Array<unknown>) => void): number {
      return event === "upgrade" ? 0 : super.listenerCount(event, listener)
    }
  }({
    ...bounds,
    IncomingMessage: Unparsed.Incoming,
    ServerResponse: PipelinedResponse,
    // What Node would answer by itself, the long way answers.
    requireHostHeader: false
  })
  server.maxConnections = 10_000
  // Who says that nothing more comes may still wait for the answer.
  Object.assign(server, { httpAllowHalfOpen: true })
  // Nobody who stops reading, or is gone without a word, holds a connection for longer.
  server.setTimeout(60_000)
  yield* Unparsed.attach(server)
  return server
})

export const address = Listening.address({ host: "HOST", port: "PORT" }, { host: "0.0.0.0", port: 8080 })

/** Serves the API on `HOST` and `PORT`. */
export const layer = HttpRouter.serve(routes, { disableLogger: true, routerConfig }).pipe(
  Layer.provideMerge(Listening.layer(makeServer, address))
)
