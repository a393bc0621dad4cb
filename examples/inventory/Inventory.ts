/** A service of its own that consumes the petstore through Layers. */
import { Context, Effect, Layer, Stream } from "effect"
import { type AnyError, PetstoreClient } from "petstore-service/client"

export class Inventory extends Context.Service<Inventory, {
  /** How many animals of each category are for sale. */
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
