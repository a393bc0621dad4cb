/** How both ports are listened on: where settings say, and to the same end. */
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { Config, Effect, Layer } from "effect"
import type { Server } from "node:http"
import { wholeNumber } from "../../config/Settings.ts"
import { gracePeriod } from "./GracefulShutdown.ts"

/** The address that two settings name; port 0 is a free one of the system's choice. */
export const address = (names: Address<string, string>, byDefault: Address<string, number>) =>
  Config.all({
    host: Config.String(names.host).pipe(Config.withDefault(byDefault.host)),
    port: wholeNumber(names.port, 0, 65_535).pipe(Config.withDefault(byDefault.port))
  })

interface Address<Host, Port> {
  readonly host: Host
  readonly port: Port
}

/** Listens with `server` on an address. */
export const layer = <E, R>(
  server: Effect.Effect<Server, E, R>,
  at: ReturnType<typeof address>
) =>
  Layer.unwrap(Effect.map(server, (listening) => {
    // What Node would say of an `Expect` that it does not know, the handlers say.
    listening.on("checkExpectation", (request, response) => listening.emit("request", request, response))
    return NodeHttpServer.layerConfig(
      () => listening,
      Config.map(
        Config.all([at, gracePeriod]),
        ([hostAndPort, gracefulShutdownTimeout]) => ({ ...hostAndPort, backlog: 4_096, gracefulShutdownTimeout })
      )
    )
  }))
