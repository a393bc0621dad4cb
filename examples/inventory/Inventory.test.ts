/** Tests `Inventory` against the service in memory, without a server. */
import { Effect, Layer, Redacted } from "effect"
import assert from "node:assert/strict"
import { test } from "node:test"
import { layerTest, PetRepository } from "petstore-client/testing"
import { Inventory } from "./Inventory.ts"

test("counts the pets for sale in each category, over two pages", () =>
  Effect.gen(function*() {
    const pets = yield* PetRepository
    for (let i = 0; i < 250; i++) {
      yield* pets.create({ name: `pet ${i}`, categoryId: BigInt(i % 3), status: i % 2 === 0 ? "available" : "sold" })
    }
    const inventory = yield* Inventory
    assert.deepEqual([...yield* inventory.forSale], [[0n, 42], [2n, 42], [1n, 41]])
  }).pipe(Effect.provide(Inventory.layer.pipe(Layer.provideMerge(layerTest()))), Effect.runPromise))

test("fails with the error of the service", () =>
  Effect.gen(function*() {
    const inventory = yield* Inventory
    const error = yield* Effect.flip(inventory.forSale)
    assert.equal(error._tag, "InvalidApiKey")
  }).pipe(
    Effect.provide(Inventory.layer.pipe(Layer.provide(layerTest({ apiKey: Redacted.make("psk_wrong") })))),
    Effect.runPromise
  ))
