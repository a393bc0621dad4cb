import { assert, describe, it, layer } from "@effect/vitest"
import { DateTime, Deferred, Effect, Fiber } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { type ApiKeyStore, memoryStore, sqlStore } from "../../src/api-keys/ApiKeyStore.ts"
import * as KeyCache from "../../src/api-keys/KeyCache.ts"
import * as ChangePoller from "../../src/database/ChangePoller.ts"
import { databases } from "../support/Harness.ts"
import { until } from "../support/Process.ts"

const key = (id: string) => ({
  id,
  name: "test",
  plan: "free" as const,
  limits: { perMinute: 60, perDay: 1000 },
  createdAt: DateTime.makeUnsafe(0),
  expiresAt: null,
  revokedAt: null,
  lastUsedAt: null
})

const hashOf = (n: number): string => n.toString(16).padStart(64, "0")

/** `store`, that counts its look-ups and takes `latency` for each answer. */
const observed = (store: ApiKeyStore, latency: number) => {
  const seen = { queries: 0, underWay: 0, mostUnderWay: 0 }
  const observedStore: ApiKeyStore = {
    ...store,
    findByHashes: (hashes) =>
      Effect.gen(function*() {
        seen.queries++
        seen.mostUnderWay = Math.max(seen.mostUnderWay, ++seen.underWay)
        yield* Effect.sleep(latency)
        seen.underWay--
        return yield* store.findByHashes(hashes)
      })
  }
  return { seen, store: observedStore }
}

const unchanged: ChangePoller.Poll = { identity: "one", at: 0, snapshot: "1:1:", pets: false, keys: [] }

/** Polls that find `state.poll`, and take `latency`. */
const pollerOf = (state: { readonly poll: ChangePoller.Poll }, latency = 0) =>
  ChangePoller.make(() => Effect.delay(Effect.sync(() => state.poll), latency))

/** Runs `effect` while the clock moves on by `step` at a time. */
const whileTimePasses = <A, E, R>(effect: Effect.Effect<A, E, R>, step: number) =>
  Effect.gen(function*() {
    const fiber = yield* Effect.forkChild(effect)
    while (fiber.pollUnsafe() === undefined) yield* TestClock.adjust(step)
    return yield* Fiber.join(fiber)
  })

describe("The cache of keys", () => {
  it.effect("asks once for a known key, though the database takes 400 ms for each answer", () =>
    Effect.gen(function*() {
      const { seen, store } = observed(yield* memoryStore, 400)
      yield* store.insert(key("key_warm"), hashOf(1))
      const poller = yield* whileTimePasses(pollerOf({ poll: unchanged }, 400), 50)
      const cache = yield* KeyCache.make(store, poller)
      for (let i = 0; i < 200; i++) {
        const holder = yield* whileTimePasses(cache.get(hashOf(1)), 50)
        assert.strictEqual(holder?.key.id, "key_warm")
        yield* TestClock.adjust(50)
      }
      assert.strictEqual(seen.queries, 1)
    }))

  it.effect("asks for any number of made-up keys one thing at a time, and for each once", () =>
    Effect.gen(function*() {
      const { seen, store } = observed(yield* memoryStore, 10)
      yield* store.insert(key("key_known"), hashOf(500))
      const poller = yield* whileTimePasses(pollerOf({ poll: unchanged }, 10), 10)
      const cache = yield* KeyCache.make(store, poller)
      const all = Effect.forEach(Array.from({ length: 3000 }, (_, n) => hashOf(n)), cache.get, {
        concurrency: "unbounded"
      })
      const found = yield* whileTimePasses(all, 5)
      assert.deepStrictEqual(found.filter((holder) => holder !== undefined).map((holder) => holder.key.id), [
        "key_known"
      ])
      assert.strictEqual(seen.mostUnderWay, 1)
      assert.isAtMost(seen.queries, 5)
      const { queries } = seen
      yield* whileTimePasses(all, 5)
      assert.strictEqual(seen.queries, queries)
    }))

  it.effect("waits two seconds at most for a database that does not answer", () =>
    Effect.gen(function*() {
      const store = yield* memoryStore
      const poller = yield* pollerOf({ poll: unchanged })
      const cache = yield* KeyCache.make({ ...store, findByHashes: () => Effect.never }, poller)
      const fiber = yield* Effect.forkChild(Effect.exit(cache.get(hashOf(1))))
      yield* TestClock.adjust("2 seconds")
      assert.strictEqual((yield* Fiber.join(fiber))._tag, "Failure")
    }))

  it.effect("evicts the old entry when a lookup finds nothing", () =>
    Effect.gen(function*() {
      const poller = yield* pollerOf({ poll: unchanged })
      const found = new Map([[hashOf(1), { key: key("key_gone"), secretExpiresAt: null }]])
      const cache = yield* KeyCache.make(
        { ...yield* memoryStore, findByHashes: () => Effect.sync(() => new Map(found)) },
        poller
      )
      yield* cache.get(hashOf(1))
      found.clear()
      // The lease ends while nobody asks, so the next request asks the database.
      yield* TestClock.adjust("2 seconds")
      assert.isUndefined(yield* cache.get(hashOf(1)))
      yield* TestClock.adjust("250 millis")
      assert.isTrue(poller.isFresh())
      assert.isUndefined(yield* cache.get(hashOf(1)))
    }))

  it.effect("does not cache a lookup that began before an invalidation", () =>
    Effect.gen(function*() {
      const state = { poll: unchanged }
      const poller = yield* pollerOf(state)
      const holder = { key: key("key_old"), secretExpiresAt: null }
      let result = new Map([[hashOf(1), holder]])
      const cache = yield* KeyCache.make({
        ...yield* memoryStore,
        // The answer is that of the time at which the lookup began.
        findByHashes: () => Effect.suspend(() => Effect.delay(Effect.succeed(result), "300 millis"))
      }, poller)
      assert.isTrue(poller.isFresh())
      const lookup = yield* Effect.forkChild(cache.get(hashOf(1)))
      yield* TestClock.adjust("1 millis")
      result = new Map()
      state.poll = { ...unchanged, identity: "other" }
      yield* TestClock.adjust("299 millis")
      assert.strictEqual((yield* Fiber.join(lookup))?.key.id, "key_old")
      assert.isTrue(poller.isFresh())
      assert.isUndefined(cache.peek(hashOf(1)))
      const second = yield* Effect.forkChild(cache.get(hashOf(1)))
      yield* TestClock.adjust("300 millis")
      assert.isUndefined(yield* Fiber.join(second))
    }))
})

for (const database of databases.filter(({ name }) => name === "PostgreSQL")) {
  describe.skipIf(database.skip)("The cache of keys on PostgreSQL", () => {
    layer(database.layer)((it) => {
      it.effect("keeps what it knows while an older transaction is open elsewhere", () =>
        Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          const { seen, store } = observed(yield* sqlStore, 0)
          let polls = 0
          const read = yield* ChangePoller.readChanges
          const poller = yield* ChangePoller.make((snapshot) =>
            Effect.tap(read(snapshot), () => Effect.sync(() => polls++))
          )
          const opened = yield* Deferred.make<void>()
          const finish = yield* Deferred.make<void>()
          const transaction = yield* Effect.forkChild(sql.withTransaction(Effect.gen(function*() {
            yield* sql`SELECT pg_current_xact_id()::text`
            yield* Deferred.succeed(opened, undefined)
            yield* Deferred.await(finish)
          })))
          yield* Deferred.await(opened)
          const cache = yield* KeyCache.make(store, poller)
          yield* store.insert(key("key_kept"), hashOf(1))
          assert.include((yield* read("3:3:")).keys, "key_kept")
          /** Lets one more poll begin, and waits for the database's answer to it, which comes in real time. */
          const nextPoll = Effect.gen(function*() {
            const before = polls
            yield* cache.get(hashOf(1))
            yield* TestClock.adjust("250 millis")
            yield* until(() => polls > before)
          })
          yield* nextPoll
          yield* cache.get(hashOf(1))
          const { queries } = seen
          for (let i = 0; i < 10; i++) {
            yield* nextPoll
            yield* cache.get(hashOf(1))
          }
          assert.strictEqual(seen.queries, queries)
          yield* Deferred.succeed(finish, undefined)
          yield* Fiber.join(transaction)
        }))
    })
  })
}
