import { assert, it } from "@effect/vitest"
import { ConfigProvider, Context, Duration, Effect, Exit, Fiber, Layer, Logger, Metric, Schema, Tracer } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import * as fc from "fast-check"
import { setImmediate } from "node:timers/promises"
import { ErrorReply } from "redis"
import { ApiKeys } from "../../src/api-keys/ApiKeys.ts"
import { KeyVerifier } from "../../src/api-keys/KeyVerifier.ts"
import { databaseErrors } from "../../src/api/DatabaseErrors.ts"
import { redisMetrics, redisOptions } from "../../src/config/RedisSettings.ts"
import { savedStatesOptions } from "../../src/config/RoomOptions.ts"
import keyLimits from "../../src/database/migrations/0005_key_limits.ts"
import * as Policy from "../../src/rate-limit/Policy.ts"
import { type Caller, makeStates, RateLimiter } from "../../src/rate-limit/RateLimiter.ts"
import * as RedisCircuitBreaker from "../../src/rate-limit/RedisCircuitBreaker.ts"
import { RedisClient } from "../../src/rate-limit/RedisClient.ts"
import * as RedisRateLimiter from "../../src/rate-limit/RedisRateLimiter.ts"
import * as SavedStates from "../../src/rate-limit/SavedStates.ts"
import { StateLookups } from "../../src/rate-limit/StateLookups.ts"
import { besideClient, databases, describeOnEach, random, sqlApiKeys } from "../support/Databases.ts"
import { until, untilTrue } from "../support/Process.ts"
import * as Redis from "../support/Redis.ts"
import * as Limiters from "./Limiters.ts"

const decodeState = Schema.decodeSync(Schema.fromJsonString(Policy.State))

const options = { timeout: Duration.millis(250), metrics: redisMetrics, logDown: () => Effect.void }

const limiterOn = (run: RedisClient["Service"]["run"]) => {
  const limiters = Layer.build(
    Layer.fresh(RedisRateLimiter.layerWithoutClient({ ...options, timeout: Duration.millis(500) }))
  )
  return Effect.provideService(Effect.map(limiters, Context.get(RateLimiter)), RedisClient, Limiters.clientOf(run))
}

const step = fc.record({
  pause: fc.oneof(
    { weight: 4, arbitrary: fc.constant(0) },
    { weight: 4, arbitrary: fc.integer({ min: 1, max: 70_000 }) },
    { weight: 1, arbitrary: fc.constantFrom(59_999, 60_000, 3_600_000, 3_660_000, 86_399_999, -2 * 86_400_000) }
  ),
  isKey: fc.boolean(),
  name: fc.constantFrom("a", "b"),
  limits: fc.record({ perMinute: fc.integer({ min: 1, max: 5 }), perDay: fc.integer({ min: 1, max: 12 }) }),
  concurrency: fc.integer({ min: 1, max: 10 }),
  lift: fc.boolean()
})

const title = "RateLimiter on Redis decides as the policy, for any callers, limits, times and concurrency, with bans"
it.live.skipIf(!Redis.isInstalled)(title, () =>
  Effect.gen(function*() {
    const redis = yield* Redis.run()
    // The clock of this Redis is weeks ahead and stands still.
    let clock = Date.now() + 5_000_000_000
    const move = (milliseconds: number) => Effect.sync(() => redis.setTime(clock += milliseconds))
    yield* move(0)
    yield* redis.startWithClock
    const all = yield* Limiters.makeTwo(redis.url, "10000")
    let runs = 0
    const property = fc.asyncProperty(fc.array(step, { maxLength: 20 }), (steps) =>
      Effect.gen(function*() {
        const run = runs++
        const states = new Map<string, Policy.State>()
        let now = 0
        for (const { concurrency, isKey, lift, limits, name, pause } of steps) {
          // A limiter can delete a state that has ended, so the clock steps back only while none has.
          const canStepBack = [...states.values()].every((state) => Policy.endOf(state) > now)
          yield* move(pause < 0 && !canStepBack ? 0 : pause)
          const caller = `${isKey ? "key" : "address"}:${run}${name}` as const
          const charges = Array.from(
            { length: concurrency },
            (_, index) => (all[index % all.length] ?? all[0]).charge(caller, limits)
          )
          const decisions = yield* Effect.all(charges, { concurrency: "unbounded" })
          now = decisions[0]?.decidedAt ?? 0
          let state = states.get(caller) ?? {}
          const expected = decisions.map(() => {
            const { decision, next } = Policy.decide(state, limits, now, isKey)
            state = next
            return decision
          })
          // Concurrent requests can be decided in any order.
          assert.sameDeepMembers([...decisions], expected)
          if (lift) yield* all[0].unban(caller)
          states.set(caller, lift ? Policy.unban(state, now) : state)
        }
      }).pipe(Effect.runPromise))
    // A ban that follows another by an hour and a minute lasts a minute again. Few random steps get there.
    const ban = { pause: 0, isKey: true, name: "a", limits: { perMinute: 1, perDay: 9 }, concurrency: 9, lift: false }
    // After a step back of the clock, a ban ends within its length, even if requests continue.
    const stepBack = [ban, { ...ban, pause: -2 * 86_400_000 }, { ...ban, pause: 60_000 }]
    const examples = [[[ban, { ...ban, pause: 3_660_000 }]], [stepBack]] satisfies Array<[Array<typeof ban>]>
    yield* Effect.promise(() => fc.assert(property, { numRuns: 100, examples }))
  }))

it.effect("RateLimiter in memory keeps the last 100,000 addresses, and all keys", () =>
  Effect.gen(function*() {
    const limiter = yield* RateLimiter
    const limits = { perMinute: 1, perDay: 1 }
    const callers = ["key:kept", "address:first", "address:again"] as const
    for (const caller of callers) yield* limiter.charge(caller, limits)
    for (let i = 0; i < 99_999; i++) {
      if (i === 50_000) yield* limiter.charge("address:again", limits)
      yield* limiter.charge(`address:${i}`, limits)
    }
    const decisions = yield* Effect.forEach(callers, (caller) => limiter.peek(caller, limits))
    assert.deepStrictEqual(decisions.map(({ allowed }) => allowed), [false, true, false])
  }).pipe(Effect.provide(RateLimiter.layerMemory)))

it.effect("RateLimiter in memory bans a key, and no address, for the same requests", () =>
  Effect.gen(function*() {
    const limiter = yield* RateLimiter
    const bannedUntil = (caller: Caller) =>
      Effect.map(
        Effect.replicateEffect(limiter.charge(caller, { perMinute: 1, perDay: 9 }), 9),
        (decisions) => decisions.at(-1)?.bannedUntil
      )
    assert.deepStrictEqual([yield* bannedUntil("key:a"), yield* bannedUntil("address:a")], [60_000, undefined])
  }).pipe(Effect.provide(RateLimiter.layerMemory)))

it.effect("RateLimiter in memory keeps counts until their windows end, and a ban for an hour after its end", () =>
  Effect.gen(function*() {
    const { get, set } = yield* makeStates({ maxKeys: Infinity, none: Policy.noCounts })
    set("address:a", { minute: { used: 1, resetAt: 60_000 }, day: { used: 1, resetAt: 86_400_000 } })
    set("key:b", { ban: { seconds: 60, until: 60_000 } })
    const kept: Array<ReadonlyArray<string>> = []
    // The times are 60, 62, 1,439 and 1,441 minutes.
    for (const minutes of [60, 2, 1_377, 2]) {
      yield* TestClock.adjust(`${minutes} minutes`)
      kept.push([...Object.keys(get("address:a")), ...Object.keys(get("key:b"))])
    }
    assert.deepStrictEqual(kept, [["minute", "day", "ban"], ["minute", "day"], ["minute", "day"], []])
  }))

it.effect("After REDIS_TIMEOUT_MS, a limiter counts requests in flight itself, and ignores the replies of Redis", () =>
  Effect.gen(function*() {
    const replies: Array<() => void> = []
    let probes = 0
    const limiter = yield* limiterOn((_, { verb }) =>
      new Promise((resolve, reject) => {
        const reply = () => resolve({ now: 0, state: {} })
        if (verb !== "probe") replies.push(reply)
        else if (probes++ === 0) reply()
        else reject(new Error("down"))
      })
    )
    const roundTrips = Effect.map(Metric.snapshot, (metrics) => {
      const histogram = metrics.find(({ id }) => id === "petstore_rate_limit_redis_duration_seconds")
      return histogram?.type === "Histogram" ? [histogram.state.count, histogram.state.sum] : []
    })
    const charge = Effect.forkChild(limiter.charge("key:a", { perMinute: 100, perDay: 1 }))
    const first = yield* charge
    yield* until(() => replies.length === 1)
    yield* TestClock.adjust("250 millis")
    const second = yield* charge
    yield* until(() => replies.length === 2)
    yield* TestClock.adjust("250 millis")
    assert.isTrue((yield* Fiber.join(first)).allowed)
    for (const reply of replies) reply()
    for (const each of [second, yield* charge]) assert.isFalse((yield* Fiber.join(each)).allowed)
    // In seconds. The second one fails together with the first one.
    assert.deepStrictEqual(yield* roundTrips, [2, 0.5 + 0.25])
    for (let i = 2; i <= 5; i++) {
      yield* TestClock.adjust("250 millis")
      yield* until(() => probes >= i)
    }
  }).pipe(Effect.provideService(Metric.MetricRegistry, new Map())))

it.effect("A start waits for Redis for at most a second", () =>
  Effect.gen(function*() {
    const client = Limiters.clientOf(() => new Promise(() => {}), Effect.never)
    const starting = yield* Effect.forkChild(
      Effect.provideService(RedisCircuitBreaker.make(options), RedisClient, client)
    )
    yield* TestClock.adjust("999 millis")
    assert.isUndefined(starting.pollUnsafe())
    yield* TestClock.adjust("1 milli")
    assert.isDefined(starting.pollUnsafe())
  }))

/** The options of the breaker, as the service makes them from its settings. */
const optionsFrom = (env: Readonly<Record<string, string>>) =>
  Effect.provideService(
    redisOptions,
    ConfigProvider.ConfigProvider,
    ConfigProvider.fromUnknown({ REDIS_URL: "redis://h", ...env })
  )

it.effect("A reply of Redis is late after REDIS_TIMEOUT_MS milliseconds, by default 250", () =>
  Effect.gen(function*() {
    const timeouts = yield* Effect.forEach([{}, { REDIS_TIMEOUT_MS: "40" }], optionsFrom)
    assert.deepStrictEqual(timeouts.map(({ timeout }) => Duration.toMillis(timeout)), [250, 40])
  }))

it.effect("Each outage of Redis is one log line that begins with REDIS_URL, and one at its end", () =>
  Effect.gen(function*() {
    const log: Array<string> = []
    let isDown = true
    const client = Limiters.clientOf(() =>
      isDown ? Promise.reject(new Error("refused")) : Promise.resolve({ now: 0, state: {} })
    )
    const { send } = yield* Effect.forkChild(
      RedisCircuitBreaker.make(yield* optionsFrom({})).pipe(
        Effect.provideService(RedisClient, client),
        Effect.provide(Logger.layer([Logger.make(({ message }) => void log.push(String(message)))]))
      )
    ).pipe(Effect.flatMap((starting) => Effect.andThen(TestClock.adjust("1 second"), Fiber.join(starting))))
    const [down, up] = [
      "REDIS_URL: Redis cannot be used (refused). This process counts requests on its own.",
      "Requests are counted in Redis"
    ]
    for (let outage = 1; outage <= 2; outage++) {
      yield* TestClock.adjust("2 seconds")
      assert.deepStrictEqual(log, [down, up, down, up].slice(0, 2 * outage - 1))
      isDown = false
      yield* TestClock.adjust("1 second")
      isDown = true
      for (const key of ["a", "b"]) send(`key:${key}`, { verb: "peek" }, () => {}, () => {})
    }
  }))

it.effect.each<readonly [reason: string, connect: (report: (error: Error) => void) => Promise<void>]>([
  ["connect ECONNREFUSED 127.0.0.1:1", () => Promise.reject(new Error("connect ECONNREFUSED 127.0.0.1:1"))],
  ["WRONGPASS invalid username-password pair", (report) => {
    report(new Error("WRONGPASS invalid username-password pair"))
    // The client keeps trying.
    return new Promise(() => {})
  }]
])(
  "A start without Redis is one log line that begins with REDIS_URL and has the reason: %s",
  ([reason, connect]) =>
    Effect.gen(function*() {
      const log: Array<string> = []
      let report: (error: unknown) => void = () => {}
      const client = {
        ...Limiters.clientOf(
          () => Promise.reject(new Error("The client is closed")),
          Effect.tryPromise(() => connect((error) => report(error)))
        ),
        onError: (listener: typeof report) => void (report = listener)
      }
      yield* Effect.forkChild(
        RedisCircuitBreaker.make(yield* optionsFrom({})).pipe(
          Effect.provideService(RedisClient, client),
          Effect.provide(Logger.layer([Logger.make(({ message }) => void log.push(String(message)))]))
        )
      )
      yield* TestClock.adjust("5 seconds")
      assert.deepStrictEqual(log, [
        `REDIS_URL: Redis cannot be used (${reason}). This process counts requests on its own.`
      ])
    })
)

const errorsOfServers = "BUSY CLUSTERDOWN LOADING MASTERDOWN MISCONF MOVED NOAUTH NOPERM NOREPLICAS OOM READONLY"
  .split(" ").concat("ERR ACL failure in script", "ERR This user can't run the command")
it.effect.each(errorsOfServers)(
  "The counts are a fallback once Redis replies with the error %s",
  (message) =>
    Effect.gen(function*() {
      const limiter = yield* limiterOn((_, { verb }) =>
        verb === "probe" ? Promise.resolve({ now: 0, state: {} }) : Promise.reject(new ErrorReply(message))
      )
      assert.strictEqual(yield* limiter.counting, "shared")
      assert.isTrue((yield* limiter.charge("key:a", { perMinute: 1, perDay: 1 })).allowed)
      yield* Effect.promise(() => setImmediate())
      assert.strictEqual(yield* limiter.counting, "fallback")
    })
)

const errorsOfCommands = [new ErrorReply("ERR unknown"), new Error("Cannot find node 127.0.0.1:7000")]
it.effect.each(errorsOfCommands)(
  "The counts stay in Redis after an error of one command, as while a slot moves: %s",
  (failure) =>
    Effect.gen(function*() {
      let charges = 0
      const limiter = yield* limiterOn((_, { verb }) =>
        verb === "charge" && ++charges === 1 ? Promise.reject(failure) : Promise.resolve({ now: 0, state: {} })
      )
      const charge = limiter.charge("key:a", { perMinute: 1, perDay: 1 })
      assert.isTrue((yield* charge).allowed)
      yield* Effect.promise(() => setImmediate())
      assert.strictEqual(yield* limiter.counting, "shared")
      assert.strictEqual((yield* charge).decidedAt, 0)
      assert.strictEqual(charges, 2)
    })
)

it.effect("A ban that is lifted while Redis is down ends in this process", () =>
  Effect.gen(function*() {
    const limiter = yield* limiterOn((_, { verb }) =>
      verb === "probe" ? Promise.resolve({ now: 0, state: {} }) : Promise.reject(new Error("down"))
    )
    const limits = { perMinute: 1, perDay: 9 }
    yield* Effect.replicateEffect(limiter.charge("key:a", limits), 4)
    assert.isDefined((yield* limiter.peek("key:a", limits)).bannedUntil)
    yield* limiter.unban("key:a")
    assert.isUndefined((yield* limiter.peek("key:a", limits)).bannedUntil)
  }))

it.effect("A reply from Redis that cannot be used is logged, and its request counts without Redis", () =>
  Effect.gen(function*() {
    const log: Array<string> = []
    const { send } = yield* RedisCircuitBreaker.make(options).pipe(
      Effect.provideService(RedisClient, Limiters.clientOf(() => Promise.resolve({ now: 0, state: {} }))),
      Effect.provide(Logger.layer([Logger.make(({ message }) => void log.push(String(message)))]))
    )
    let failures = 0
    send("key:a", { verb: "peek" }, () => assert.fail("unexpected"), () => failures++)
    yield* until(() => failures > 0)
    assert.strictEqual(failures, 1)
    assert.include(log, "A reply from Redis could not be used")
  }))

it.effect("Without Redis, each charge of a batch counts as one decision of petstore_rate_limit_fallback_decisions_total", () =>
  Effect.gen(function*() {
    const decisions = Effect.map(Metric.snapshot, (metrics) => {
      const counter = metrics.find(({ id }) => id === "petstore_rate_limit_fallback_decisions_total")
      return counter?.type === "Counter" ? Number(counter.state.count) : undefined
    })
    const limiter = yield* limiterOn((_, { verb }) =>
      verb === "probe" ? Promise.resolve({ now: 0, state: {} }) : Promise.reject(new Error("down"))
    )
    // It starts at 0, so that Prometheus sees its first event.
    assert.strictEqual(yield* decisions, 0)
    const charge = limiter.charge("key:batch", { perMinute: 100, perDay: 100 })
    yield* Effect.replicateEffect(charge, 3, { concurrency: 3 })
    assert.strictEqual(yield* decisions, 3)
  }).pipe(Effect.provideService(Metric.MetricRegistry, new Map())))

it.effect("petstore_rate_limit_fallback is 1 while Redis is down, at a start and later, else 0", () =>
  Effect.gen(function*() {
    let isDown = true
    const starting = yield* Effect.forkChild(
      limiterOn(() => isDown ? Promise.reject(new Error("down")) : Promise.resolve({ now: 0, state: {} }))
    )
    const values: Array<unknown> = []
    const addValue = Effect.map(Metric.snapshot, (metrics) => {
      const gauge = metrics.find(({ id }) => id === "petstore_rate_limit_fallback")
      values.push(gauge?.type === "Gauge" ? gauge.state.value : undefined)
    })
    yield* TestClock.adjust("1 second")
    const limiter = yield* Fiber.join(starting)
    yield* addValue
    isDown = false
    yield* TestClock.adjust("1 second")
    yield* addValue
    isDown = true
    yield* limiter.charge("key:a", { perMinute: 1, perDay: 1 })
    yield* Effect.promise(() => setImmediate())
    yield* addValue
    assert.deepStrictEqual(values, [1, 0, 1])
  }).pipe(Effect.provideService(Metric.MetricRegistry, new Map())))

it.effect("The counts are a fallback while one master of several does not respond", () =>
  Effect.gen(function*() {
    const client = {
      ...Limiters.clientOf((caller) =>
        caller === "key:down" ? Promise.reject(new Error("down")) : Promise.resolve({ now: 0, state: {} })
      ),
      serverOf: (caller: Caller) => caller
    }
    const limiters = Layer.build(Layer.fresh(RedisRateLimiter.layerWithoutClient(options)))
    const limiter = yield* Effect.provideService(Effect.map(limiters, Context.get(RateLimiter)), RedisClient, client)
    const limits = { perMinute: 1, perDay: 1 }
    yield* limiter.charge("key:up", limits)
    assert.strictEqual(yield* limiter.counting, "shared")
    yield* limiter.charge("key:down", limits)
    yield* untilTrue(Effect.map(limiter.counting, (counting) => counting === "fallback"), "a fallback")
  }))

it.effect("The wait for Redis is a span RateLimiter.charge in the trace of its request", () =>
  Effect.gen(function*() {
    const names: Array<string> = []
    const span: Tracer.Tracer["span"] = (options) => {
      names.push(options.name)
      return Tracer.nativeTracer.span(options)
    }
    const limiter = yield* limiterOn(() => Promise.resolve({ now: 0, state: {} }))
    yield* limiter.charge("key:a", { perMinute: 1, perDay: 1 }).pipe(
      Effect.withSpan("request"),
      Effect.provideService(Tracer.Tracer, Tracer.make({ span }))
    )
    assert.deepStrictEqual(names, ["request", "RateLimiter.charge"])
  }))

it.effect("RateLimiter on Redis keeps the last 90,000 to 100,000 keys for an outage", () =>
  Effect.gen(function*() {
    let isDown = false
    const reply = Promise.resolve({ now: 0, state: { day: { used: 9, resetAt: 86_400_000 } } })
    const limiter = yield* limiterOn(() => isDown ? Promise.reject(new Error("down")) : reply)
    const limits = { perMinute: 9, perDay: 9 }
    const peek = (key: number) => limiter.peek(`key:${key}`, limits)
    // The 100,001st key evicts the oldest 10,001.
    yield* Effect.forEach(Array.from({ length: 100_001 }).keys(), peek, { concurrency: 100, discard: true })
    isDown = true
    const decisions = yield* Effect.forEach([12_000, 100_000, 0], peek)
    assert.deepStrictEqual(decisions.map(({ allowed }) => allowed), [false, false, true])
  }))

it.effect("Without Redis, petstore_rate_limit_write_duration_seconds has the writes of counts to the database", () =>
  Effect.gen(function*() {
    const statement = Effect.delay(Effect.succeed([]), "250 millis")
    const sql = Object.assign(() => statement, { literal: String }) as unknown as SqlClient.SqlClient
    const services = Layer.provide(SavedStates.layer(savedStatesOptions), [StateLookups.layer, random, besideClient])
    const limiters = Layer.build(Layer.fresh(services))
    const limiter = yield* Effect.provideService(
      Effect.map(limiters, Context.get(RateLimiter)),
      SqlClient.SqlClient,
      sql
    )
    const charge = yield* Effect.forkChild(limiter.charge("key:a", { perMinute: 1, perDay: 1 }))
    yield* TestClock.adjust("250 millis")
    yield* Fiber.join(charge)
    yield* TestClock.adjust("750 millis")
    const writes = (yield* Metric.snapshot).find(({ id }) => id === "petstore_rate_limit_write_duration_seconds")
    assert.deepInclude(writes?.state, { count: 1, sum: 0.25 })
  }).pipe(Effect.provideService(Metric.MetricRegistry, new Map())))

describeOnEach(databases, "RateLimiter", (it) => {
  const newProcess = Effect.map(
    Layer.build(Layer.fresh(Layer.provide(SavedStates.layer(savedStatesOptions), StateLookups.layer))),
    Context.get(RateLimiter)
  )
  const limits = { perMinute: 3, perDay: 100 }
  const savedKeys = Effect.gen(function*() {
    const sql = yield* SqlClient.SqlClient
    const rows = yield* sql<{ readonly keyId: string }>`SELECT key_id AS "keyId" FROM key_limits ORDER BY key_id`
    return rows.map(({ keyId }) => keyId)
  })

  it.effect("restores counts and bans unchanged half a second after they changed, even if the process is killed", () =>
    Effect.gen(function*() {
      const killed = yield* newProcess
      yield* killed.charge("address:192.0.2.1", limits)
      yield* Effect.replicateEffect(killed.charge("key:counted", limits), 2)
      yield* Effect.replicateEffect(killed.charge("key:banned", limits), 7)
      yield* TestClock.adjust("500 millis")
      yield* untilTrue(Effect.map(savedKeys, ({ length }) => length > 0), "the counts are saved")
      assert.deepStrictEqual(yield* savedKeys, ["banned", "counted"])
      const both = ({ peek }: RateLimiter["Service"]) =>
        Effect.all([peek("key:counted", limits), peek("key:banned", limits)], { concurrency: "unbounded" })
      const restored = yield* both(yield* newProcess)
      assert.deepStrictEqual(restored, yield* both(killed))
      assert.isDefined(restored[1].bannedUntil)
    }))

  it.effect("saves on shutdown, even after an outage of the database, and a lifted ban stays lifted", () =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      yield* Effect.scoped(Effect.gen(function*() {
        const limiter = yield* newProcess
        yield* Effect.replicateEffect(limiter.charge("key:lifted", limits), 7)
        yield* limiter.peek("key:outage", limits)
        yield* sql`ALTER TABLE key_limits RENAME TO gone`
        yield* TestClock.adjust("1 second")
        yield* limiter.unban("key:lifted")
        yield* Effect.replicateEffect(limiter.charge("key:outage", limits), 3)
        assert.isFalse((yield* limiter.charge("key:outage", limits)).allowed)
        yield* sql`ALTER TABLE gone RENAME TO key_limits`
      }))
      const limiter = yield* newProcess
      assert.isFalse((yield* limiter.peek("key:outage", limits)).allowed)
      assert.isUndefined((yield* limiter.peek("key:lifted", limits)).bannedUntil)
    }))

  /** Saved states leave memory after two minutes without use. */
  const evictAll = TestClock.adjust("2 minutes")
  const allowedOf = (limiter: RateLimiter["Service"], caller: Caller, times: number) =>
    Effect.map(
      Effect.replicateEffect(limiter.charge(caller, { perMinute: 100, perDay: 4 }), times),
      (decisions) => decisions.filter(({ allowed }) => allowed).length
    )
  const save = (caller: string, rows: number) =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      yield* TestClock.adjust("500 millis")
      const count = sql`SELECT FROM key_limits WHERE key_id = ${caller}`
      yield* untilTrue(Effect.map(count, ({ length }) => length === rows), `${rows} rows of ${caller}`)
    })

  it.effect("counts on after a state left memory, from the row of its own process, not from a newer one", () =>
    Effect.gen(function*() {
      const first = yield* newProcess
      assert.strictEqual(yield* allowedOf(first, "key:own", 3), 3)
      yield* save("own", 1)
      const second = yield* newProcess
      assert.strictEqual(yield* allowedOf(second, "key:own", 3), 1)
      yield* save("own", 2)
      // The other process saves less, and later: its ban was lifted, or its clock is behind.
      const sql = yield* SqlClient.SqlClient
      yield* sql`UPDATE key_limits SET saved_at = saved_at + interval '1 hour', state = '{}'
        WHERE key_id = 'own' AND seq = (SELECT max(seq) FROM key_limits WHERE key_id = 'own')
          AND saved_at = (SELECT max(saved_at) FROM key_limits WHERE key_id = 'own')`
      yield* evictAll
      assert.strictEqual(yield* allowedOf(first, "key:own", 3), 1)
    }))

  it.effect("a new process continues the last saved state of the others, also of the previous version", () =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      const state = (used: number) => JSON.stringify({ day: { used, resetAt: 80_000_000 } })
      yield* sql`INSERT INTO key_limits (key_id, process, seq, saved_at, ends_at, state) VALUES
        ('passed', 0, 0, now(), now(), ${state(1)}),
        ('passed', 7, 1, now() + interval '1 second', now(), ${state(2)}),
        ('passed', 8, 9, now() - interval '1 second', now(), ${state(3)})`
      yield* sql`INSERT INTO rate_limits (caller, ends_at, state)
        VALUES ('key:migrated', now() + interval '1 day', ${state(3)}::text::jsonb), ('key:ended', now(), '{}')`
      yield* sql.unsafe(keyLimits.find((statement) => statement.includes("FROM rate_limits")) ?? assert.fail())
      assert.notInclude(yield* savedKeys, "ended")
      const limiter = yield* newProcess
      assert.strictEqual(yield* allowedOf(limiter, "key:passed", 5), 2)
      assert.strictEqual(yield* allowedOf(limiter, "key:migrated", 5), 1)
      assert.strictEqual(yield* allowedOf(limiter, "key:new", 5), 4)
    }))

  it.effect("the row of a key follows its state, and expires with it", () =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      const limiter = yield* newProcess
      const rows = sql<{ readonly state: string; readonly endsAt: number; readonly seq: number }>`
        SELECT state, (extract(epoch FROM ends_at) * 1000)::float8 AS "endsAt", seq::int FROM key_limits
        WHERE key_id = 'followed' AND saved_at > now() - interval '10 seconds'`
      const saved = (used: number) =>
        Effect.gen(function*() {
          yield* TestClock.adjust("500 millis")
          const hasUsed = ({ state }: { readonly state: string }) => decodeState(state).day?.used === used
          yield* untilTrue(Effect.map(rows, (found) => found.some(hasUsed)), `${used} used`)
          const [row = assert.fail()] = yield* rows
          assert.strictEqual(row.endsAt, Policy.endOf(decodeState(row.state)))
          return row.seq
        })
      const setOld = sql`UPDATE key_limits SET saved_at = now() - interval '1 hour'`
      yield* sql`INSERT INTO key_limits (key_id, process, seq, saved_at, ends_at, state)
        VALUES ('followed', 0, 0, now(), now(), '{"day":{"used":1,"resetAt":1000000}}')`
      yield* setOld
      yield* limiter.charge("key:followed", limits)
      yield* saved(2)
      yield* setOld
      // The ban that begins now lasts longer than the counts, with the hour in which another one would be longer.
      yield* Effect.replicateEffect(limiter.charge("key:followed", limits), 6)
      const seq = yield* saved(4)
      // A ban changes no count, so its rejections write nothing.
      yield* limiter.charge("key:followed", limits)
      yield* allowedOf(limiter, "key:later", 1)
      yield* save("later", 1)
      assert.strictEqual(yield* saved(4), seq)
    }))

  it.effect("a save that commits late restores no older state", () =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      const limiter = yield* newProcess
      yield* allowedOf(limiter, "key:late", 3)
      yield* save("late", 1)
      // A later save has committed before this one.
      const newer = JSON.stringify({ day: { used: 4, resetAt: 80_000_000 } })
      yield* sql`UPDATE key_limits SET seq = 1000, state = ${newer} WHERE key_id = 'late'`
      yield* allowedOf(limiter, "key:late", 1)
      yield* allowedOf(limiter, "key:marker", 1)
      yield* save("marker", 1)
      const [row] = yield* sql<{ readonly state: string }>`SELECT state FROM key_limits WHERE key_id = 'late'`
      assert.strictEqual(row?.state, newer)
    }))

  it.effect("the lookup of a key brings its state, so that its charge needs no further statement", () =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      const keys = Layer.merge(sqlApiKeys, SavedStates.layer(savedStatesOptions)).pipe(
        Layer.provide([StateLookups.layer, random])
      )
      const service = yield* Layer.build(Layer.fresh(keys))
      const issue = Context.get(service, ApiKeys).issue({ name: "a", plan: "free" })
      const [used, unused, invalid] = yield* Effect.all([issue, issue, issue])
      const callerOf = ({ id }: { readonly id: string }): Caller => `key:${id}`
      for (const process of ["-9223372036854775808", "9223372036854775807"]) {
        yield* sql`INSERT INTO key_limits (key_id, process, seq, saved_at, ends_at, state)
          VALUES (${used.id}, ${process}::text::bigint, 0, now() - interval '1 hour', now(), '{}')`
      }
      yield* sql`INSERT INTO key_limits (key_id, process, seq, saved_at, ends_at, state)
        VALUES (${invalid.id}, 0, 0, now(), now(), '{"day":1}')`
      const other = yield* newProcess
      yield* sql`UPDATE key_limits SET saved_at = now() - interval '1 hour' WHERE key_id = ${used.id}`
      yield* allowedOf(other, callerOf(used), 3)
      yield* save(used.id, 3)
      for (const { id, key } of [used, unused, invalid]) {
        assert.strictEqual((yield* Context.get(service, KeyVerifier).verify(key)).id, id)
      }
      const limiter = Context.get(service, RateLimiter)
      assert.isTrue(Exit.hasDies(yield* Effect.exit(limiter.charge(callerOf(invalid), limits))))
      yield* sql`ALTER TABLE key_limits RENAME TO gone`
      const charging = Effect.all([allowedOf(limiter, callerOf(used), 2), allowedOf(limiter, callerOf(unused), 1)])
      const allowed = yield* Effect.ensuring(charging, Effect.orDie(sql`ALTER TABLE gone RENAME TO key_limits`))
      assert.deepStrictEqual(allowed, [1, 1])
    }))

  it.effect("a key whose state is not in memory and cannot be loaded is not charged, and fails with 503", () =>
    Effect.gen(function*() {
      const limiter = yield* newProcess
      yield* allowedOf(limiter, "key:present", 1)
      const sql = yield* SqlClient.SqlClient
      const locked = Effect.gen(function*() {
        yield* sql`LOCK TABLE key_limits`
        const charge = yield* Effect.forkChild(Effect.flip(limiter.charge("key:absent", limits)))
        yield* allowedOf(limiter, "key:present", 1)
        const hasEnded = Effect.map(TestClock.adjust("100 millis"), () => charge.pollUnsafe() !== undefined)
        yield* untilTrue(hasEnded, "a 503")
        return yield* Fiber.join(charge)
      })
      assert.strictEqual(yield* sql.withTransaction(locked), databaseErrors.unavailable)

      yield* sql`ALTER TABLE key_limits RENAME TO gone`
      yield* sql`CREATE FUNCTION fail() RETURNS SETOF gone LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'no connection is left' USING ERRCODE = '53300'; END $$`
      yield* sql`CREATE VIEW key_limits AS SELECT * FROM fail()`
      const failure = yield* Effect.flip(limiter.charge("key:absent", limits)).pipe(
        Effect.ensuring(Effect.orDie(sql`DROP FUNCTION fail CASCADE`)),
        Effect.ensuring(Effect.orDie(sql`ALTER TABLE gone RENAME TO key_limits`))
      )
      assert.strictEqual(failure, databaseErrors.unavailable)
    }))
})
