/**
 * Effect copies the context of a server, and that of its handlers, for every request. Many services in it are used only
 * by layers, which got them when they were built and hold them, so requests need no copies. With the whole context, a
 * request would allocate 15 to 29 % more bytes (docs/performance.md).
 *
 * `provide` marks such services as held. `omit` removes them from a server's context, together with Effect's memo map
 * of layers and the set of the held keys. Everything else reaches requests, for example a `Context.Reference` that a
 * user of the layers sets, unless the option `contextOf` of `NodeServer.ts` removes more (in this service:
 * `contextOfRequests` of `http/PortServer.ts`). Requests also have the services of their handlers' context: for
 * collections, `layer` of `http/CollectionHandlers.ts` lists these.
 */
import { Context, Effect, Layer } from "effect"

/** The keys of the services that {@link provide} has provided. */
const HeldServices = Context.Reference<ReadonlySet<string>>("node-server/HeldServices", {
  defaultValue: () => new Set()
})

/**
 * Provides services as `Layer.provide` does. Requests get no copies of these services, nor of a Reference among them.
 * Use it around a server, for services that layers get when they are built. Use `Layer.provide` for a Reference that
 * requests read themselves.
 */
export const provide = <ROut, E2, RIn>(services: Layer.Layer<ROut, E2, RIn>) => {
  const held = Layer.flatMap(services, (built) =>
    Layer.effectContext(
      Effect.map(HeldServices, (outer) =>
        Context.add(built, HeldServices, new Set([...outer, ...built.mapUnsafe.keys()])))
    ))
  return <ROut2, E, R>(layer: Layer.Layer<ROut2, E, R>) => Layer.provide(layer, held)
}

/**
 * Returns `context` without the services that {@link provide} has provided, and without what Effect builds layers with.
 */
export const omit = (context: Context.Context<never>): Context.Context<never> => {
  const held = new Set([...Context.get(context, HeldServices), HeldServices.key, Layer.CurrentMemoMap.key])
  return Context.makeUnsafe(new Map(context.mapUnsafe.entries().filter(([key]) => !held.has(key))))
}
