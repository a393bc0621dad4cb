/**
 * Prints the number of pets for sale in each category.
 *
 * Run it with `PETSTORE_URL=http://localhost:8080 PETSTORE_API_KEY=psk_… node main.ts`.
 */
import { Console, Effect, Layer } from "effect"
import { PetstoreClient } from "petstore-client/client"
import { Inventory } from "./Inventory.ts"

const program = Effect.gen(function*() {
  const inventory = yield* Inventory
  for (const [category, count] of yield* inventory.forSale) yield* Console.log(`category ${category}: ${count}`)
})

await Effect.runPromise(Effect.provide(program, Layer.provide(Inventory.layer, PetstoreClient.layerConfig())))
