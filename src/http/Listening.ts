/** How both ports are listened on: where settings say, and to the same end. */
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { Config, Effect, Layer } from "effect"
import type { Server } from "node:http"
import { gracePeriod } from "./Draining.ts"

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
