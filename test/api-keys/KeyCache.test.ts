/** Tests the cache of API keys: its lookups, its timeout, and its invalidation by the change poller. */
import { assert, describe, it, layer } from "@effect/vitest"
import { DateTime, Deferred, Effect, Fiber } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { type ApiKeyStore, memoryStore } from "../../src/api-keys/ApiKeyStore.ts"
import * as KeyCache from "../../src/api-keys/KeyCache.ts"
import { sqlStore } from "../../src/api-keys/SqlApiKeyStore.ts"
import * as ChangePoller from "../../src/database/ChangePoller.ts"
import { databases } from "../support/Harness.ts"
import { until } from "../support/Process.ts"

const key = (id: string) => ({
  id,
  version: 1,
  name: "test",
  hint: null,
  plan: "free" as const,
  limits: { perMinute: 60, perDay: 1000 },
  createdAt: DateTime.makeUnsafe(0),
  expiresAt: null,
  revokedAt: null,
  lastUsedAt: null
})

/** Returns a hash of 64 hexadecimal digits, different for each `n`. */
const hashOf = (n: number): string => n.toString(16).padStart(64, "0")

/** Returns `store` with a delay of `latencyMs` in each lookup, and the number of its queries and those in flight. */
const observed = (store: ApiKeyStore, latencyMs: number) => {
  const seen = { queries: 0, inFlight: 0, maxInFlight: 0 }
  const observedStore: ApiKeyStore = {
    ...store,
    findByHashes: (hashes) =>
      Effect.gen(function*() {
        seen.queries++
        seen.maxInFlight = Math.max(seen.maxInFlight, ++seen.inFlight)
        yield* Effect.sleep(latencyMs)
        seen.inFlight--
        return yield* store.findByHashes(hashes)
      })
  }
  return { seen, store: observedStore }
}

/** The result of a poll that found no changes. */
const unchanged: ChangePoller.Poll = { identity: "one", at: 0, snapshot: "1:1:", pets: false, keys: [] }

/** Makes a poller whose polls return `state.poll` after `latencyMs`. */
const pollerOf = (state: { readonly poll: ChangePoller.Poll }, latencyMs = 0) =>
  ChangePoller.make(() => Effect.delay(Effect.sync(() => state.poll), latencyMs))

/** Runs `effect` while the test clock advances in steps of `stepMs`. */
const whileTimePasses = <A, E, R>(effect: Effect.Effect<A, E, R>, stepMs: number) =>
  Effect.gen(function*() {
    const fiber = yield* Effect.forkChild(effect)
    while (fiber.pollUnsafe() === undefined) yield* TestClock.adjust(stepMs)
    return yield* Fiber.join(fiber)
  })

describe("The key cache", () => {
  it.effect("queries the database once for a cached key, although each query takes 400 ms", () =>
    Effect.gen(function*() {
      const { seen, store } = observed(yield* memoryStore, 400)
      yield* store.insert(key("key_warm"), hashOf(1), Effect.void)
      const poller = yield* whileTimePasses(pollerOf({ poll: unchanged }, 400), 50)
      const cache = yield* KeyCache.make(store, poller)
      for (let i = 0; i < 200; i++) {
        const holder = yield* whileTimePasses(cache.get(hashOf(1)), 50)
        assert.strictEqual(holder?.key.id, "key_warm")
        yield* TestClock.adjust(50)
      }
      assert.strictEqual(seen.queries, 1)
    }))

  it.effect("looks up any number of unknown keys with one query at a time, and each key once", () =>
    Effect.gen(function*() {
      const { seen, store } = observed(yield* memoryStore, 10)
      yield* store.insert(key("key_known"), hashOf(500), Effect.void)
      const poller = yield* whileTimePasses(pollerOf({ poll: unchanged }, 10), 10)
      const cache = yield* KeyCache.make(store, poller)
      const getAll = Effect.forEach(Array.from({ length: 3000 }, (_, n) => hashOf(n)), cache.get, {
        concurrency: "unbounded"
      })
      const found = yield* whileTimePasses(getAll, 5)
      assert.deepStrictEqual(found.filter((holder) => holder !== undefined).map((holder) => holder.key.id), [
        "key_known"
      ])
      assert.strictEqual(seen.maxInFlight, 1)
      assert.isAtMost(seen.queries, 5)
      const { queries } = seen
      yield* whileTimePasses(getAll, 5)
      assert.strictEqual(seen.queries, queries)
    }))

  it.effect("fails after two seconds if the database does not respond", () =>
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
      // The poller is idle without requests, so the lease ends. The next lookup queries the database.
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
        // The lookup returns the result of the time at which it began.
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
  describe.skipIf(database.skip)("The key cache on PostgreSQL", () => {
    layer(database.layer)((it) => {
      it.effect("keeps its entries while another session has an older transaction open", () =>
        Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          const { seen, store } = observed(yield* sqlStore, 0)
          let polls = 0
          const readChanges = yield* ChangePoller.readChanges
          const poller = yield* ChangePoller.make((snapshot) =>
            Effect.tap(readChanges(snapshot), () => Effect.sync(() => polls++))
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
          yield* store.insert(key("key_kept"), hashOf(1), Effect.void)
          assert.include((yield* readChanges("3:3:")).keys, "key_kept")
          /** Starts another poll, and waits for its result. The database takes real time, not test time. */
          const nextPoll = Effect.gen(function*() {
            const pollsBefore = polls
            yield* cache.get(hashOf(1))
            yield* TestClock.adjust("250 millis")
            yield* until(() => polls > pollsBefore)
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
