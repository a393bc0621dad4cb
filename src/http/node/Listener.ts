/** Listens with a server on the address that two settings name. Both ports use it. */
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { Config, Effect, Layer } from "effect"
import type { Server } from "node:http"
import type { Setting } from "../../config/Settings.ts"
import { gracePeriod } from "./Drain.ts"

/** Listens with `server` on the address that two settings name. With port 0 the system chooses a free port. */
export const layer = <E, R>(
  server: Effect.Effect<Server, E, R>,
  address: { readonly host: Setting<string>; readonly port: Setting<number> }
) =>
  Layer.unwrap(Effect.map(server, (listening) => {
    // Handlers respond to an unknown `Expect`, instead of Node.
    listening.on("checkExpectation", (request, response) => listening.emit("request", request, response))
    return NodeHttpServer.layerConfig(
      () => listening,
      Config.map(
        Config.all({
          host: address.host.config,
          port: address.port.config,
          gracefulShutdownTimeout: gracePeriod
        }),
        (options) => ({ ...options, backlog: 4_096 })
      )
    )
  }))
