import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Layer, Metric, Redacted, Stream } from "effect"
import { HttpClient, HttpClientRequest } from "effect/http"
import { TestClock } from "effect/testing"
import { ApiKeys } from "../../src/api-keys/ApiKeys.ts"
import * as ConcurrencyLimit from "../../src/http/ConcurrencyLimit.ts"
import { layerService, RateLimiter } from "../../src/testing.ts"
import { memoryWith } from "../support/Databases.ts"
import { unlimitedKeyOptions } from "../support/Process.ts"

const maxRunning = 2_500

const neverFinds = memoryWith(() => ({ find: () => Effect.never }))

const fork = <A, E>(effect: Effect.Effect<A, E>) => Effect.forkChild(effect, { startImmediately: true })

describe("A slot", () => {
  it.effect("is in the gauge of queued requests only while an operation waits for it, for a second at most", () =>
    Effect.gen(function*() {
      const limit = yield* ConcurrencyLimit.make
      const queued = Effect.map(Metric.snapshot, ([gauge]) => gauge?.state)
      const [running] = yield* Effect.replicateEffect(fork(limit(Effect.never)), maxRunning)
      const counts = [yield* queued]
      yield* Effect.replicateEffect(fork(limit(Effect.never)), 3)
      counts.push(yield* queued)
      yield* Fiber.interrupt(running ?? assert.fail())
      yield* TestClock.adjust("999 millis")
      counts.push(yield* queued)
      yield* TestClock.adjust("1 milli")
      assert.deepStrictEqual([...counts, yield* queued], [0, 3, 2, 0].map((value) => ({ value })))
    }).pipe(Effect.provideService(Metric.MetricRegistry, new Map())))

  it.effect("is released after any end of an operation, even of one that waited or is just giving up", () =>
    Effect.gen(function*() {
      const limit = yield* ConcurrencyLimit.make
      for (const end of [Effect.void, Effect.fail("no"), Effect.die("no"), Effect.interrupt]) {
        for (const releasesFirst of [true, false]) {
          yield* Effect.exit(limit(end))
          const held = yield* Effect.replicateEffect(fork(limit(Effect.never)), maxRunning - 1)
          const done = yield* Deferred.make<void>()
          yield* fork(limit(Deferred.await(done)))
          const release = fork(Effect.delay(Deferred.succeed(done, undefined), "1 second"))
          if (releasesFirst) yield* release
          const waiting = yield* Effect.replicateEffect(fork(limit(end)), 3)
          if (!releasesFirst) yield* release
          yield* TestClock.adjust("1 second")
          yield* Fiber.interruptAll(held)
          yield* TestClock.adjust("1 second")
          for (const fiber of waiting) yield* Fiber.await(fiber)
          let running = 0
          const operation = limit(Effect.andThen(Effect.sync(() => running++), Effect.never))
          yield* Fiber.interruptAll(yield* Effect.replicateEffect(fork(operation), maxRunning + 1))
          assert.strictEqual(running, maxRunning)
        }
      }
    }))

  it.effect("is taken only once the body has arrived, and a request that waits one second gets 503", () =>
    Effect.gen(function*() {
      const client = yield* HttpClient.HttpClient
      const { key } = yield* (yield* ApiKeys).issue(unlimitedKeyOptions)
      const authorized = HttpClientRequest.bearerToken(Redacted.value(key))
      const url = "http://petstore.test/v1/pets"
      const neverEnds = HttpClientRequest.bodyStream(Stream.never, { contentType: "application/json" })
      const slow = HttpClientRequest.post(url).pipe(authorized, neverEnds)
      const get = (path: string) => fork(client.execute(authorized(HttpClientRequest.get(url + path))))
      yield* Effect.replicateEffect(fork(client.execute(slow)), maxRunning)
      const served = yield* get("")
      yield* TestClock.adjust("1 second")
      assert.strictEqual((yield* Fiber.join(served)).status, 200)
      const [busy] = yield* Effect.replicateEffect(get("/1"), maxRunning)
      const waiting = yield* get("")
      yield* TestClock.adjust("1 second")
      const { headers, status } = yield* Fiber.join(waiting)
      assert.deepStrictEqual([status, headers["retry-after"]], [503, "1"])
      assert.include(headers["ratelimit-policy"], "q=2000000000", "the limits of the key")
      const next = yield* get("")
      yield* Fiber.interrupt(busy ?? assert.fail())
      assert.strictEqual((yield* Fiber.join(next)).status, 200)
    }).pipe(Effect.provide(Layer.provideMerge(layerService, Layer.merge(neverFinds, RateLimiter.layerMemory)))))
})
