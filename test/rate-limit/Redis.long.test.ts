/** The limits while a single Redis fails, on a real Redis. */
import { assert, describe, it, layer } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { createServer } from "node:net"
import { freePort } from "../support/Harness.ts"
import * as Proxy from "../support/Proxy.ts"
import * as Redis from "../support/Redis.ts"
import * as Limiters from "./Limiters.ts"

// No test lasts for a day, however slow the machine is.
const few = { perMinute: 5, perDay: 5 }
const perDay = 100

class Server extends Context.Service<Server, Redis.RedisServer>()("test/rate-limit/Server") {
  static readonly layer = Layer.effect(Server, Effect.tap(Redis.run, ({ start }) => start))
}

/** Two limiters that count in the server. */
const twoLimiters = Effect.gen(function*() {
  const { url } = yield* Server
  const limiters = [yield* Limiters.make(url), yield* Limiters.make(url)] as const
  yield* Limiters.untilAll("shared", limiters)
  return limiters
})

/** Charges a caller through both limiters in turn. Returns the number of allowed requests. */
const countAllowed = (limiters: ReadonlyArray<Limiters.Limiter>, caller: `key:${string}`) =>
  Effect.map(
    Effect.forEach(Array.from({ length: 10 }), () => Effect.forEach(limiters, (one) => one.charge(caller, few))),
    (decisions) => decisions.flat().filter(({ allowed }) => allowed).length
  )

/** Asserts that requests are counted in Redis, except for those that a limiter decided without it. */
const assertShared = Effect.fnUntraced(function*(
  limiters: ReadonlyArray<Limiters.Limiter>,
  caller: `key:${string}`
) {
  const before = yield* Limiters.countLocalDecisions(limiters)
  const allowed = yield* countAllowed(limiters, caller)
  const local = (yield* Limiters.countLocalDecisions(limiters)) - before
  assert.closeTo(allowed, few.perDay, local)
})

describe.skipIf(Redis.missing !== undefined)("RateLimiter on one Redis", () => {
  layer(Server.layer, { excludeTestServices: true })((it) => {
    const faults = {
      "is killed and comes back empty": ({ kill, start }: Redis.RedisServer) => ({ begin: kill, end: start, lives: 2 }),
      "is frozen": ({ pid }: Redis.RedisServer) => ({
        begin: Effect.sync(() => process.kill(pid(), "SIGSTOP")),
        end: Effect.sync(() => process.kill(pid(), "SIGCONT")),
        lives: 1
      })
    }
    for (const [fault, inject] of Object.entries(faults)) {
      it.effect(`decides every request while Redis ${fault}, from the last counts and bans, and counts in Redis again`, () =>
        Effect.gen(function*() {
          const { begin, end, lives } = inject(yield* Server)
          const limiters = yield* twoLimiters
          const [one] = limiters
          const [used, banned, busy] = [`key:used ${fault}`, `key:banned ${fault}`, `key:busy ${fault}`] as const
          const before = yield* Effect.forEach([1, 2, 3], () => one.charge(used, few))
          for (let i = 0; i < 30; i++) yield* one.charge(banned, few)
          const early = yield* one.localDecisions
          const allowed = yield* Limiters.load({
            limiters,
            callers: [busy],
            perDay,
            during: Effect.gen(function*() {
              yield* begin
              yield* Limiters.untilAll("fallback", limiters)
              const after = yield* Effect.forEach([4, 5, 6, 7, 8], () => one.charge(used, few))
              assert.closeTo([...before, ...after].filter((each) => each.allowed).length, few.perDay, early)
              assert.isDefined((yield* one.charge(banned, few)).bannedUntil)
              yield* end
              yield* Limiters.untilAll("shared", limiters)
            })
          })
          // Each process allows at most its limit by itself, and so does Redis in each of its lives.
          assert.isAtMost(allowed.get(busy) ?? 0, perDay * (limiters.length + lives))
          yield* assertShared(limiters, `key:after ${fault}`)
          for (const { log } of limiters) {
            assert.match(log.join("\n"), /REDIS_URL: Redis cannot be used. This process counts requests by itself: \w/)
            assert.include(log, "Limits are counted in Redis")
          }
        }))
    }

    it.effect("says that a ban was lifted in this process alone while Redis does not reply", () =>
      Effect.gen(function*() {
        const server = yield* Server
        const proxy = yield* Proxy.run(server.port)
        const [near] = yield* twoLimiters
        const limiter = yield* Limiters.make(`redis://127.0.0.1:${proxy.port}`)
        yield* Limiters.untilAll("shared", [limiter])
        for (let i = 0; i < 10; i++) yield* limiter.charge("key:lifted", few)
        proxy.setFault("refusing")
        yield* limiter.peek("key:lifted", few)
        yield* Limiters.untilAll("fallback", [limiter])
        assert.strictEqual(yield* limiter.unban("key:lifted"), "fallback")
        assert.isUndefined((yield* limiter.peek("key:lifted", few)).bannedUntil)
        assert.isDefined((yield* near.peek("key:lifted", few)).bannedUntil)
        proxy.setFault(undefined)
        yield* Limiters.untilAll("shared", [limiter])
        assert.isDefined((yield* limiter.peek("key:lifted", few)).bannedUntil)
        assert.strictEqual(yield* limiter.unban("key:lifted"), "shared")
        assert.isUndefined((yield* near.peek("key:lifted", few)).bannedUntil)
      }))

    it.effect("counts by itself while Redis cannot write, and logs that once", () =>
      Effect.gen(function*() {
        const { port } = yield* Server
        const [limiter] = yield* twoLimiters
        limiter.log.splice(0)
        yield* Redis.command(port, "REPLICAOF", "127.0.0.1", "1")
        yield* Limiters.until(Effect.map(limiter.charge("key:written", few), ({ allowed }) => !allowed))
        assert.strictEqual(yield* limiter.counting, "fallback")
        // The probes fail too.
        yield* Limiters.until(Effect.map(probesOn(port), (probes) => probes >= 3))
        yield* Redis.command(port, "REPLICAOF", "NO", "ONE")
        yield* Limiters.untilAll("shared", [limiter])
        assert.isAtMost(limiter.log.filter((line) => line.includes("cannot be used")).length, 1)
      }))

    it.effect("decides in Redis after it lost its scripts, and by itself about a caller whose value is invalid", () =>
      Effect.gen(function*() {
        const { port } = yield* Server
        const limiters = yield* twoLimiters
        yield* Redis.command(port, "SCRIPT", "FLUSH")
        yield* assertShared(limiters, "key:scripts")
        yield* Redis.command(port, "RPUSH", "petstore:limits:key:spoilt", "x")
        assert.isTrue((yield* limiters[0].charge("key:spoilt", few)).allowed)
        assert.strictEqual((yield* limiters[0].charge("key:spoilt", few)).windows[0].remaining, 3)
        yield* assertShared(limiters, "key:not spoilt")
      }))

    it.effect("starts with one log line, and counts by itself, when a user lacks a permission or has a wrong password", () =>
      Effect.gen(function*() {
        const { port } = yield* Server
        const permissions = ["~petstore:limits:*", "-@all", "+ping", "+hello", "+select", "+set", "+get", "+time"]
        const lua = ["+eval", "+evalsha"]
        yield* Redis.command(port, "ACL", "SETUSER", "petstore", "on", ">secret", ...permissions, ...lua)
        const other = permissions.filter((each) => each !== "+set")
        yield* Redis.command(port, "ACL", "SETUSER", "reader", "on", ">secret", ...other, ...lua)
        yield* Redis.command(port, "ACL", "SETUSER", "scriptless", "on", ">secret", ...permissions)
        const right = yield* Limiters.make(`redis://petstore:secret@127.0.0.1:${port}`)
        yield* Limiters.untilAll("shared", [right])
        const reasons = {
          "petstore:wrong": "WRONGPASS",
          "reader:secret": "permission|can't run",
          "scriptless:secret": "NOPERM"
        }
        for (const [user, reason] of Object.entries(reasons)) {
          const limiter = yield* Limiters.make(`redis://${user}@127.0.0.1:${port}`)
          assert.isTrue((yield* limiter.charge("key:wrong", few)).allowed)
          assert.strictEqual(yield* limiter.counting, "fallback")
          yield* Limiters.until(Effect.sync(() => limiter.log.length > 0))
          assert.lengthOf(limiter.log, 1)
          assert.match(limiter.log[0] ?? "", new RegExp(`^REDIS_URL: Redis cannot be used.*(?:${reason})`))
          assert.notInclude(limiter.log[0], "secret")
        }
      }))
  })

  it.live("starts without Redis, with one log line, and counts in Redis once it is there", () =>
    Effect.gen(function*() {
      const port = yield* freePort
      const limiter = yield* Limiters.make(`redis://127.0.0.1:${port}`)
      assert.isTrue((yield* limiter.charge("key:early", few)).allowed)
      assert.strictEqual(yield* limiter.counting, "fallback")
      yield* Limiters.until(Effect.sync(() => limiter.log.length > 0))
      const server = yield* Redis.runWith({ port })
      yield* server.start
      yield* Limiters.untilAll("shared", [limiter])
      const [first, ...others] = limiter.log
      assert.match(first ?? "", /^REDIS_URL: Redis cannot be used.*ECONNREFUSED/)
      assert.deepStrictEqual(others, ["Limits are counted in Redis"])
    }))

  it.live("starts and ends while a server accepts connections and never replies", () =>
    Effect.scoped(Effect.gen(function*() {
      const port = yield* freePort
      const server = createServer(() => {}).listen(port, "127.0.0.1")
      yield* Effect.addFinalizer(() => Effect.sync(() => server.close()))
      const decision = Effect.flatMap(Limiters.make(`redis://127.0.0.1:${port}`), ({ charge }) => charge("key:a", few))
      assert.isTrue((yield* Effect.scoped(decision)).allowed)
    })))
})

/** The number of probes that failed on the server since the last reset of its statistics. */
const probesOn = (port: number) =>
  Effect.map(
    Redis.command(port, "INFO", "errorstats"),
    (text) => Number(/errorstat_READONLY:count=(\d+)/.exec(text)?.[1] ?? 0)
  )
