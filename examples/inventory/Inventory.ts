/** Shows a service that uses the petstore client through Layers: it counts the pets for sale. */
import { Context, Effect, Layer, Stream } from "effect"
import { type AnyError, PetstoreClient } from "petstore-client/client"

/** Counts the pets of the petstore. */
export class Inventory extends Context.Service<Inventory, {
  /** The number of pets for sale in each category, by category id. It fails with the errors of the client. */
  readonly forSale: Effect.Effect<ReadonlyMap<bigint, number>, AnyError>
}>()("example/Inventory") {
  static readonly layer = Layer.effect(
    Inventory,
    Effect.gen(function*() {
      const petstore = yield* PetstoreClient
      return Inventory.of({
        forSale: petstore.all({ status: "available", pageSize: 100 }).pipe(
          Stream.runFold(
            (): ReadonlyMap<bigint, number> => new Map(),
            (counts, { categoryId }) => new Map(counts).set(categoryId, (counts.get(categoryId) ?? 0) + 1)
          )
        )
      })
    })
  )
}
