/** Tests the lease of cached keys: how old a holder can get, what a key in use costs, and what a lookup evicts. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { TestClock } from "effect/testing"
import type { Holder } from "../../src/api-keys/ApiKeyStore.ts"
import * as KeyCache from "../../src/api-keys/KeyCache.ts"

const holderOf = (id: string): Holder => ({ id, plan: "free", limits: { perMinute: 60, perDay: 1000 }, endsAt: null })

/** A cache of a store in which `holders` are, with a delay after the read of each lookup. */
const setUp = (holders: Map<string, Holder>, latencyMs: number) =>
  Effect.gen(function*() {
    const seen = { queries: 0, inFlight: 0, maxInFlight: 0 }
    const findByHashes = (hashes: ReadonlyArray<string>) =>
      Effect.gen(function*() {
        seen.queries++
        seen.maxInFlight = Math.max(seen.maxInFlight, ++seen.inFlight)
        const found = new Map([...holders].filter(([hash]) => hashes.includes(hash)))
        yield* Effect.sleep(latencyMs)
        seen.inFlight--
        return found
      })
    return { seen, cache: yield* KeyCache.make({ findByHashes }) }
  })

const whileTimePasses = <A, E, R>(effect: Effect.Effect<A, E, R>, stepMs: number) =>
  Effect.gen(function*() {
    const fiber = yield* Effect.forkChild(effect)
    while (fiber.pollUnsafe() === undefined) yield* TestClock.adjust(stepMs)
    return yield* Fiber.join(fiber)
  })

describe("The key cache", () => {
  it.effect("reads a key in use at most twice a second, and no use waits, although each lookup takes 300 ms", () =>
    Effect.gen(function*() {
      const { cache, seen } = yield* setUp(new Map([["a", holderOf("key_a")]]), 300)
      yield* whileTimePasses(cache.get("a"), 50)
      for (let ms = 0; ms < 10_000; ms += 20) {
        assert.strictEqual(cache.peek("a")?.id, "key_a")
        yield* TestClock.adjust("20 millis")
      }
      assert.isAtMost(seen.queries, 21)
    }))

  it.effect("never uses a holder 900 ms after the start of its lookup", () =>
    Effect.gen(function*() {
      const { cache } = yield* setUp(new Map([["a", holderOf("key_a")]]), 600)
      const lookup = yield* Effect.forkChild(cache.get("a"))
      yield* TestClock.adjust("600 millis")
      yield* Fiber.join(lookup)
      yield* TestClock.adjust("299 millis")
      assert.isDefined(cache.peek("a"))
      yield* TestClock.adjust("1 millis")
      assert.isUndefined(cache.peek("a"))
    }))

  it.effect("forgets a key that a refresh does not find", () =>
    Effect.gen(function*() {
      const holders = new Map([["a", holderOf("key_a")]])
      const { cache } = yield* setUp(holders, 1)
      yield* whileTimePasses(cache.get("a"), 1)
      holders.clear()
      yield* TestClock.adjust("500 millis")
      assert.isDefined(cache.peek("a"))
      yield* TestClock.adjust("60 millis")
      assert.isUndefined(cache.peek("a"))
    }))

  it.effect("keeps the object of an equal key, and takes a changed one within a second", () =>
    Effect.gen(function*() {
      const holders = new Map([["a", holderOf("key_a")]])
      const { cache } = yield* setUp(holders, 1)
      const first = yield* whileTimePasses(cache.get("a"), 1)
      holders.set("a", holderOf("key_a"))
      yield* TestClock.adjust("500 millis")
      cache.peek("a")
      yield* TestClock.adjust("60 millis")
      assert.strictEqual(cache.peek("a"), first)
      holders.set("a", { ...holderOf("key_a"), endsAt: 1 })
      yield* TestClock.adjust("500 millis")
      cache.peek("a")
      yield* TestClock.adjust("60 millis")
      assert.isNotNull(cache.peek("a")?.endsAt)
    }))

  it.effect("looks up any number of unknown keys with two queries at a time", () =>
    Effect.gen(function*() {
      const { cache, seen } = yield* setUp(new Map(), 10)
      yield* whileTimePasses(
        Effect.forEach(Array.from({ length: 3000 }, (_, n) => String(n)), cache.get, { concurrency: "unbounded" }),
        5
      )
      assert.isAtMost(seen.maxInFlight, 2)
      assert.isAtMost(seen.queries, 5)
    }))

  it.effect("does not cache a lookup that began before a change by this process", () =>
    Effect.gen(function*() {
      const { cache } = yield* setUp(new Map([["a", holderOf("key_a")]]), 100)
      const lookup = yield* Effect.forkChild(cache.get("a"))
      yield* TestClock.adjust("50 millis")
      cache.evict("key_a")
      yield* TestClock.adjust("50 millis")
      yield* Fiber.join(lookup)
      assert.isUndefined(cache.peek("a"))
    }))
})
