/**
 * A server on Deno that serves the names of the pets for sale, as they arrive.
 *
 * Run it with `PETSTORE_URL=… PETSTORE_API_KEY=psk_… deno run --allow-net --allow-env deno.ts`.
 */
import { Effect, Stream } from "effect"
import { PetstoreClient } from "petstore-client/client"

const port = Number(Deno.env.get("PORT") ?? 8000)

const program = Effect.gen(function*() {
  const petstore = yield* PetstoreClient
  const names = petstore.all({ status: "available" }).pipe(
    Stream.map(({ name }) => `${name}\n`),
    Stream.encodeText
  )
  yield* Effect.acquireRelease(
    Effect.sync(() => Deno.serve({ port }, () => new Response(Stream.toReadableStream(names)))),
    (server) => Effect.promise(() => server.shutdown())
  )
  return yield* Effect.never
})

await Effect.runPromise(Effect.scoped(Effect.provide(program, PetstoreClient.layerConfig())))
