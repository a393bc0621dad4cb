import { assert, describe, it } from "@effect/vitest"
import { Clock, Effect, Exit, Fiber, Logger } from "effect"
import { TestClock } from "effect/testing"
import * as fc from "fast-check"
import * as KeyCache from "../../src/api-keys/KeyCache.ts"
import { ServiceUnavailable } from "../../src/api/Errors.ts"
import { until } from "../support/Process.ts"

const holder = { key: { id: "key_a", plan: "free", limits: { perMinute: 1, perDay: 1 } }, endsAt: Infinity } as const

/** Begins a lookup of the secret `a`, which reads its holder. Query by query it takes `latencies`, then the last one. */
const startLookup = Effect.fnUntraced(function*(...latencies: ReadonlyArray<number>) {
  const seen = { queries: 0 }
  const query = Effect.suspend(() => Effect.sleep(latencies[seen.queries++] ?? latencies.at(-1) ?? 0))
  const findByHashes = (hashes: ReadonlyArray<string>) =>
    Effect.as(query, new Map(hashes.map((hash) => [hash, holder])))
  const cache = yield* KeyCache.make({ findByHashes, isInTransaction: () => false })
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
        assert.strictEqual(cache.useCached("a")?.key.id, "key_a")
        yield* TestClock.adjust("20 millis")
      }
      assert.isAtMost(seen.queries, 21)
    }))

  it.effect("reads each of 100 keys in use once in 0.8 seconds, and soon all of them in few statements", () =>
    Effect.gen(function*() {
      const seen = { statements: 0, keys: 0 }
      const cache = yield* KeyCache.make({
        isInTransaction: () => false,
        findByHashes: (hashes) => {
          seen.statements++
          seen.keys += hashes.length
          return Effect.succeed(new Map(hashes.map((hash) => [hash, holder])))
        }
      })
      // The first uses of the keys are spread over two seconds, so their first leases end at different times.
      for (let ms = 0; ms < 12_000; ms += 20) {
        for (let key = 0; key < Math.min(100, ms / 20); key++) {
          if (cache.useCached(`${key}`) !== undefined) continue
          assert.isBelow(ms, 2_100, "a request of a key in use waits")
          yield* cache.get(`${key}`)
        }
        if (ms === 2_000) Object.assign(seen, { statements: 0, keys: 0 })
        yield* TestClock.adjust("20 millis")
      }
      assert.isAtMost(seen.keys, 100 * 10 / 0.8)
      assert.isAtMost(seen.statements, 60)
    }))

  it.effect("runs one statement at a time", () =>
    Effect.gen(function*() {
      const { cache, seen } = yield* startLookup(500)
      yield* Effect.forkChild(cache.get("b"))
      yield* TestClock.adjust("499 millis")
      assert.strictEqual(seen.queries, 1)
      yield* TestClock.adjust("1 millis")
      yield* until(() => seen.queries === 2)
    }))

  it.effect("reads all keys that wait for a statement in the next one", () =>
    Effect.gen(function*() {
      const { cache, seen } = yield* startLookup(500)
      const lookups = yield* Effect.forEach(["b", "c", "d"], (hash) => Effect.forkChild(cache.get(hash)))
      yield* TestClock.adjust("500 millis")
      yield* until(() => seen.queries === 2)
      yield* TestClock.adjust("500 millis")
      for (const lookup of lookups) assert.strictEqual((yield* Fiber.join(lookup))?.key, holder.key)
      assert.strictEqual(seen.queries, 2)
    }))

  it.effect("evicts the oldest beyond 100,000 keys", () =>
    Effect.gen(function*() {
      const { cache } = yield* startLookup(0)
      const get = (index: number) => cache.get(`${index}`)
      yield* Effect.forEach(Array.from({ length: 100_000 }).keys(), get, { concurrency: 1_000, discard: true })
      assert.deepStrictEqual([cache.useCached("a"), cache.useCached("11500")?.key], [undefined, holder.key])
    }))

  it.effect("uses a cached key for 900 ms from the start of its lookup", () =>
    Effect.gen(function*() {
      const { cache, lookup } = yield* startLookup(600)
      yield* TestClock.adjust("899 millis")
      assert.strictEqual((yield* Fiber.join(lookup))?.key, holder.key)
      assert.isDefined(cache.useCached("a"))
      yield* TestClock.adjust("1 millis")
      assert.isUndefined(cache.useCached("a"))
    }))

  it.effect("uses a lookup that took longer than the lease for its request alone", () =>
    Effect.gen(function*() {
      const { cache, lookup } = yield* startLookup(1_600)
      yield* TestClock.adjust("1600 millis")
      assert.strictEqual((yield* Fiber.join(lookup))?.key, holder.key)
      assert.isUndefined(cache.useCached("a"))
    }))

  it.effect("fails a request 1.75 seconds after its start", () =>
    Effect.gen(function*() {
      const { lookup } = yield* startLookup(1_800)
      yield* TestClock.adjust("1649 millis")
      assert.isUndefined(lookup.pollUnsafe())
      yield* TestClock.adjust("101 millis")
      assert.strictEqual(lookup.pollUnsafe()?._tag, "Failure")
    }))

  it.effect("does not cache a lookup that began before a change by this process", () =>
    Effect.gen(function*() {
      const { cache, lookup } = yield* startLookup(100)
      yield* TestClock.adjust("50 millis")
      yield* cache.evict("key_a")
      yield* TestClock.adjust("50 millis")
      assert.isUndefined(cache.useCached("a"))
      assert.strictEqual((yield* Fiber.await(lookup))._tag, "Success")
    }))
})

const hash = fc.constantFrom("a", "b")
const scenario = fc.record({
  // With one hash, changes of other processes, and lookups that all reply within a second, each request must succeed.
  isSlowOnly: fc.boolean(),
  lookups: fc.array(
    fc.record({
      end: fc.constantFrom("replies", "replies", "replies", "fails", "dies", "hangs"),
      afterMs: fc.nat(1_600)
    }),
    { minLength: 1, maxLength: 6 }
  ),
  steps: fc.array(
    fc.oneof(
      { weight: 4, arbitrary: fc.record({ do: fc.constant("request" as const), hash }) },
      { weight: 2, arbitrary: fc.record({ do: fc.constant("change" as const), hash, isOwn: fc.boolean() }) },
      {
        weight: 4,
        arbitrary: fc.record({ do: fc.constant("adjust" as const), ms: fc.oneof(fc.nat(100), fc.nat(1_000)) })
      }
    ),
    { minLength: 5, maxLength: 30 }
  )
})

type Scenario = typeof scenario extends fc.Arbitrary<infer A> ? A : never

/** Runs a scenario, and checks the laws of `KeyCache.ts`. The limit per minute of a key is its version. */
const assertLaws = Effect.fnUntraced(function*({ isSlowOnly, lookups, steps }: Scenario) {
  const clock = yield* Clock.Clock
  const now = () => clock.currentTimeMillisUnsafe()
  const versions = new Map<string, number>()
  const changes: Array<Readonly<{ hash: string; version: number; atMs: number; isOwn: boolean; order: number }>> = []
  let [running, statements, order] = [0, 0, 0]
  const cache = yield* KeyCache.make({
    isInTransaction: () => false,
    findByHashes: (hashes) =>
      Effect.suspend(() => {
        assert.isAtMost(++running, 2, "a lookup and a refresh")
        const { afterMs, end } = lookups[statements++ % lookups.length] ?? assert.fail()
        // The statement reads at its start, however late its reply is.
        const found = new Map(hashes.map((each) => {
          const limits = { perMinute: versions.get(each) ?? 0, perDay: 1 }
          return [each, { ...holder, key: { ...holder.key, id: `key_${each}`, limits } }]
        }))
        if (isSlowOnly) return Effect.delay(Effect.succeed(found), Math.min(afterMs, 1_000))
        const reply = end === "fails"
          ? Effect.fail(new ServiceUnavailable())
          : end === "dies"
          ? Effect.die(end)
          : Effect.succeed(found)
        return end === "hangs" ? Effect.never : Effect.delay(reply, afterMs)
      }).pipe(Effect.ensuring(Effect.sync(() => running--)))
  })
  const requests: Array<
    Readonly<{
      hash: string
      startedMs: number
      order: number
      fiber: Fiber.Fiber<KeyCache.Entry | undefined, unknown>
      end: { ms?: number }
    }>
  > = []
  const advance = Effect.fnUntraced(function*(ms: number) {
    for (let left = ms; left > 0; left -= 50) {
      yield* Effect.replicateEffect(Effect.yieldNow, 10)
      yield* TestClock.adjust(Math.min(left, 50))
    }
  })
  for (const step of steps) {
    const each = step.do === "adjust" || isSlowOnly ? "a" : step.hash
    if (step.do === "adjust") yield* advance(step.ms)
    else if (step.do === "change") {
      const version = (versions.get(each) ?? 0) + 1
      versions.set(each, version)
      // After its own change, a process starts another lookup behind the running one.
      const isOwn = step.isOwn && !isSlowOnly
      if (isOwn) yield* cache.evict(`key_${each}`)
      changes.push({ hash: each, version, atMs: now(), isOwn, order: order++ })
    } else {
      const [startedMs, end] = [now(), {}]
      const get = Effect.suspend(() => {
        const cached = cache.useCached(each)
        return cached === undefined ? cache.get(each) : Effect.succeed(cached)
      })
      const fiber = yield* Effect.forkChild(get, { startImmediately: true })
      requests.push({ hash: each, startedMs, order: order++, fiber, end })
      fiber.addObserver(() => Object.assign(end, { ms: now() }))
      yield* Effect.replicateEffect(Effect.yieldNow, 10)
    }
  }
  yield* advance(2_000)
  for (const { end, fiber, hash, order, startedMs } of requests) {
    const exit = fiber.pollUnsafe() ?? assert.fail("a request has no end")
    assert.isAtMost((end.ms ?? Infinity) - startedMs, 1_750)
    if (isSlowOnly) assert.isTrue(Exit.isSuccess(exit), "a request fails because lookups are slow")
    if (!Exit.isSuccess(exit)) continue
    const used = exit.value?.key.limits.perMinute ?? assert.fail()
    for (const change of changes) {
      if (change.hash !== hash || change.version <= used) continue
      assert.isFalse(change.isOwn && change.order < order, "a request misses a change that this process made before it")
      assert.isBelow(startedMs - change.atMs, 1_000, "a request misses a change of a second before it")
    }
  }
}, Effect.scoped)

/** A request that begins more than a second after a change, while a lookup from before the change still runs. */
const lateLookup: Scenario = {
  isSlowOnly: false,
  lookups: [{ end: "replies", afterMs: 1_600 }],
  steps: [
    { do: "request", hash: "a" },
    { do: "adjust", ms: 10 },
    { do: "change", hash: "a", isOwn: false },
    { do: "adjust", ms: 1_200 },
    { do: "request", hash: "a" }
  ]
}

it("The key cache keeps its laws in any order of requests, changes, and late or failed lookups", () =>
  fc.assert(
    fc.asyncProperty(scenario, async (each) => {
      const laws = Effect.provide(assertLaws(each), [TestClock.layer(), Logger.layer([])])
      const exit = await Effect.runPromiseExit(laws)
      assert.isTrue(Exit.isSuccess(exit), String(exit))
    }),
    { numRuns: 300, examples: [[lateLookup]] }
  ))
