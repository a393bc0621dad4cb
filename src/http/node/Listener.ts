/** Listens with a server on the address that two settings name. Both ports use it. */
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { Data, Effect, Layer, Predicate } from "effect"
import type { Server } from "node:http"
import type { Setting } from "../../config/Settings.ts"
import { gracePeriod } from "./Drain.ts"

/** The settings of an address. */
interface Address {
  readonly host: Setting<string>
  readonly port: Setting<number>
  /** Whether other processes may listen on the same port. */
  readonly reusePort?: Setting<boolean>
}

/** The server cannot listen. The message names the setting that an operator can change. */
export class CannotListen extends Data.TaggedError("CannotListen")<{
  readonly message: string
  /** The system's error, unless the message says the same. */
  readonly cause?: unknown
}> {}

/** Describes why a server cannot listen, by the code of the system's error. */
const describe = ({ host, port }: Address, address: string, portNumber: number, cause: unknown): CannotListen => {
  const choose = `set ${port.name} to another one`
  switch (Predicate.hasProperty(cause, "code") ? cause.code : undefined) {
    case "EADDRINUSE":
      return new CannotListen({
        message: `${port.name}: port ${portNumber} of ${address} is in use. End the program that uses it, or ${choose}`
      })
    case "EACCES":
      return new CannotListen({
        message: `${port.name}: this user may not listen on port ${portNumber}. Start as another user, or ${choose}`
      })
    case "EADDRNOTAVAIL":
    case "ENOTFOUND":
      return new CannotListen({
        message: `${host.name}: this machine has no address "${address}". Set ${host.name} to one that it has`
      })
    default:
      return new CannotListen({
        message: `${host.name} and ${port.name}: the service cannot listen on port ${portNumber} of ${address}`,
        cause
      })
  }
}

/** Listens with `server` on the address that two settings name. With port 0 the system chooses a free port. */
export const layer = <E, R>(server: Effect.Effect<Server, E, R>, address: Address) =>
  Layer.unwrap(Effect.gen(function*() {
    const listening = yield* server
    const host = yield* address.host.config
    const port = yield* address.port.config
    const reusePort = address.reusePort !== undefined && (yield* address.reusePort.config)
    const gracefulShutdownTimeout = yield* gracePeriod
    // Handlers respond to an unknown `Expect`, instead of Node.
    listening.on("checkExpectation", (request, response) => listening.emit("request", request, response))
    return NodeHttpServer.layer(() => listening, { host, port, reusePort, gracefulShutdownTimeout, backlog: 4_096 })
      .pipe(
        Layer.catchTag("ServeError", ({ cause }) => Layer.effectContext(describe(address, host, port, cause)))
      )
  }))
