/** How both ports are listened on: where settings say, with the same routing, and to the same end. */
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { Config, Effect, Layer } from "effect"
import type { Server } from "node:http"
import { gracePeriod } from "./Draining.ts"

export const routerConfig = {
  caseSensitive: true,
  ignoreDuplicateSlashes: false,
  ignoreTrailingSlash: false,
  // An id of any length reaches its endpoint, to be answered 400: Node bounds the head of a request.
  maxParamLength: 16_384
}

/** Listens with `server` on an address; port 0 is a free one of the system's choice. */
export const layer = <E, R>(
  server: Effect.Effect<Server, E, R>,
  address: { readonly host: Config.Config<string>; readonly port: Config.Config<number> }
) =>
  Layer.unwrap(Effect.map(server, (listening) => {
    // What Node would say of an `Expect` that it does not know, the handlers say.
    listening.on("checkExpectation", (request, response) => listening.emit("request", request, response))
    return NodeHttpServer.layerConfig(
      () => listening,
      Config.all({ ...address, backlog: Config.succeed(4_096), gracefulShutdownTimeout: gracePeriod })
    )
  }))
