/**
 * Shows another service that serves pets of the Petstore onward, as JSON and over Effect RPC, and stores them.
 *
 * Run it with `PETSTORE_URL=http://localhost:8080 PETSTORE_API_KEY=psk_… node onward.ts`.
 */
import { Console, Effect, Layer } from "effect"
import { FetchHttpClient, HttpRouter, HttpServer } from "effect/http"
import { HttpApi, HttpApiBuilder, HttpApiEndpoint, HttpApiGroup } from "effect/http-api"
import { KeyValueStore } from "effect/persistence"
import { Rpc, RpcClient, RpcGroup, RpcSerialization, RpcServer } from "effect/rpc"
import { exactJson, Pet, Pets } from "petstore-client/api"
import { PetstoreClient } from "petstore-client/client"

// In the body of another API, an int64 is a string of digits: `{"id":"1","name":"Rex","categoryId":"1"}`. The body of
// `exactJson` has numbers, as the Petstore itself: its readers need a JSON parser that keeps 64 bits.
class ShelterApi extends HttpApi.make("shelter").add(
  HttpApiGroup.make("shelter", { topLevel: true }).add(
    HttpApiEndpoint.get("available", "/available", { success: Pets }),
    HttpApiEndpoint.get("exact", "/exact", { success: exactJson(Pets) })
  )
) {}

class ShelterRpcs extends RpcGroup.make(Rpc.make("Available", { success: Pets })) {}

/** Reads pets with the client that is there when the service starts. */
const makeAvailable = Effect.map(
  PetstoreClient,
  (petstore) => Effect.orDie(Effect.map(petstore.list({ limit: 5 }), ({ pets }) => pets))
)

const ShelterHandlers = HttpApiBuilder.group(
  ShelterApi,
  "shelter",
  Effect.fn(function*(handlers) {
    const available = yield* makeAvailable
    return handlers.handle("available", () => available).handle("exact", () => available)
  })
)

const ShelterRpcHandlers = ShelterRpcs.toLayer(
  Effect.map(makeAvailable, (available) => ({ Available: () => available }))
)

const Routes = Layer.mergeAll(
  HttpApiBuilder.layer(ShelterApi).pipe(Layer.provide(ShelterHandlers)),
  RpcServer.layerHttp({ group: ShelterRpcs, path: "/rpc", protocol: "http" }).pipe(
    Layer.provide(ShelterRpcHandlers),
    Layer.provide(RpcSerialization.layerNdjson)
  )
).pipe(Layer.provide(PetstoreClient.layerConfig()))

const { dispose, handler } = HttpRouter.toWebHandler(Layer.provide(Routes, HttpServer.layerServices), {
  disableLogger: true
})

const get = (path: string) =>
  Effect.promise(async () => (await handler(new Request(`http://shelter.example${path}`))).text())

/** Calls the RPC over the same handler. */
const callRpc = Effect.gen(function*() {
  const shelter = yield* RpcClient.make(ShelterRpcs)
  return yield* shelter.Available()
}).pipe(
  Effect.scoped,
  Effect.provide(
    RpcClient.layerProtocolHttp({ url: "http://shelter.example/rpc" }).pipe(
      Layer.provide(RpcSerialization.layerNdjson),
      Layer.provide(FetchHttpClient.layer)
    )
  ),
  Effect.provideService(FetchHttpClient.Fetch, (input, init) => handler(new Request(input, init)))
)

/** Stores pets in a key-value store: in memory here, in files, SQL or Redis with another layer. */
const store = Effect.fnUntraced(function*(pets: ReadonlyArray<Pet>) {
  const stored = KeyValueStore.toSchemaStore(yield* KeyValueStore.KeyValueStore, Pet)
  for (const pet of pets) yield* stored.set(String(pet.id), pet)
  return yield* stored.size
})

const program = Effect.gen(function*() {
  yield* Console.log(yield* get("/available"))
  yield* Console.log(yield* get("/exact"))
  const pets = yield* callRpc
  const size = yield* Effect.provide(store(pets), KeyValueStore.layerMemory)
  yield* Console.log(`${pets.length} over RPC, ${size} stored`)
})

await Effect.runPromise(Effect.ensuring(program, Effect.promise(dispose)))
