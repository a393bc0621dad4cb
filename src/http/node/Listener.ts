/** Listens with a server on the address that two settings name. Both ports use it. */
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { Config, Effect, Layer } from "effect"
import type { Server } from "node:http"
import { wholeNumber } from "../../config/Settings.ts"
import { gracePeriod } from "./GracefulShutdown.ts"

/** Reads an address from two settings. With port 0 the system chooses a free port. */
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
    // Handlers respond to an unknown `Expect`, instead of Node.
    listening.on("checkExpectation", (request, response) => listening.emit("request", request, response))
    return NodeHttpServer.layerConfig(
      () => listening,
      Config.map(
        Config.all([at, gracePeriod]),
        ([hostAndPort, gracefulShutdownTimeout]) => ({ ...hostAndPort, backlog: 4_096, gracefulShutdownTimeout })
      )
    )
  }))
