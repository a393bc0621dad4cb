/** The application on the API port. */
import { NodeHttpServer } from "@effect/platform-node"
import { Config, Effect, Layer, Schema } from "effect"
import { HttpRouter, HttpServerResponse } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import { createServer } from "node:http"
import { openApiDocument } from "../api/OpenApiDocument.ts"
import { PetstoreApi } from "../api/PetstoreApi.ts"
import * as Auth from "./Auth.ts"
import * as Edge from "./Edge.ts"
import * as Pets from "./Pets.ts"
import * as RateLimit from "./RateLimit.ts"
import * as Validation from "./Validation.ts"

const api = HttpApiBuilder.layer(PetstoreApi).pipe(
  Layer.provide(Pets.layer),
  Layer.provide([Auth.layer, RateLimit.layer, Validation.layer])
)

const openApi = HttpRouter.add("GET", "/openapi.json", HttpServerResponse.jsonUnsafe(openApiDocument))

/** All routes, with the edge around them. */
const routes = Layer.mergeAll(api, openApi, Edge.layer)

export const routerConfig = {
  caseSensitive: true,
  ignoreDuplicateSlashes: false,
  ignoreTrailingSlash: false,
  // An id of any length reaches its endpoint, to be answered 400: Node bounds the head of a request.
  maxParamLength: 16_384
}

/** A port to listen on; 0 is a free one of the system's choice. */
export const portConfig = (name: string, byDefault: number) =>
  Config.schema(Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 65_535 })), name).pipe(
    Config.withDefault(byDefault)
  )

/** Serves the API on `HOST` and `PORT`. */
export const layer = HttpRouter.serve(routes, { disableLogger: true, routerConfig }).pipe(
  Layer.provideMerge(
    Layer.unwrap(Effect.gen(function*() {
      const host = yield* Config.String("HOST").pipe(Config.withDefault("0.0.0.0"))
      const port = yield* portConfig("PORT", 8080)
      return NodeHttpServer.layer(createServer, { host, port, gracefulShutdownTimeout: "10 seconds" })
    }))
  )
)
