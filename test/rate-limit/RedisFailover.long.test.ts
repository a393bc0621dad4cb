/** The limits while masters fail and slots move, on a real Redis with sentinels and a real cluster. */
import { assert, describe, it, layer } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import type { Caller } from "../../src/rate-limit/RateLimiter.ts"
import { slotOf } from "../../src/rate-limit/RedisClient.ts"
import { untilTrue } from "../support/Process.ts"
import * as Redis from "../support/Redis.ts"
import * as RedisCluster from "../support/RedisCluster.ts"
import * as Limiters from "./Limiters.ts"

/** Few enough that each process and each master uses them up in an outage. */
const limit = 40

const callersNamed = (name: string, length: number) =>
  Array.from({ length }, (_, index): Caller => `key:${name}-${index}`)

/** Charges callers through both limiters until all of them are at their limit, during and after `failover`. */
const loadUntilUsedUp = <E>(
  limiters: readonly [Limiters.Limiter, Limiters.Limiter],
  callers: ReadonlyArray<Caller>,
  failover: Effect.Effect<unknown, E>,
  perDay = limit
) => {
  const untilUsedUp = Effect.forEach(callers, (caller) => {
    const peek = limiters[0].peek(caller, { perMinute: 1_000_000, perDay })
    return untilTrue(Effect.map(peek, ({ allowed }) => !allowed))
  })
  return Limiters.load({ limiters, callers, perDay, during: Effect.andThen(failover, untilUsedUp) })
}

describe.skipIf(Redis.missing !== undefined)("RateLimiter on Redis Sentinel", () => {
  it.live("counts on its own until the replica is promoted, then in the new master, and never in the old one", () =>
    Effect.gen(function*() {
      const { ask, master, replica, url } = yield* RedisCluster.runWithSentinels
      const limiters = yield* Limiters.makeTwo(url)
      yield* Limiters.assertExact(limiters, callersNamed("before", 5))
      const failover = Effect.gen(function*() {
        yield* master.kill
        yield* Limiters.untilAll("fallback", limiters)
        yield* Limiters.untilAll("shared", limiters)
        assert.match(yield* ask(replica.port, "ROLE"), /^master/)
      })
      const allowed = yield* loadUntilUsedUp(limiters, callersNamed("busy", 5), failover)
      // Each process allows at most its limit by itself, and so does each master.
      for (const [caller, count] of allowed) assert.isAtMost(count, limit * (limiters.length + 2), caller)
      // The old master starts as a master. The sentinels make it a replica ten seconds later.
      yield* master.start
      yield* Limiters.assertExact(limiters, callersNamed("after", 5))
      assert.notInclude(yield* ask(master.port, "INFO", "commandstats"), "cmdstat_evalsha")
    }))
})

class Cluster extends Context.Service<Cluster, Effect.Success<typeof RedisCluster.run>>()("test/rate-limit/Cluster") {
  static readonly layer = Layer.effect(Cluster, RedisCluster.run)
}

/** So many callers of each master that a cluster starts with. */
const callersOfMasters = (name: string, perMaster: number) => {
  const all = callersNamed(name, 100 * perMaster)
  const masterOf = (caller: Caller) => Math.min(2, Math.floor(slotOf(caller) / 5461))
  return [0, 1, 2].map((master) => all.filter((caller) => masterOf(caller) === master).slice(0, perMaster))
}

describe.skipIf(Redis.missing !== undefined)("RateLimiter on a Redis cluster", () => {
  layer(Cluster.layer, { excludeTestServices: true })((it) => {
    const twoLimiters = Effect.flatMap(Cluster, ({ url }) => Limiters.makeTwo(url))

    it.effect("does not start with a plain URL, which names only one node", () =>
      Effect.gen(function*() {
        const { masters: [{ port }] } = yield* Cluster
        const limiter = yield* Limiters.make(`redis://petstore:secret@127.0.0.1:${port}`)
        for (const caller of callersOfMasters("plain", 1).flat()) {
          yield* limiter.charge(caller, { perMinute: 5, perDay: limit })
        }
        assert.strictEqual(yield* limiter.counting, "fallback")
      }))

    it.effect("allows exactly the limit while slots move between masters", () =>
      Effect.gen(function*() {
        const { masters: [from, to, other] } = yield* Cluster
        const limiters = yield* twoLimiters
        const [callers = []] = callersOfMasters("moved", 10)
        const moveSlots = Effect.gen(function*() {
          for (const slot of new Set(callers.map((caller) => String(slotOf(caller))))) {
            yield* Redis.command(to.port, "CLUSTER", "SETSLOT", slot, "IMPORTING", from.id)
            yield* Redis.command(from.port, "CLUSTER", "SETSLOT", slot, "MIGRATING", to.id)
            const keys = (yield* Redis.command(from.port, "CLUSTER", "GETKEYSINSLOT", slot, "100")).split("\n")
            for (const key of keys.filter((each) => each !== "")) {
              yield* Redis.command(from.port, "MIGRATE", "127.0.0.1", String(to.port), key, "0", "1000")
            }
            for (const { port } of [to, from, other]) {
              yield* Redis.command(port, "CLUSTER", "SETSLOT", slot, "NODE", to.id)
            }
          }
        })
        // Enough for requests during each move.
        const allowed = yield* loadUntilUsedUp(limiters, callers, moveSlots, 400)
        assert.deepStrictEqual([...allowed.values()], callers.map(() => 400))
        assert.strictEqual(yield* Limiters.countLocalDecisions(limiters), 0)
      }))

    const failovers = {
      "an operator promotes": {
        index: 2,
        begin: (_: RedisCluster.Node, replica: number) => Redis.command(replica, "CLUSTER", "FAILOVER")
      },
      "takes over from a killed master": { index: 1, begin: ({ kill }: RedisCluster.Node) => kill }
    }
    for (const [name, { begin, index }] of Object.entries(failovers)) {
      it.effect(`counts in the replica that ${name}, and always in Redis for the callers of the other masters`, () =>
        Effect.gen(function*() {
          const { masters, replicas } = yield* Cluster
          const limiters = yield* twoLimiters
          const groups = callersOfMasters(name.slice(0, 5), 5)
          const replica = replicas[index]?.port ?? 0
          const failover = Effect.gen(function*() {
            yield* begin(masters[index] ?? masters[0], replica)
            yield* untilTrue(Effect.map(Redis.command(replica, "ROLE"), (role) => role.startsWith("master")))
          })
          const allowed = yield* loadUntilUsedUp(limiters, groups.flat(), failover)
          yield* Limiters.untilAll("shared", limiters)
          for (const [caller, count] of allowed) {
            // The breaker of the killed master opens: each process and both of its masters allow the limit.
            const isExact = begin === failovers["an operator promotes"].begin || !groups[index]?.includes(caller)
            if (isExact) assert.strictEqual(count, limit, caller)
            else assert.isAtMost(count, limit * (limiters.length + 2), caller)
          }
          yield* Limiters.assertExact(limiters, callersOfMasters(`after ${index}`, 5).flat())
        }))
    }
  })
})
