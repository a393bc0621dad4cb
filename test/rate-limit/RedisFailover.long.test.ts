/** The limits while masters fail and slots move, on a real Redis with sentinels and a real cluster. */
import { assert, describe, it, layer } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import type { Caller } from "../../src/rate-limit/CallerStates.ts"
import { slotOf } from "../../src/rate-limit/RedisClient.ts"
import { keyOf } from "../../src/rate-limit/RedisScript.ts"
import * as Redis from "../support/Redis.ts"
import * as RedisCluster from "../support/RedisCluster.ts"
import * as Limiters from "./Limiters.ts"

const perDay = 100

/** Asserts that a caller was allowed exactly its limit, except for the decisions that limiters made without Redis. */
const assertExact = (allowed: ReadonlyMap<Caller, number>, limit: number, localDecisions: number) => {
  for (const [caller, count] of allowed) assert.closeTo(count, limit, localDecisions, caller)
}

/** Sends more requests than the limit of each caller allows, and asserts that the limit is exact. */
const checkExact = Effect.fnUntraced(function*(
  limiters: ReadonlyArray<Limiters.Limiter>,
  callers: ReadonlyArray<Caller>
) {
  const limits = { perMinute: 20, perDay: 20 }
  const before = yield* Limiters.countLocalDecisions(limiters)
  const allowed = new Map<Caller, number>()
  for (const caller of callers) {
    const decisions = yield* Effect.all(
      Array.from({ length: 15 }, () => limiters.map((limiter) => limiter.charge(caller, limits))).flat(),
      { concurrency: "unbounded" }
    )
    allowed.set(caller, decisions.filter((decision) => decision.allowed).length)
  }
  assertExact(allowed, limits.perDay, (yield* Limiters.countLocalDecisions(limiters)) - before)
})

const callersNamed = (name: string, length: number) =>
  Array.from({ length }, (_, index): Caller => `key:${name}-${index}`)

/** Charges callers until all of them are at their limit. */
const untilUsedUp = (limiter: Limiters.Limiter, callers: ReadonlyArray<Caller>) =>
  Effect.forEach(callers, (caller) =>
    Limiters.until(Effect.map(
      limiter.peek(caller, { perMinute: 1_000_000, perDay }),
      ({ allowed }) => !allowed
    )))

describe.skipIf(Redis.missing !== undefined)("RateLimiter on a Redis with sentinels", () => {
  it.live("counts by itself until the replica is promoted, then in the replica, and never in the old master again", () =>
    Effect.gen(function*() {
      const { ask, master, replica, url } = yield* RedisCluster.runWithSentinels
      const limiters = [yield* Limiters.make(url), yield* Limiters.make(url)] as const
      yield* Limiters.untilAll("shared", limiters)
      yield* checkExact(limiters, callersNamed("before", 5))
      const callers = callersNamed("busy", 5)
      const allowed = yield* Limiters.load({
        limiters,
        callers,
        perDay,
        during: Effect.gen(function*() {
          yield* master.kill
          yield* Limiters.untilAll("fallback", limiters)
          yield* Limiters.untilAll("shared", limiters)
          assert.match(yield* ask(replica.port, "ROLE"), /^master/)
          yield* untilUsedUp(limiters[0], callers)
        })
      })
      // Each process allows at most its limit by itself, and so does each master.
      for (const [caller, count] of allowed) {
        assert.isAtLeast(count, 1, caller)
        assert.isAtMost(count, perDay * (limiters.length + 2), caller)
      }
      // The old master starts as a master. The sentinels make it a replica ten seconds later.
      yield* master.start
      yield* checkExact(limiters, callersNamed("after", 5))
      assert.notInclude(yield* ask(master.port, "INFO", "commandstats"), "cmdstat_evalsha")
    }))
})

class Cluster extends Context.Service<Cluster, Effect.Success<typeof RedisCluster.run>>()(
  "test/rate-limit/Cluster"
) {
  static readonly layer = Layer.effect(Cluster, RedisCluster.run)
}

/** So many callers of each master that a cluster starts with. */
const callersOfMasters = (name: string, perMaster: number) => {
  const all = callersNamed(name, 100 * perMaster)
  const masterOf = (caller: Caller) => Math.min(2, Math.floor(slotOf(keyOf(caller)) / 5461))
  return [0, 1, 2].map((master) => all.filter((caller) => masterOf(caller) === master).slice(0, perMaster))
}

describe.skipIf(Redis.missing !== undefined)("RateLimiter on a Redis cluster", () => {
  layer(Cluster.layer, { excludeTestServices: true })((it) => {
    /** The limiters of two processes. */
    const twoLimiters = Effect.gen(function*() {
      const { url } = yield* Cluster
      const limiters = [yield* Limiters.make(url), yield* Limiters.make(url)] as const
      yield* Limiters.untilAll("shared", limiters)
      return limiters
    })

    it.effect("allows exactly the limit to callers of all masters", () =>
      Effect.gen(function*() {
        const { masters } = yield* Cluster
        yield* checkExact(yield* twoLimiters, callersOfMasters("exact", 10).flat())
        for (const { port } of masters) assert.isAtLeast(Number(yield* Redis.command(port, "DBSIZE")), 10)
      }))

    it.effect("does not use one node, which a plain URL names", () =>
      Effect.gen(function*() {
        const { masters: [{ port }] } = yield* Cluster
        const limiter = yield* Limiters.make(`redis://petstore:secret@127.0.0.1:${port}`)
        for (const caller of callersOfMasters("plain", 1).flat()) {
          yield* limiter.charge(caller, { perMinute: 5, perDay })
        }
        assert.strictEqual(yield* limiter.counting, "fallback")
      }))

    it.effect("allows exactly the limit while slots move between masters", () =>
      Effect.gen(function*() {
        const { masters: [from, to, other] } = yield* Cluster
        const limiters = yield* twoLimiters
        const [callers = []] = callersOfMasters("moved", 10)
        const before = yield* Limiters.countLocalDecisions(limiters)
        const allowed = yield* Limiters.load({
          limiters,
          callers,
          perDay,
          during: Effect.gen(function*() {
            for (const slot of new Set(callers.map((caller) => String(slotOf(keyOf(caller)))))) {
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
            yield* untilUsedUp(limiters[0], callers)
          })
        })
        assertExact(allowed, perDay, (yield* Limiters.countLocalDecisions(limiters)) - before)
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
          const lost = groups[index] ?? []
          const kept = groups.flatMap((group, each) => each === index ? [] : group)
          const replica = replicas[index]?.port ?? 0
          const allowed = yield* Limiters.load({
            limiters,
            callers: [...lost, ...kept],
            perDay,
            during: Effect.gen(function*() {
              yield* begin(masters[index] ?? masters[0], replica)
              yield* Limiters.until(Effect.map(Redis.command(replica, "ROLE"), (role) => role.startsWith("master")))
              yield* untilUsedUp(limiters[0], groups.flat())
              yield* Limiters.untilAll("shared", limiters)
            })
          })
          for (const caller of lost) assert.isAtMost(allowed.get(caller) ?? 0, perDay * (limiters.length + 2), caller)
          for (const caller of kept) assert.isAtMost(allowed.get(caller) ?? 0, perDay * (limiters.length + 1), caller)
          yield* checkExact(limiters, callersOfMasters(`after ${index}`, 5).flat())
        }))
    }
  })
})
