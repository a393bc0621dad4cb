/** Tests the slots of the operations that run at once. */
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber, Layer, Redacted, Stream } from "effect"
import { HttpClient, HttpClientRequest } from "effect/http"
import { TestClock } from "effect/testing"
import { ApiKeys } from "../../src/api-keys/ApiKeys.ts"
import * as ConcurrencyLimit from "../../src/http/ConcurrencyLimit.ts"
import { layerMemory, layerService } from "../../src/testing.ts"
import { unlimitedKeyOptions } from "../support/Process.ts"

const maxRunning = 2_500
type Limit = Effect.Success<typeof ConcurrencyLimit.make>

const fork = <A, E>(effect: Effect.Effect<A, E>) => Effect.forkChild(effect, { startImmediately: true })

/** Takes a number of slots until they are interrupted. */
const hold = (limit: Limit, count: number) => Effect.replicateEffect(fork(limit(Effect.never)), count)

/** Asserts that all slots are free, and that there is no further one. */
const assertAllFree = Effect.fnUntraced(function*(limit: Limit) {
  let running = 0
  const operation = limit(Effect.andThen(Effect.sync(() => running++), Effect.never))
  const fibers = yield* Effect.replicateEffect(fork(operation), maxRunning + 1)
  yield* Fiber.interruptAll(fibers)
  assert.strictEqual(running, maxRunning)
})

describe("A slot", () => {
  it.effect("is free again after an operation that fails, dies or is interrupted, also if it has waited", () =>
    Effect.gen(function*() {
      const limit = yield* ConcurrencyLimit.make
      for (const end of [Effect.fail("no"), Effect.die("no"), Effect.interrupt]) {
        const ended = yield* Effect.replicateEffect(fork(limit(end)), maxRunning)
        yield* TestClock.adjust("1 second")
        yield* Effect.forEach(ended, (fiber) => Fiber.await(fiber))
        yield* assertAllFree(limit)
        const held = yield* hold(limit, maxRunning)
        const waiting = yield* Effect.replicateEffect(fork(limit(end)), 10)
        yield* Fiber.interruptAll(held)
        yield* TestClock.adjust("1 second")
        yield* Effect.forEach(waiting, (fiber) => Fiber.await(fiber))
        yield* assertAllFree(limit)
      }
    }))

  it.effect("goes to the waiting operations in their order, and each gets 503 after one second without a slot", () =>
    Effect.gen(function*() {
      const limit = yield* ConcurrencyLimit.make
      const held = yield* hold(limit, maxRunning)
      const outcomes: Array<string> = []
      const wait = (name: string) =>
        fork(
          Effect.matchEffect(limit(Effect.andThen(Effect.sync(() => outcomes.push(name)), Effect.never)), {
            onSuccess: () => Effect.void,
            onFailure: ({ status }) => Effect.sync(() => outcomes.push(`${name} ${status}`))
          })
        )
      const waiting = yield* Effect.forEach(["a", "b", "c", "d"], wait)
      yield* TestClock.adjust("400 millis")
      waiting.push(yield* wait("e"), yield* wait("f"))
      yield* Fiber.interruptAll(held.slice(0, 2))
      yield* TestClock.adjust("599 millis")
      assert.deepStrictEqual(outcomes, ["a", "b"])
      yield* TestClock.adjust("1 milli")
      yield* Fiber.interruptAll(held.slice(2, 3))
      yield* TestClock.adjust("1 hour")
      assert.deepStrictEqual(outcomes, ["a", "b", "c 503", "d 503", "e", "f 503"])
      yield* Fiber.interruptAll([...held, ...waiting])
      yield* assertAllFree(limit)
    }))

  it.effect("is not lost if it becomes free in the moment in which the waiting operation gives up", () =>
    Effect.gen(function*() {
      const limit = yield* ConcurrencyLimit.make
      for (const releasesFirst of [true, false]) {
        const held = yield* hold(limit, maxRunning - 1)
        const done = yield* Deferred.make<void>()
        yield* fork(limit(Deferred.await(done)))
        const release = fork(Effect.delay(Deferred.succeed(done, undefined), "1 second"))
        if (releasesFirst) yield* release
        const waiting = yield* fork(limit(Effect.void))
        if (!releasesFirst) yield* release
        yield* TestClock.adjust("1 second")
        const exit = yield* Fiber.await(waiting)
        assert.isTrue(Exit.isSuccess(exit) || Exit.hasFails(exit))
        yield* Fiber.interruptAll(held)
        yield* assertAllFree(limit)
      }
    }))

  it.effect("is not taken by a request whose body has not arrived", () =>
    Effect.gen(function*() {
      const client = yield* HttpClient.HttpClient
      const { key } = yield* (yield* ApiKeys).issue(unlimitedKeyOptions)
      const url = "http://petstore.test/v1/pets"
      const authorized = HttpClientRequest.bearerToken(Redacted.value(key))
      const slow = HttpClientRequest.post(url).pipe(
        authorized,
        HttpClientRequest.bodyStream(Stream.never, { contentType: "application/json" })
      )
      const slowBodies = yield* Effect.replicateEffect(fork(client.execute(slow)), maxRunning)
      const list = yield* fork(client.execute(HttpClientRequest.get(url).pipe(authorized)))
      yield* TestClock.adjust("1 second")
      assert.strictEqual((yield* Fiber.join(list)).status, 200)
      yield* Fiber.interruptAll(slowBodies)
    }).pipe(Effect.provide(Layer.provideMerge(layerService, layerMemory))))
})
