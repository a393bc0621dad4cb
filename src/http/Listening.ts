/** How both ports are listened on: where settings say, with the same routing, and to the same end. */
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { Config, Effect, Layer, Schema } from "effect"
import type { Server } from "node:http"
import { gracePeriod } from "./Draining.ts"

export const routerConfig = {
  caseSensitive: true,
  ignoreDuplicateSlashes: false,
  ignoreTrailingSlash: false,
  // An id of any length reaches its endpoint, to be answered 400: Node bounds the head of a request.
  maxParamLength: 16_384
}

/** 0 is a free port of the system's choice. */
const Port = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 65_535 }))

/** Listens with `server` on the address and the port that two settings name. */
export const layer = <E, R>(
  server: Effect.Effect<Server, E, R>,
  settings: {
    readonly host: { readonly name: string; readonly byDefault: string }
    readonly port: { readonly name: string; readonly byDefault: number }
  }
) =>
  Layer.unwrap(Effect.gen(function*() {
    const host = yield* Config.String(settings.host.name).pipe(Config.withDefault(settings.host.byDefault))
    const port = yield* Config.schema(Port, settings.port.name).pipe(Config.withDefault(settings.port.byDefault))
    const gracefulShutdownTimeout = yield* gracePeriod
    const listening = yield* server
    // What Node would say of an `Expect` that it does not know, the handlers say.
    listening.on("checkExpectation", (request, response) => listening.emit("request", request, response))
    return NodeHttpServer.layer(() => listening, { host, port, backlog: 4_096, gracefulShutdownTimeout })
  }))
