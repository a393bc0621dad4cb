/** Tests the limits on a real Redis with three sentinels while its master fails. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import type { Caller } from "../../../src/rate-limit/CallerStates.ts"
import * as Redis from "../../support/Redis.ts"
import * as RedisCluster from "../../support/RedisCluster.ts"
import { load, makeLimiter, sleep, until, untilFallback, untilShared } from "./FailoverLoad.ts"

const callersNamed = (name: string): ReadonlyArray<Caller> =>
  Array.from({ length: 10 }, (_, index): Caller => `key:${name}-${index}`)

describe.skipIf(Redis.missing !== undefined)("RateLimiter on a Redis with sentinels", () => {
  it.live(
    "counts by itself from the kill of the master until the promotion of the replica, and never uses the old master again",
    () =>
      Effect.gen(function*() {
        const { ask, master, replica, url } = yield* RedisCluster.runWithSentinels
        const limiters = [yield* makeLimiter(url), yield* makeLimiter(url)] as const
        yield* untilShared(limiters)
        const perMinute = 100
        const callers = callersNamed("busy")
        const running = yield* load({ limiters, callers, perMinute, everyMs: 30 })
        yield* sleep(500)
        for (const limiter of limiters) assert.strictEqual(yield* limiter.localDecisions, 0)
        yield* master.kill
        const start = performance.now()
        yield* untilFallback(limiters[0])
        assert.strictEqual(yield* limiters[0].fallback, 1)
        yield* until(Effect.map(ask(replica.port, "ROLE"), (role) => role.startsWith("master")))
        const promoted = performance.now() - start
        yield* untilShared(limiters)
        const shared = performance.now() - start
        yield* sleep(1_000)
        yield* running.stop

        assert.isBelow(running.slowest(), 150)
        assert.isBelow(shared - promoted, 4_000)
        const most = Math.max(...running.allowed.values())
        for (const [caller, allowed] of running.allowed) {
          assert.isAtLeast(allowed, perMinute, caller)
          assert.isAtMost(allowed, 2 * perMinute, caller)
        }
        console.info(
          `sentinel: kill -9 of the master: promotion after ${Math.round(promoted)} ms, back in Redis after ` +
            `${Math.round(shared)} ms, slowest decision ${Math.round(running.slowest())} ms, ` +
            `at most ${most} of ${perMinute} requests allowed`
        )

        // The old master starts as a master, until the sentinels make it a replica.
        yield* master.start
        const after = callersNamed("after")
        const late = yield* load({ limiters, callers: after, perMinute: 20, everyMs: 50 })
        yield* until(Effect.map(ask(master.port, "ROLE"), (role) => role.startsWith("slave")))
        assert.notInclude(yield* ask(master.port, "CLIENT", "LIST"), "user=petstore")
        yield* sleep(2_000)
        yield* late.stop
        for (const caller of after) assert.strictEqual(late.allowed.get(caller), 20, caller)
        assert.include(yield* ask(replica.port, "CLIENT", "LIST"), "user=petstore")
        for (const limiter of limiters) assert.strictEqual(yield* limiter.counting, "shared")
      }),
    90_000
  )

  it.live(
    "leaves a master that the sentinels replace while it is up, within two seconds",
    () =>
      Effect.gen(function*() {
        const { ask, master, replica, sentinels, url } = yield* RedisCluster.runWithSentinels
        const limiters = [yield* makeLimiter(url), yield* makeLimiter(url)] as const
        yield* untilShared(limiters)
        const callers = callersNamed("moved")
        const running = yield* load({ limiters, callers, perMinute: 100, everyMs: 50 })
        yield* ask(sentinels[0]?.port ?? 0, "SENTINEL", "FAILOVER", "pets")
        yield* until(Effect.map(ask(replica.port, "CLIENT", "LIST"), (text) => text.includes("user=petstore")))
        yield* untilShared(limiters)
        yield* sleep(3_000)
        yield* running.stop
        assert.notInclude(yield* ask(master.port, "CLIENT", "LIST"), "user=petstore")
        assert.isBelow(running.slowest(), 150)
        for (const [caller, allowed] of running.allowed) assert.isAtMost(allowed, 200, caller)
      }),
    60_000
  )
})
