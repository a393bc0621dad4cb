/** Limiters on Redis, each as a process of its own has it. */
import { assert } from "@effect/vitest"
import { ConfigProvider, Context, Effect, Layer, Logger, Metric } from "effect"
import { redisOptions } from "../../src/config/RedisSettings.ts"
import { type Caller, RateLimiter } from "../../src/rate-limit/RateLimiter.ts"
import { RedisClient, unnamedServer } from "../../src/rate-limit/RedisClient.ts"
import * as RedisRateLimiter from "../../src/rate-limit/RedisRateLimiter.ts"
import { untilTrue } from "../support/Process.ts"

export const make = Effect.fnUntraced(function*(REDIS_URL: string, REDIS_TIMEOUT_MS = "250") {
  const registry = new Map()
  const log: Array<string> = []
  const env = ConfigProvider.fromUnknown({ REDIS_URL, REDIS_TIMEOUT_MS })
  const options = yield* Effect.provideService(redisOptions, ConfigProvider.ConfigProvider, env)
  const limiter = yield* Layer.build(Layer.fresh(RedisRateLimiter.layer(options))).pipe(
    Effect.provideService(Metric.MetricRegistry, registry),
    Effect.provide(Logger.layer([Logger.make(({ message }) => void log.push(String(message)))])),
    Effect.map(Context.get(RateLimiter))
  )
  return {
    ...limiter,
    log,
    localDecisions: Effect.map(Metric.snapshot, (metrics) => {
      const counter = metrics.find(({ id }) => id === "petstore_rate_limit_fallback_decisions_total")
      return counter?.type === "Counter" ? Number(counter.state.count) : 0
    }).pipe(Effect.provideService(Metric.MetricRegistry, registry))
  }
}, Effect.orDie)

export const clientOf = (
  run: RedisClient["Service"]["run"],
  connect: RedisClient["Service"]["connect"] = Effect.void
) => RedisClient.of({ onError: () => {}, connect, serverOf: () => unnamedServer, run })

export type Limiter = Effect.Success<ReturnType<typeof make>>
type Limiters = ReadonlyArray<Limiter>

export const makeTwo = Effect.fnUntraced(function*(url: string, timeoutMs?: string) {
  const limiters = [yield* make(url, timeoutMs), yield* make(url, timeoutMs)] as const
  yield* untilAll("shared", limiters)
  return limiters
})

export const untilAll = (expected: "shared" | "fallback", limiters: Limiters) =>
  Effect.forEach(limiters, ({ counting }) => untilTrue(Effect.map(counting, (now) => now === expected)))

export const countLocalDecisions = (limiters: Limiters) =>
  Effect.map(Effect.forEach(limiters, (each) => each.localDecisions), (counts) => counts.reduce((a, b) => a + b, 0))

/** Asserts that each caller gets exactly its limit, and that Redis made all decisions. */
export const assertExact = Effect.fnUntraced(function*(limiters: Limiters, callers: ReadonlyArray<Caller>) {
  const limits = { perMinute: 20, perDay: 20 }
  for (const caller of callers) {
    const before = yield* countLocalDecisions(limiters)
    const charges = Array.from({ length: 15 }, () => limiters.map(({ charge }) => charge(caller, limits))).flat()
    const decisions = yield* Effect.all(charges, { concurrency: "unbounded" })
    assert.strictEqual(decisions.filter(({ allowed }) => allowed).length, limits.perDay, caller)
    assert.strictEqual(yield* countLocalDecisions(limiters), before, caller)
  }
})
