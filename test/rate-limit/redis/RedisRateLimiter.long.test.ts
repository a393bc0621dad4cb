/** Tests the limits while Redis fails, over sockets, with a real Redis behind a proxy that can fail. */
import { NodeRedis } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { Redis } from "effect/persistence"
import { RateLimiter } from "../../../src/rate-limit/RateLimiter.ts"
import * as ClockScripts from "../../../src/rate-limit/redis/ClockScripts.ts"
import * as RedisScripts from "../../../src/rate-limit/redis/RedisScripts.ts"
import { limiterOn } from "../../support/Harness.ts"
import * as Proxy from "../../support/Proxy.ts"
import * as RedisServer from "../../support/Redis.ts"

/** A Redis, a proxy before it, and a limiter behind that proxy. */
const setup = Effect.gen(function*() {
  const redis = yield* RedisServer.run
  yield* redis.start
  const proxy = yield* Proxy.run(redis.port)
  return { redis, proxy, limiter: yield* limiterAt(proxy.port) }
})

const limiterAt = (port: number) =>
  Layer.build(Layer.fresh(limiterOn(`redis://127.0.0.1:${port}`))).pipe(Effect.map(Context.get(RateLimiter)))

const sleep = (milliseconds: number) =>
  Effect.promise(() => new Promise((resolve) => setTimeout(resolve, milliseconds)))

/** Waits until `condition` holds. */
const until = (condition: Effect.Effect<boolean>) =>
  Effect.gen(function*() {
    while (!(yield* condition)) yield* sleep(5)
  })

const counting = (limiter: RateLimiter["Service"], expected: "shared" | "fallback") =>
  until(Effect.map(limiter.counting, (now) => now === expected))

const limits = { perMinute: 2000, perDay: 1_000_000 }

/** Charges `key:busy` 32 at a time while `during` runs. Returns the numbers of decisions, and the longest one in ms. */
const underLoad = Effect.fnUntraced(function*<E>(limiter: RateLimiter["Service"], during: Effect.Effect<void, E>) {
  const result = { allowed: 0, decided: 0, slowest: 0 }
  // 32 callers send 10 requests a second each, which stays below the limit.
  const charge = Effect.gen(function*() {
    const before = performance.now()
    const { allowed } = yield* limiter.charge("key:busy", limits)
    result.slowest = Math.max(result.slowest, performance.now() - before)
    result.decided++
    if (allowed) result.allowed++
    yield* sleep(100)
  })
  const callers = Effect.all(Array.from({ length: 32 }, () => Effect.forever(charge)), { concurrency: "unbounded" })
  yield* Effect.raceFirst(during, callers)
  return result
})

const faults = {
  "is slow": ({ proxy }: Effect.Success<typeof setup>) => ({
    begin: Effect.sync(() => proxy.setFault("slow")),
    end: Effect.sync(() => proxy.setFault(undefined))
  }),
  "refuses connections": ({ proxy }: Effect.Success<typeof setup>) => ({
    begin: Effect.sync(() => proxy.setFault("refusing")),
    end: Effect.sync(() => proxy.setFault(undefined))
  }),
  "stops in the middle of a reply": ({ proxy }: Effect.Success<typeof setup>) => ({
    begin: Effect.sync(() => proxy.setFault("hanging")),
    end: Effect.sync(() => proxy.setFault(undefined))
  }),
  "restarts empty": ({ redis }: Effect.Success<typeof setup>) => ({ begin: redis.kill, end: redis.start })
}

describe.skipIf(RedisServer.missing !== undefined)("RateLimiter on a failing Redis", () => {
  for (const [fault, inject] of Object.entries(faults)) {
    it.live(
      `counts every request within 200 ms while Redis ${fault}, in memory at first and in Redis afterwards`,
      () =>
        Effect.gen(function*() {
          const started = yield* setup
          const { limiter } = started
          const { begin, end } = inject(started)
          const result = yield* underLoad(
            limiter,
            Effect.gen(function*() {
              yield* sleep(300)
              yield* begin
              yield* counting(limiter, "fallback")
              yield* sleep(700)
              yield* end
              yield* counting(limiter, "shared")
              yield* sleep(300)
            })
          )
          // A slow reply takes half a second, and a hanging one never comes.
          assert.isBelow(result.slowest, 200)
          assert.strictEqual(result.allowed, result.decided)
          // Redis counted all of them, and also calls whose replies were lost: at most 32 for each fault.
          const { used } = yield* Effect.map(limiter.peek("key:busy", limits), ({ windows: [minute] }) => ({
            used: minute.limit - minute.remaining
          }))
          assert.isAtLeast(used, result.allowed)
          assert.isAtMost(used, result.allowed + 3 * 32)
          const other = yield* limiterAt(started.redis.port)
          assert.strictEqual((yield* other.peek("key:busy", limits)).windows[0].remaining, 2000 - used)
        }),
      20_000
    )
  }

  it.live("counts every request when Redis loses its scripts", () =>
    Effect.gen(function*() {
      const { limiter, redis } = yield* setup
      const result = yield* underLoad(
        limiter,
        Effect.andThen(sleep(200), Effect.andThen(redis.type("SCRIPT FLUSH"), sleep(300)))
      )
      assert.isAbove(result.allowed, 50)
      assert.strictEqual((yield* limiter.peek("key:busy", limits)).windows[0].remaining, 2000 - result.allowed)
      assert.strictEqual(yield* limiter.counting, "shared")
    }))

  it.live("keeps counts and bans during an outage of Redis, and restores them to an empty Redis", () =>
    Effect.gen(function*() {
      const { limiter, proxy, redis } = yield* setup
      const few = { perMinute: 5, perDay: 100 }
      const charge = (caller: "key:used" | "key:banned") => limiter.charge(caller, few)
      for (let i = 0; i < 3; i++) yield* charge("key:used")
      for (let i = 0; i < 10; i++) yield* charge("key:banned")
      const before = yield* limiter.peek("key:banned", few)
      assert.isDefined(before.bannedUntil)

      proxy.setFault("refusing")
      yield* counting(limiter, "fallback")
      const allowed = yield* Effect.forEach(Array.from({ length: 4 }), () => charge("key:used"))
      assert.deepStrictEqual(allowed.map((decision) => decision.allowed), [true, true, false, false])
      assert.deepInclude(yield* charge("key:banned"), { bannedUntil: before.bannedUntil, windows: before.windows })

      // A Redis that lost its data gets the counts from the processes, also for callers without new requests.
      yield* redis.kill
      yield* redis.start
      proxy.setFault(undefined)
      yield* counting(limiter, "shared")
      const other = yield* limiterAt(redis.port)
      yield* until(Effect.map(other.peek("key:banned", few), ({ bannedUntil }) => bannedUntil !== undefined))
      yield* until(Effect.map(other.peek("key:used", few), ({ windows: [minute] }) => minute.remaining === 0))
      assert.isFalse((yield* other.charge("key:used", few)).allowed)
      const after = yield* other.peek("key:banned", few)
      assert.deepStrictEqual([after.bannedUntil, after.windows], [before.bannedUntil, before.windows])
    }))

  it.live("merges the counts of two processes after an outage of Redis, and keeps a ban lifted", () =>
    Effect.gen(function*() {
      const { limiter: one, proxy, redis } = yield* setup
      const two = yield* limiterAt(proxy.port)
      const few = { perMinute: 20, perDay: 100 }
      for (let i = 0; i < 4; i++) yield* one.charge("key:both", few)
      for (let i = 0; i < 50; i++) yield* one.charge("key:lifted", few)
      yield* two.charge("key:both", few)
      assert.isDefined((yield* two.charge("key:lifted", few)).bannedUntil)

      proxy.setFault("refusing")
      yield* counting(one, "fallback")
      yield* counting(two, "fallback")
      for (let i = 0; i < 3; i++) yield* one.charge("key:both", few)
      for (let i = 0; i < 2; i++) yield* two.charge("key:both", few)
      yield* sleep(5)
      yield* one.unban("key:lifted")
      assert.isUndefined((yield* one.peek("key:lifted", few)).bannedUntil)

      proxy.setFault(undefined)
      yield* counting(one, "shared")
      yield* counting(two, "shared")
      for (const limiter of [one, two]) {
        assert.strictEqual((yield* limiter.peek("key:both", few)).windows[0].remaining, 20 - 5 - 3 - 2)
        assert.isUndefined((yield* limiter.peek("key:lifted", few)).bannedUntil)
      }
      const late = yield* limiterAt(redis.port)
      assert.isUndefined((yield* late.peek("key:lifted", few)).bannedUntil)
    }))

  it.live("shuts down within three seconds while Redis hangs", () =>
    Effect.gen(function*() {
      const { proxy } = yield* setup
      proxy.setFault("hanging")
      const before = performance.now()
      yield* Effect.scoped(limiterAt(proxy.port))
      assert.isBelow(performance.now() - before, 3000)
    }))

  it.live("starts without Redis, and counts in memory until Redis replies", () =>
    Effect.gen(function*() {
      const { proxy, redis } = yield* setup
      for (const fault of ["refusing", "hanging"] as const) {
        proxy.setFault(fault)
        const limiter = yield* limiterAt(proxy.port)
        assert.isTrue((yield* limiter.charge("key:early", limits)).allowed)
        assert.strictEqual(yield* limiter.counting, "fallback")
        proxy.setFault(undefined)
        yield* counting(limiter, "shared")
      }
      const other = yield* limiterAt(redis.port)
      // At least two: Redis may have counted a call whose reply was lost.
      yield* until(Effect.map(other.peek("key:early", limits), ({ windows: [minute] }) => minute.remaining <= 1998))
    }), 20_000)

  /** A Redis whose clock the test sets, and a proxy before it. */
  const clocked = Effect.fnUntraced(function*(ahead: number) {
    const redis = yield* RedisServer.run
    redis.setAhead(ahead / 1000)
    yield* redis.startWithClock
    return { redis, proxy: yield* Proxy.run(redis.port) }
  })

  const cut = Effect.fnUntraced(function*(
    proxy: Effect.Success<ReturnType<typeof Proxy.run>>,
    limiter: RateLimiter["Service"],
    meanwhile: Effect.Effect<unknown>
  ) {
    proxy.setFault("refusing")
    yield* counting(limiter, "fallback")
    yield* meanwhile
    proxy.setFault(undefined)
    yield* counting(limiter, "shared")
  })

  it.live("does not extend a window when a process that never saw it merges its counts", () =>
    Effect.gen(function*() {
      const few = { perMinute: 10, perDay: 10 }
      const { proxy, redis } = yield* clocked(0)
      const before = yield* Effect.scoped(Effect.gen(function*() {
        const one = yield* limiterAt(redis.port)
        for (let i = 0; i < 8; i++) yield* one.charge("key:day", few)
        return yield* one.peek("key:day", few)
      }))
      redis.setAhead(23 * 3_600)
      const two = yield* limiterAt(proxy.port)
      yield* cut(proxy, two, two.charge("key:day", few))
      const { windows: [, day] } = yield* two.peek("key:day", few)
      assert.strictEqual(day.remaining, 1)
      // Responses show the wall clock of the process, which is 23 hours behind.
      assert.closeTo(day.resetAt, before.windows[1].resetAt - 23 * 3_600_000, 5_000)
    }))

  for (const minutes of [5, -5]) {
    it.live(`keeps the length of windows and bans when it first reaches a Redis whose clock is ${minutes} minutes ahead`, () =>
      Effect.gen(function*() {
        const few = { perMinute: 3, perDay: 100 }
        const { proxy } = yield* clocked(minutes * 60_000)
        proxy.setFault("refusing")
        const limiter = yield* limiterAt(proxy.port)
        for (let i = 0; i < 3; i++) yield* limiter.charge("key:used", few)
        for (let i = 0; i < 6; i++) yield* limiter.charge("key:banned", few)
        proxy.setFault(undefined)
        yield* counting(limiter, "shared")
        const { decidedAt, windows: [used] } = yield* limiter.peek("key:used", few)
        assert.strictEqual(used.remaining, 0)
        assert.closeTo(used.resetAt - decidedAt, 60_000, 5_000)
        const banned = yield* limiter.peek("key:banned", few)
        assert.closeTo((banned.bannedUntil ?? 0) - banned.decidedAt, 60_000, 5_000)
      }))
  }

  it.live("merges counts once, even if the reply to the merge is lost", () =>
    Effect.gen(function*() {
      const { limiter, proxy, redis } = yield* setup
      yield* limiter.charge("key:once", limits)
      for (let i = 0; i < 6; i++) {
        yield* cut(proxy, limiter, Effect.all(Array.from({ length: 5 }, () => limiter.charge("key:once", limits))))
        // The reply to the merge is lost in every second round.
        if (i % 2 === 0) proxy.setFault("hanging")
        yield* limiter.peek("key:once", limits)
        proxy.setFault(undefined)
        yield* counting(limiter, "shared")
      }
      yield* until(Effect.map(limiter.counting, (now) => now === "shared"))
      assert.strictEqual((yield* limiter.peek("key:once", limits)).windows[0].remaining, 2000 - 31)
      const other = yield* limiterAt(redis.port)
      assert.strictEqual((yield* other.peek("key:once", limits)).windows[0].remaining, 2000 - 31)
    }), 20_000)

  it.live("merges counts once, even if the merge is sent twice", () =>
    Effect.gen(function*() {
      const { redis } = yield* setup
      const connection = yield* Layer.build(NodeRedis.layer({ url: redis.url }))
      const merge = Context.get(connection, Redis.Redis).eval(RedisScripts.merge)
      const resetAt = Date.now() + 60_000
      const confirmed = { minute: { used: 3, resetAt } }
      const used = Effect.fnUntraced(function*(number: number, count: number) {
        const reply = yield* merge("key:again", { state: { minute: { used: count, resetAt } }, confirmed, number }, {
          estimate: Date.now(),
          clockOffset: 0
        })
        return reply === null ? reply : RedisScripts.read(reply).state.minute?.used
      })
      for (let i = 0; i < 100; i++) {
        const number = yield* RedisScripts.mergeNumber
        const before = 3 + 4 * i
        assert.strictEqual(yield* used(number, 7), before + 4)
        assert.strictEqual(yield* used(number, 7), before + 4)
      }
    }))

  it.live("counts rejections from zero after a ban is lifted during an outage of Redis", () =>
    Effect.gen(function*() {
      const few = { perMinute: 3, perDay: 100 }
      const { limiter, proxy } = yield* setup
      for (let i = 0; i < 5; i++) yield* limiter.charge("key:lifted", few)
      yield* cut(proxy, limiter, Effect.andThen(limiter.charge("key:lifted", few), limiter.unban("key:lifted")))
      assert.isUndefined((yield* limiter.charge("key:lifted", few)).bannedUntil)
      assert.isUndefined((yield* limiter.charge("key:lifted", few)).bannedUntil)
      assert.isDefined((yield* limiter.charge("key:lifted", few)).bannedUntil)
    }))

  it.live("counts in memory while Redis is read-only, and merges the counts once it accepts writes", () =>
    Effect.gen(function*() {
      const { limiter, redis } = yield* setup
      yield* limiter.charge("key:written", limits)
      yield* redis.type("REPLICAOF 127.0.0.1 1")
      assert.isTrue((yield* limiter.charge("key:written", limits)).allowed)
      assert.strictEqual(yield* limiter.counting, "fallback")
      yield* sleep(600)
      assert.strictEqual(yield* limiter.counting, "fallback")
      yield* redis.type("REPLICAOF NO ONE")
      yield* counting(limiter, "shared")
      const other = yield* limiterAt(redis.port)
      yield* until(Effect.map(other.peek("key:written", limits), ({ windows: [minute] }) => minute.remaining === 1998))
    }))

  it.live("keeps counting in Redis while replies lag, and after an interrupted request", () =>
    Effect.gen(function*() {
      const { limiter, proxy } = yield* setup
      /** Whether the limiter counted in Redis for as long as `during` ran. */
      const isShared = Effect.fnUntraced(function*(during: Effect.Effect<void>) {
        let shared = true
        const look = Effect.andThen(
          Effect.map(limiter.counting, (now) => {
            shared &&= now === "shared"
          }),
          sleep(5)
        )
        yield* Effect.raceFirst(during, Effect.forever(look))
        return shared
      })
      const asking = Effect.forever(
        Effect.andThen(Effect.forkChild(limiter.charge("key:patient", limits)), sleep(5))
      )
      proxy.setFault("lagging")
      assert.isTrue(yield* isShared(Effect.raceFirst(sleep(1000), asking)))
      proxy.setFault(undefined)
      yield* sleep(100)
      // The reply arrives after the request was interrupted.
      yield* Effect.timeoutOption(limiter.charge("key:gone", limits), 0)
      assert.isTrue(yield* isShared(sleep(300)))
      assert.strictEqual((yield* limiter.peek("key:gone", limits)).windows[0].remaining, 1999)
    }))

  for (
    const [step, seconds] of [["back an hour", -3_600], ["forward an hour", 3_600], ["forward a day", 86_400]] as const
  ) {
    it.live(
      `keeps the length of windows and bans in every process when Redis's clock steps ${step}`,
      () =>
        Effect.gen(function*() {
          const few = { perMinute: 3, perDay: 100 }
          const { proxy, redis } = yield* clocked(0)
          const one = yield* limiterAt(proxy.port)
          const two = yield* limiterAt(redis.port)
          for (let i = 0; i < 3; i++) yield* one.charge("key:used", few)
          for (let i = 0; i < 6; i++) yield* one.charge("key:banned", few)
          const before = yield* one.peek("key:used", few)
          const hold = Effect.fnUntraced(function*(limiters: ReadonlyArray<RateLimiter["Service"]>) {
            for (const limiter of limiters) {
              const used = yield* limiter.peek("key:used", few)
              assert.isFalse(used.allowed)
              const banned = yield* limiter.peek("key:banned", few)
              assert.isDefined(banned.bannedUntil)
              for (const resetAt of [used.windows[0].resetAt, banned.bannedUntil ?? 0]) {
                assert.closeTo(resetAt, before.windows[0].resetAt, 1_000)
                assert.isAtMost(resetAt, used.decidedAt + 60_000)
              }
            }
          })
          for (const ahead of [seconds, 0, seconds]) {
            redis.setAhead(ahead)
            yield* hold([one, two])
            yield* sleep(700)
            yield* hold([two, one])
            assert.strictEqual(yield* two.counting, "shared")
          }
          // A process that starts later takes the shared time of the others.
          yield* hold([yield* limiterAt(redis.port)])
          yield* cut(proxy, one, hold([one]))
          yield* hold([one, two])
        }),
      20_000
    )
  }

  it.live("uses one time in all processes when Redis's clock steps or a process is suspended", () =>
    Effect.gen(function*() {
      const { redis } = yield* clocked(0)
      const connection = yield* Layer.build(NodeRedis.layer({ url: redis.url }))
      const { eval: run } = Context.get(connection, Redis.Redis)
      const [start] = yield* run(ClockScripts.compare)(undefined, 0)
      yield* sleep(300)
      assert.deepStrictEqual((yield* run(ClockScripts.compare)(start + 300, 0)).slice(1), [0, 1])
      // A process was suspended for an hour, and another one has confirmed the correction.
      assert.deepStrictEqual((yield* run(ClockScripts.compare)(start - 3_600_000, 0)).slice(1), [0, 1])

      redis.setAhead(3_600)
      assert.deepStrictEqual((yield* run(ClockScripts.compare)(start + 300, 0)).slice(1), [0, 0])
      assert.strictEqual(yield* run(ClockScripts.correct)(0, -3_600_000), -3_600_000)
      // Another process that noticed the same step changes nothing.
      assert.strictEqual(yield* run(ClockScripts.correct)(0, -3_600_007), -3_600_000)
      assert.deepStrictEqual((yield* run(ClockScripts.compare)(undefined, 0)).slice(1), [-3_600_000, 1])
      // A Redis that lost the correction gets it again from a process that knows it.
      yield* redis.type("DEL petstore:limits:clock")
      assert.strictEqual((yield* run(ClockScripts.compare)(start, -3_600_000))[1], -3_600_000)
      assert.strictEqual((yield* run(ClockScripts.compare)(undefined, 0))[1], -3_600_000)
    }))

  it.live("shortens windows and bans in Redis to their full length from now", () =>
    Effect.gen(function*() {
      const { limiter, redis } = yield* setup
      const late = Date.now() + 3_660_000
      yield* redis.type(`SET petstore:limits:key:late "2000 ${late} 2000 ${late + 86_400_000} 0 0 60 ${late} 0"`)
      const first = yield* limiter.peek("key:late", limits)
      for (const resetAt of [first.bannedUntil ?? 0, first.windows[0].resetAt]) {
        assert.closeTo(resetAt, first.decidedAt + 60_000, 100)
      }
      assert.closeTo(first.windows[1].resetAt, first.decidedAt + 86_400_000, 100)
      yield* sleep(300)
      const next = yield* limiter.charge("key:late", limits)
      assert.deepStrictEqual([next.bannedUntil, next.windows], [first.bannedUntil, first.windows])
    }))

  it.live("writes nothing to Redis while a banned key sends requests", () =>
    Effect.gen(function*() {
      const { limiter, redis } = yield* setup
      const few = { perMinute: 3, perDay: 100 }
      for (let i = 0; i < 6; i++) yield* limiter.charge("key:banned", few)
      const connection = yield* Layer.build(NodeRedis.layer({ url: redis.url }))
      const { send } = Context.get(connection, Redis.Redis)
      yield* send("WATCH", "petstore:limits:key:banned")
      for (let i = 0; i < 10; i++) assert.isDefined((yield* limiter.charge("key:banned", few)).bannedUntil)
      yield* limiter.peek("key:banned", few)
      yield* send("MULTI")
      // EXEC returns `null` if the key was written.
      assert.deepStrictEqual(yield* send("EXEC"), [])
    }))

  it.live("counts a caller in memory if its value in Redis is invalid, and all others in Redis", () =>
    Effect.gen(function*() {
      const { limiter, redis } = yield* setup
      yield* redis.type("RPUSH petstore:limits:key:spoilt x")
      assert.isTrue((yield* limiter.charge("key:spoilt", limits)).allowed)
      assert.strictEqual((yield* limiter.charge("key:spoilt", limits)).windows[0].remaining, 1998)
      assert.strictEqual(yield* limiter.counting, "shared")
    }))
})
