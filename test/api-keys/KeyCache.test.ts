import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { TestClock } from "effect/testing"
import * as KeyCache from "../../src/api-keys/KeyCache.ts"
import { until } from "../support/Process.ts"

const holder = { key: { id: "key_a", plan: "free", limits: { perMinute: 1, perDay: 1 } }, endsAt: Infinity } as const

/** Begins a lookup of the secret `a`, which reads its holder. Query by query it takes `latencies`, then the last one. */
const startLookup = Effect.fnUntraced(function*(...latencies: ReadonlyArray<number>) {
  const seen = { queries: 0 }
  const query = Effect.suspend(() => Effect.sleep(latencies[seen.queries++] ?? latencies.at(-1) ?? 0))
  const findByHashes = (hashes: ReadonlyArray<string>) =>
    Effect.as(query, new Map(hashes.map((hash) => [hash, holder])))
  const cache = yield* KeyCache.make({ findByHashes })
  const lookup = yield* Effect.forkChild(cache.get("a"))
  // A batch begins in a later turn of the event loop than its calls.
  yield* until(() => seen.queries > 0)
  return { seen, cache, lookup }
})

describe("The key cache", () => {
  it.effect("reads a key in use at most twice a second, and no request waits, even if each lookup takes 300 ms", () =>
    Effect.gen(function*() {
      const { cache, seen } = yield* startLookup(300)
      yield* TestClock.adjust("300 millis")
      for (let ms = 0; ms < 10_000; ms += 20) {
        assert.strictEqual(cache.peek("a")?.key.id, "key_a")
        yield* TestClock.adjust("20 millis")
      }
      assert.isAtMost(seen.queries, 21)
    }))

  it.effect("runs one statement at a time", () =>
    Effect.gen(function*() {
      const { cache, seen } = yield* startLookup(500)
      yield* Effect.forkChild(cache.get("b"))
      yield* TestClock.adjust("499 millis")
      assert.strictEqual(seen.queries, 1)
    }))

  it.effect("evicts the oldest beyond 100,000 keys", () =>
    Effect.gen(function*() {
      const { cache } = yield* startLookup(0)
      const get = (index: number) => cache.get(`${index}`)
      yield* Effect.forEach(Array.from({ length: 100_000 }).keys(), get, { concurrency: 1_000, discard: true })
      assert.deepStrictEqual([cache.peek("a"), cache.peek("50000")?.key], [undefined, holder.key])
    }))

  it.effect.each<readonly [title: string, latencies: ReadonlyArray<number>, end: string, cached: string]>([
    ["never uses a cached key later than 900 ms after its lookup began", [600], "Success", "899+ 900-"],
    ["reads again after a lookup that took longer than the lease", [901, 100], "Success", "1000- 1001+ 1800+ 1801-"],
    ["fails after 1.75 seconds if each lookup takes longer than the lease", [901], "Failure", "1750-"],
    ["does not cache a lookup that began before a change by this process", [100], "Success", "50evict 100-"]
  ])("%s", ([, latencies, end, cached]) =>
    Effect.gen(function*() {
      const { cache, lookup } = yield* startLookup(...latencies)
      for (const [, ms, step] of cached.matchAll(/(\d+)(\S+)/g)) {
        yield* TestClock.setTime(Number(ms))
        if (step === "evict") yield* cache.evict("key_a")
        else assert.strictEqual(cache.peek("a") === undefined ? "-" : "+", step, ms)
      }
      assert.strictEqual(lookup.pollUnsafe()?._tag, end)
    }))
})
