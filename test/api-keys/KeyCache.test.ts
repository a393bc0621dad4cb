/** Tests the lease of cached keys: how old a holder can get, what a key in use costs, and what a lookup evicts. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Fiber } from "effect"
import { TestClock } from "effect/testing"
import type { SecretHolder } from "../../src/api-keys/ApiKeyStore.ts"
import * as KeyCache from "../../src/api-keys/KeyCache.ts"

const key = { id: "key_a", plan: "free", limits: { perMinute: 60, perDay: 1000 } } as const
const holder: SecretHolder = { key, endsAt: Infinity }

/** Begins a lookup of the secret `a`, which reads its holder. Query by query it takes `latencies`, then the last one. */
const startLookup = Effect.fnUntraced(function*(...latencies: ReadonlyArray<number>) {
  const seen = { queries: 0 }
  const findByHashes = (hashes: ReadonlyArray<string>) =>
    Effect.gen(function*() {
      yield* Effect.sleep(latencies[seen.queries++] ?? latencies.at(-1) ?? 0)
      return new Map(hashes.map((hash) => [hash, holder]))
    })
  const cache = yield* KeyCache.make({ findByHashes })
  const lookup = yield* Effect.forkChild(cache.get("a"))
  // A batch begins in a later turn of the event loop than its calls.
  while (seen.queries === 0) yield* Effect.yieldNow
  return { seen, cache, lookup }
})

describe("The key cache", () => {
  it.effect("reads a key in use at most twice a second, and no use waits, although each lookup takes 300 ms", () =>
    Effect.gen(function*() {
      const { cache, lookup, seen } = yield* startLookup(300)
      yield* TestClock.adjust("300 millis")
      yield* Fiber.join(lookup)
      for (let ms = 0; ms < 10_000; ms += 20) {
        assert.strictEqual(cache.peek("a")?.key.id, "key_a")
        yield* TestClock.adjust("20 millis")
      }
      assert.isAtMost(seen.queries, 21)
    }))

  it.effect("never uses a holder 900 ms after the start of its lookup", () =>
    Effect.gen(function*() {
      const { cache, lookup } = yield* startLookup(600)
      yield* TestClock.adjust("600 millis")
      yield* Fiber.join(lookup)
      yield* TestClock.adjust("299 millis")
      assert.isDefined(cache.peek("a"))
      yield* TestClock.adjust("1 millis")
      assert.isUndefined(cache.peek("a"))
    }))

  it.effect("repeats a lookup that takes longer than the lease once, and uses only the second result", () =>
    Effect.gen(function*() {
      const { cache, lookup, seen } = yield* startLookup(901, 100)
      yield* TestClock.adjust("900 millis")
      assert.isUndefined(cache.peek("a"))
      yield* TestClock.adjust("100 millis")
      assert.strictEqual((yield* Fiber.join(lookup))?.key.id, "key_a")
      yield* TestClock.adjust("799 millis")
      assert.isDefined(cache.peek("a"))
      yield* TestClock.adjust("1 millis")
      assert.isUndefined(cache.peek("a"))
      assert.strictEqual(seen.queries, 2)
    }))

  it.effect("fails a lookup that takes longer than the lease twice", () =>
    Effect.gen(function*() {
      const { lookup, seen } = yield* startLookup(901)
      yield* TestClock.adjust("1800 millis")
      assert.isTrue(Exit.isFailure(yield* Fiber.await(lookup)))
      assert.strictEqual(seen.queries, 2)
    }))

  it.effect("does not cache a lookup that began before a change by this process", () =>
    Effect.gen(function*() {
      const { cache, lookup } = yield* startLookup(100)
      yield* TestClock.adjust("50 millis")
      cache.evict("key_a")
      yield* TestClock.adjust("50 millis")
      yield* Fiber.join(lookup)
      assert.isUndefined(cache.peek("a"))
    }))
})
