/** Imports 10,000 pets on the Free plan against the service in memory: ten days of `TestClock`, some seconds of yours. */
import { Effect, Fiber, Stream } from "effect"
import { TestClock } from "effect/testing"
import assert from "node:assert/strict"
import { test } from "node:test"
import { layerTest, TestService } from "petstore-client/testing"
import { importPets } from "./Import.ts"

test("imports 10,000 pets on the Free plan in ten days, each once, without a ban", () =>
  Effect.gen(function*() {
    const service = yield* TestService
    const created = new Map<number, bigint>()
    const rows = Stream.map(Stream.range(1, 10_000), (recordId) => ({
      recordId,
      name: `pet ${recordId}`,
      categoryId: 1n
    }))
    const importing = yield* Effect.forkChild(importPets(rows, (recordId, petId) =>
      Effect.sync(() => {
        created.set(recordId, petId)
      })))
    yield* TestClock.adjust("5 days")
    assert.equal(created.size, 5_000)
    yield* TestClock.adjust("5 days")
    yield* Fiber.join(importing)
    assert.equal(new Set(created.values()).size, 10_000)
    const sent = yield* service.sentRequests
    assert.deepEqual([sent.length, new Set(sent.map(({ status }) => status))], [10_000, new Set([201])])
  }).pipe(Effect.provide(layerTest()), Effect.provide(TestClock.layer()), Effect.runPromise))
