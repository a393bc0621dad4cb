/** Tests the limits on a real Redis cluster while a master fails and while slots move. */
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect } from "effect"
import type { Caller } from "../../../src/rate-limit/CallerStates.ts"
import { slotOf } from "../../../src/rate-limit/redis/ClusterMap.ts"
import { keyOf } from "../../../src/rate-limit/redis/RedisScripts.ts"
import * as Redis from "../../support/Redis.ts"
import * as RedisCluster from "../../support/RedisCluster.ts"
import { load, makeLimiter, sleep, until, untilFallback, untilShared } from "./FailoverLoad.ts"

const setup = Effect.gen(function*() {
  const cluster = yield* RedisCluster.run()
  const limiters = [yield* makeLimiter(cluster.url), yield* makeLimiter(cluster.url)] as const
  yield* untilShared(limiters)
  return { ...cluster, limiters }
})

/** The index of the master that owns a caller at the start. */
const masterOf = (caller: Caller): number => Math.min(2, Math.floor(slotOf(keyOf(caller)) / 5461))

/** So many callers of each master. */
const callersNamed = (name: string, perMaster: number): ReadonlyArray<ReadonlyArray<Caller>> => {
  const all = Array.from({ length: 100 * perMaster }, (_, index): Caller => `key:${name}-${index}`)
  return [0, 1, 2].map((master) => all.filter((caller) => masterOf(caller) === master).slice(0, perMaster))
}

type Limiters = Effect.Success<typeof setup>["limiters"]

const countLocalDecisions = (limiters: Limiters) =>
  Effect.map(
    Effect.forEach(limiters, ({ localDecisions }) => localDecisions),
    (counts) => counts.reduce((sum, count) => sum + count, 0)
  )

/** Checks that both limiters together allow each caller exactly its limit. */
const assertExact = Effect.fnUntraced(function*(limiters: Limiters, callers: ReadonlyArray<Caller>) {
  const limits = { perMinute: 20, perDay: 1000 }
  yield* Effect.forEach(callers, (caller) =>
    Effect.gen(function*() {
      const decisions = yield* Effect.all(
        Array.from({ length: 15 }, () => limiters.map((limiter) => limiter.charge(caller, limits))).flat(),
        { concurrency: "unbounded" }
      )
      assert.strictEqual(decisions.filter(({ allowed }) => allowed).length, limits.perMinute, caller)
    }), { concurrency: 20, discard: true })
})

/** A machine that stands still for 35 milliseconds makes a process count by itself. */
const machineMayPause = { timeout: 60_000, retry: 2 }

describe.skipIf(Redis.missing !== undefined)("RateLimiter on a Redis cluster", () => {
  it.live(
    "allows exactly the limit to callers of all masters, and decides everything in Redis",
    () =>
      Effect.gen(function*() {
        const { limiters, masters } = yield* setup
        yield* assertExact(limiters, callersNamed("exact", 40).flat())
        assert.strictEqual(yield* countLocalDecisions(limiters), 0)
        for (const { port } of masters) assert.isAtLeast(Number(yield* Redis.command(port, "DBSIZE")), 40)
        for (const limiter of limiters) assert.strictEqual(yield* limiter.fallback, 0)
      }),
    machineMayPause
  )

  it.live(
    "counts the callers of a killed master by itself until a replica is promoted, and all others in Redis",
    () =>
      Effect.gen(function*() {
        const { limiters, masters, replicas } = yield* setup
        const perMinute = 100
        const callers = callersNamed("busy", 10)
        const [lost = [], ...kept] = callers
        yield* assertExact(limiters, callersNamed("before", 5).flat())
        const before = yield* countLocalDecisions(limiters)
        const running = yield* load({ limiters, callers: callers.flat(), perMinute, everyMs: 30 })
        yield* sleep(500)
        yield* masters[0].kill
        const start = performance.now()
        yield* untilFallback(limiters[0])
        assert.strictEqual(yield* limiters[0].fallback, 1)
        const replica = replicas[0]?.port ?? 0
        yield* until(Effect.map(Redis.command(replica, "ROLE"), (role) => role.startsWith("master")))
        const promoted = performance.now() - start
        yield* untilShared(limiters)
        const shared = performance.now() - start
        // Rejections of keys become bans, so the load ends before the limits are long exceeded.
        yield* sleep(4_000)
        yield* running.stop

        assert.isBelow(running.slowest(), 150)
        for (const caller of kept.flat()) assert.strictEqual(running.allowed.get(caller), perMinute, caller)
        const most = Math.max(...lost.map((caller) => running.allowed.get(caller) ?? 0))
        for (const caller of lost) {
          assert.isAtLeast(running.allowed.get(caller) ?? 0, perMinute)
          assert.isAtMost(running.allowed.get(caller) ?? 0, 2 * perMinute)
        }
        const local = (yield* countLocalDecisions(limiters)) - before
        console.info(
          `cluster: kill -9 of a master: promotion after ${Math.round(promoted)} ms, back in Redis after ` +
            `${Math.round(shared)} ms, slowest decision ${Math.round(running.slowest())} ms, ` +
            `${local} decisions without Redis, at most ${most} of ${perMinute} requests allowed`
        )
        yield* assertExact(limiters, callersNamed("after", 5).flat())
        assert.strictEqual((yield* countLocalDecisions(limiters)) - before, local)
      }),
    machineMayPause
  )

  it.live(
    "allows exactly the limit while slots move between masters, and decides everything in Redis",
    () =>
      Effect.gen(function*() {
        const { limiters, masters: [from, to, other] } = yield* setup
        const [early = []] = callersNamed("early", 6)
        const [late = []] = callersNamed("late", 6)
        const perMinute = 100
        const first = yield* load({ limiters, callers: early, perMinute, everyMs: 20 })
        yield* sleep(200)
        const slots = [...new Set([...early, ...late].map((caller) => String(slotOf(keyOf(caller)))))]
        const onEach = <A>(move: (slot: string) => Effect.Effect<A>) => Effect.forEach(slots, move)
        yield* onEach((slot) => Redis.command(to.port, "CLUSTER", "SETSLOT", slot, "IMPORTING", from.id))
        yield* onEach((slot) => Redis.command(from.port, "CLUSTER", "SETSLOT", slot, "MIGRATING", to.id))
        // Only the importing master knows the callers of this load.
        const second = yield* load({ limiters, callers: late, perMinute, everyMs: 20 })
        yield* sleep(200)
        assert.isAtLeast(Number(yield* Redis.command(to.port, "DBSIZE")), 6)
        yield* onEach(Effect.fnUntraced(function*(slot) {
          const keys = (yield* Redis.command(from.port, "CLUSTER", "GETKEYSINSLOT", slot, "100")).split("\n")
          for (const key of keys.filter((each) => each !== "")) {
            yield* Redis.command(from.port, "MIGRATE", "127.0.0.1", String(to.port), key, "0", "1000")
          }
        }))
        yield* sleep(200)
        assert.isAtLeast(Number(yield* Redis.command(to.port, "DBSIZE")), 12)
        for (const { port } of [to, from, other]) {
          yield* onEach((slot) => Redis.command(port, "CLUSTER", "SETSLOT", slot, "NODE", to.id))
        }
        yield* sleep(1_500)
        yield* first.stop
        yield* second.stop
        assert.strictEqual(yield* countLocalDecisions(limiters), 0)
        for (const [caller, allowed] of [...first.allowed, ...second.allowed]) {
          assert.strictEqual(allowed, perMinute, caller)
        }
        console.info(
          `cluster: ${slots.length} slots moved: slowest decision ` +
            `${Math.round(Math.max(first.slowest(), second.slowest()))} ms of ${first.decided() + second.decided()}`
        )
      }),
    machineMayPause
  )

  it.live(
    "follows a replica that an operator promotes, and allows no caller more than the limit of each process",
    () =>
      Effect.gen(function*() {
        const { limiters, masters, replicas } = yield* setup
        const perMinute = 100
        const [moved = [], ...kept] = callersNamed("planned", 10)
        const running = yield* load({ limiters, callers: [...moved, ...kept.flat()], perMinute, everyMs: 30 })
        yield* sleep(500)
        yield* Redis.command(replicas[0]?.port ?? 0, "CLUSTER", "FAILOVER")
        const start = performance.now()
        yield* untilFallback(limiters[0])
        yield* untilShared(limiters)
        const shared = performance.now() - start
        yield* sleep(2_500)
        yield* running.stop
        assert.isBelow(shared, 3_000)
        for (const caller of kept.flat()) assert.strictEqual(running.allowed.get(caller), perMinute, caller)
        const most = Math.max(...moved.map((caller) => running.allowed.get(caller) ?? 0))
        assert.isAtMost(most, 2 * perMinute)
        console.info(
          `cluster: planned failover: back in Redis after ${Math.round(shared)} ms, ` +
            `at most ${most} of ${perMinute} requests allowed`
        )
        // The old master is a replica now. Its connection is closed.
        assert.notInclude(yield* Redis.command(masters[0].port, "CLIENT", "LIST"), "user=petstore")
      }),
    machineMayPause
  )

  it.live("does not use one node of a cluster, which a plain URL names", () =>
    Effect.gen(function*() {
      const { masters: [first] } = yield* RedisCluster.run({ replicaCount: 0 })
      const limiter = yield* makeLimiter(`redis://127.0.0.1:${first.port}`)
      const charge = Effect.forEach(
        callersNamed("plain", 1).flat(),
        (caller) => limiter.charge(caller, { perMinute: 5, perDay: 5 })
      )
      yield* charge
      assert.strictEqual(yield* limiter.counting, "fallback")
      assert.isAtLeast(yield* limiter.localDecisions, 2)
    }), 60_000)

  it.live(
    "starts before the cluster, and merges its counts into all masters when they are there",
    () =>
      Effect.gen(function*() {
        const early = yield* Deferred.make<Effect.Success<ReturnType<typeof makeLimiter>>>()
        const few = { perMinute: 5, perDay: 100 }
        const callers = callersNamed("first", 3).flat()
        const { url } = yield* RedisCluster.run({
          replicaCount: 0,
          start: (nodes) =>
            Effect.gen(function*() {
              const limiter = yield* makeLimiter(`redis+cluster://127.0.0.1:${nodes[1]?.port}`)
              for (const caller of callers) yield* limiter.charge(caller, few)
              assert.strictEqual(yield* limiter.counting, "fallback")
              assert.strictEqual(yield* limiter.fallback, 1)
              yield* Deferred.succeed(early, limiter)
              yield* Effect.forEach(nodes, (node) => node.start)
            })
        })
        const limiter = yield* Deferred.await(early)
        yield* untilShared([limiter])
        const other = yield* makeLimiter(url)
        for (const caller of callers) {
          yield* until(Effect.map(other.peek(caller, few), ({ windows: [minute] }) => minute.remaining === 4))
        }
        assert.strictEqual(yield* limiter.fallback, 0)
      }),
    machineMayPause
  )
})
