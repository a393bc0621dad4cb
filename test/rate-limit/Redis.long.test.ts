/** The limits while a single Redis fails, on a real Redis. */
import { assert, describe, it, layer } from "@effect/vitest"
import { Context, Duration, Effect, Layer } from "effect"
import { until } from "../support/Process.ts"
import * as Proxy from "../support/Proxy.ts"
import * as Redis from "../support/Redis.ts"
import { freePort } from "../support/Temporary.ts"
import * as Limiters from "./Limiters.ts"

// No test lasts for a day, however slow the machine is.
const few = { perMinute: 5, perDay: 5 }

class Server extends Context.Service<Server, Redis.RedisServer>()("test/rate-limit/Server") {
  static readonly layer = Layer.effect(Server, Effect.tap(Redis.run, ({ start }) => start))
}

/** Two limiters that count in the server. */
const twoLimiters = Effect.flatMap(Server, ({ url }) => Limiters.makeTwo(url))

describe.skipIf(Redis.missing !== undefined)("RateLimiter on one Redis", () => {
  layer(Server.layer, { excludeTestServices: true })((it) => {
    /** Faults, and what Redis still allows afterwards, of 20 requests, of which it has counted 5. */
    const faults = [["is killed and comes back empty", 20], ["is frozen", 15]] as const
    it.effect.each(faults)(
      "allows each process the rest of the limit that it knows while Redis %s",
      ([fault, left]) =>
        Effect.gen(function*() {
          const { kill, pid, start } = yield* Server
          const signal = (name: NodeJS.Signals) => Effect.sync(() => process.kill(pid(), name))
          const [begin, end] = fault === "is frozen" ? [signal("SIGSTOP"), signal("SIGCONT")] : [kill, start]
          const limiters = yield* twoLimiters
          const [one, other] = limiters
          const [used, banned] = [`key:used ${fault}`, `key:banned ${fault}`] as const
          const countAllowed = (limiter: Limiters.Limiter, requests: number) =>
            Effect.map(
              Effect.replicateEffect(limiter.charge(used, { perMinute: 1_000_000, perDay: 20 }), requests),
              (decisions) => decisions.filter(({ allowed }) => allowed).length
            )
          assert.strictEqual(yield* countAllowed(one, 2), 2)
          assert.strictEqual(yield* countAllowed(other, 3), 3)
          yield* Effect.replicateEffect(one.charge(banned, few), 30)
          assert.strictEqual(yield* Limiters.countLocalDecisions(limiters), 0)
          yield* begin
          // The breaker opens at a request.
          const late = limiters.map(({ charge }) => charge("key:late", few))
          const [slow] = yield* Effect.timed(Effect.all(late, { concurrency: "unbounded" }))
          yield* Limiters.untilAll("fallback", limiters)
          const [fast] = yield* Effect.timed(Effect.replicateEffect(one.charge("key:fast", few), 100))
          // The wait of 250 ms, on a busy machine.
          for (const waited of [slow, fast]) assert.isBelow(Duration.toMillis(waited), 1_000)
          assert.deepStrictEqual([yield* countAllowed(one, 40), yield* countAllowed(other, 40)], [18, 15])
          assert.isDefined((yield* one.charge(banned, few)).bannedUntil)
          assert.isUndefined((yield* other.charge(banned, few)).bannedUntil)
          yield* end
          yield* Limiters.untilAll("shared", limiters)
          assert.strictEqual((yield* countAllowed(one, 40)) + (yield* countAllowed(other, 40)), left)
          yield* Limiters.assertExact(limiters, [`key:after ${fault}`])
        })
    )

    it.effect("says that a ban was lifted in this process alone while Redis does not reply", () =>
      Effect.gen(function*() {
        const proxy = yield* Proxy.run((yield* Server).port)
        const [near] = yield* twoLimiters
        const limiter = yield* Limiters.make(`redis://127.0.0.1:${proxy.port}`)
        const isBanned = ({ peek }: Limiters.Limiter) =>
          Effect.map(peek("key:lifted", few), ({ bannedUntil }) => bannedUntil !== undefined)
        yield* Limiters.untilAll("shared", [limiter])
        yield* Effect.replicateEffect(limiter.charge("key:lifted", few), 10)
        proxy.setFault("refusing")
        yield* isBanned(limiter)
        yield* Limiters.untilAll("fallback", [limiter])
        assert.strictEqual(yield* limiter.unban("key:lifted"), "fallback")
        assert.deepStrictEqual([yield* isBanned(limiter), yield* isBanned(near)], [false, true])
        proxy.setFault(undefined)
        yield* Limiters.untilAll("shared", [limiter])
        assert.isTrue(yield* isBanned(limiter))
        assert.strictEqual(yield* limiter.unban("key:lifted"), "shared")
        assert.isFalse(yield* isBanned(near))
      }))

    it.effect("counts on its own while Redis is a replica", () =>
      Effect.gen(function*() {
        const { port } = yield* Server
        const limiters = yield* twoLimiters
        yield* Redis.command(port, "REPLICAOF", "127.0.0.1", "1")
        yield* Effect.replicateEffect(limiters[0].charge("key:written", few), few.perDay)
        assert.isFalse((yield* limiters[0].charge("key:written", few)).allowed)
        assert.strictEqual(yield* limiters[0].counting, "fallback")
        yield* Redis.command(port, "REPLICAOF", "NO", "ONE")
        yield* Limiters.untilAll("shared", limiters)
      }))

    it.effect("starts with one log line, and counts on its own, if the password is wrong or a permission is missing", () =>
      Effect.gen(function*() {
        const { port } = yield* Server
        const permissions = "~petstore:limits:* -@all +ping +hello +select +set +get +time +eval +evalsha"
        const connect = Effect.fnUntraced(function*(user: string, password: string, allowed: string) {
          yield* Redis.command(port, "ACL", "SETUSER", user, "on", ">secret", ...allowed.split(" "))
          return yield* Limiters.make(`redis://${user}:${password}@127.0.0.1:${port}`)
        })
        yield* Limiters.untilAll("shared", [yield* connect("petstore", "secret", permissions)])
        const faults = [
          [connect("petstore", "wrong", permissions), "WRONGPASS"],
          [connect("reader", "secret", permissions.replace("+set ", "")), "permission|can't run"],
          [connect("scriptless", "secret", permissions.replace(" +eval +evalsha", "")), "NOPERM"]
        ] as const
        for (const [fault, reason] of faults) {
          const limiter = yield* fault
          assert.isTrue((yield* limiter.charge("key:wrong", few)).allowed)
          assert.strictEqual(yield* limiter.counting, "fallback")
          yield* until(() => limiter.log.length > 0)
          assert.lengthOf(limiter.log, 1)
          assert.match(limiter.log[0] ?? "", new RegExp(`^REDIS_URL: Redis cannot be used.*(?:${reason})`))
          assert.notInclude(limiter.log[0], "secret")
        }
      }))

    it.effect("starts and shuts down while a server accepts connections but never completes a reply", () =>
      Effect.gen(function*() {
        const proxy = yield* Proxy.run((yield* Server).port)
        proxy.setFault("hanging")
        const { charge } = yield* Limiters.make(`redis://127.0.0.1:${proxy.port}`)
        assert.isTrue((yield* charge("key:hanging", few)).allowed)
      }))
  })

  it.live("starts without Redis, with one log line, and counts in Redis once it is there", () =>
    Effect.gen(function*() {
      const port = yield* freePort
      const limiter = yield* Limiters.make(`redis://127.0.0.1:${port}`)
      assert.isTrue((yield* limiter.charge("key:early", few)).allowed)
      assert.strictEqual(yield* limiter.counting, "fallback")
      yield* until(() => limiter.log.length > 0)
      const server = yield* Redis.runWith({ port })
      yield* server.start
      yield* Limiters.untilAll("shared", [limiter])
      const [first, ...others] = limiter.log
      assert.match(first ?? "", /^REDIS_URL: Redis cannot be used.*ECONNREFUSED/)
      assert.deepStrictEqual(others, ["Requests are counted in Redis"])
    }))
})
