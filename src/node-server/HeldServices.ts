/**
 * Effect copies the context of a server, and that of its handlers, for every request. The layers hold the services that
 * they were built with, so requests need no copies of those. With the whole context, a request would allocate 15 to
 * 29 % more bytes (docs/performance.md). Everything else in the context reaches requests, for example a
 * `Context.Reference` that a user of the layers sets. The exceptions are Effect's memo map of layers, and the set of
 * the held keys.
 *
 * A request has the services of its server's context, as `contextOf` of `NodeServer.ts` reduces it, and those of its
 * handlers' context. For collections, `layer` of `http/CollectionHandlers.ts` lists these.
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

/** Returns `context` without the services that {@link provide} has provided. */
export const omit = (context: Context.Context<never>): Context.Context<never> => {
  const held = new Set([...Context.get(context, HeldServices), HeldServices.key, Layer.CurrentMemoMap.key])
  return Context.makeUnsafe(new Map(context.mapUnsafe.entries().filter(([key]) => !held.has(key))))
}
