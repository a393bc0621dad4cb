/**
 * Prints the cost of a decision of each rate limiter, and checks that the limits are exact. It needs a redis-server program,
 * and `TEST_DATABASE_URL`, a PostgreSQL server to create a database on.
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { PgClient } from "@effect/sql-pg"
import { ConfigProvider, Console, Effect, Layer, Logger, Redacted } from "effect"
import { ApiKeys } from "../src/api-keys/ApiKeys.ts"
import type { Limits } from "../src/api/Plans.ts"
import { redisOptions } from "../src/config/RedisSettings.ts"
import * as Database from "../src/database/Database.ts"
import { RateLimiter } from "../src/rate-limit/RateLimiter.ts"
import * as RedisRateLimiter from "../src/rate-limit/RedisRateLimiter.ts"
import * as SavedStates from "../src/rate-limit/SavedStates.ts"
import { random, sqlApiKeys, temporaryDatabaseUrl } from "../test/support/Databases.ts"
import { unlimitedKeyOptions } from "../test/support/Process.ts"
import { type Running, runProgram, start } from "../test/support/Process.ts"
import * as Redis from "../test/support/Redis.ts"
import { temporaryDirectory } from "../test/support/Temporary.ts"
import { load } from "./load.ts"
import { median } from "./measure.ts"

const rounds = 10

/** A rate limiter that counts in the Redis at `url`. */
const limiterOn = (url: string) =>
  Layer.unwrap(Effect.map(redisOptions, RedisRateLimiter.layer)).pipe(
    Layer.provide(ConfigProvider.layer(ConfigProvider.fromUnknown({ REDIS_URL: url })))
  )

const port = (service: Running) => Number(new URL(service.address).port)

const get = (key: string) => `GET /v1/pets HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${key}\r\n\r\n`

const issue = (limits: Limits) =>
  Effect.flatMap(ApiKeys, (apiKeys) => apiKeys.issue({ name: "bench", plan: "enterprise", limits })).pipe(
    Effect.map(({ key }) => Redacted.value(key))
  )

/** Measures a limiter alone: decisions per second, and the time of one decision on an idle process. */
const decisions = (name: string) =>
  Effect.gen(function*() {
    const limiter = yield* RateLimiter
    const charge = limiter.charge("key:bench", unlimitedKeyOptions.limits)
    yield* Effect.forEach(Array.from({ length: 20_000 }), () => charge, { concurrency: 64, discard: true })
    const startedAt = performance.now()
    yield* Effect.forEach(Array.from({ length: 100_000 }), () => charge, { concurrency: 64, discard: true })
    const perSecond = 100_000 / (performance.now() - startedAt) * 1000
    const alone: Array<number> = []
    for (let i = 0; i < 5_000; i++) {
      const before = performance.now()
      yield* charge
      alone.push(performance.now() - before)
    }
    yield* Console.log(
      `  ${name.padEnd(10)}${perSecond.toFixed(0).padStart(9)} decisions/s   adds ${
        (median(alone) * 1000).toFixed(0)
      } µs`
    )
  })

/**
 * Sends 2,000 requests of a key with a limit of 1,000, in several rounds, each with a new key, while eight busy
 * loops use the processors too.
 */
const exactness = (services: ReadonlyArray<Running>) =>
  Effect.gen(function*() {
    for (let i = 0; i < 8; i++) yield* runProgram(process.execPath, ["--eval", "for (;;);"])
    const allowed: Array<number> = []
    for (let round = 0; round < rounds; round++) {
      const key = yield* issue({ perMinute: 1_000, perDay: 1_000 })
      const { statuses } = yield* Effect.promise(() =>
        load({ ports: services.map(port), request: get(key), connections: 64, requests: 2_000 })
      )
      allowed.push(statuses.get(200) ?? 0)
    }
    yield* Console.log(`  ${allowed.join(" ")}${allowed.every((one) => one === 1_000) ? "" : "   NOT EXACT"}`)
  })

Effect.scoped(Effect.gen(function*() {
  const redis = yield* Redis.runStarted()
  const DATABASE_URL = yield* temporaryDatabaseUrl
  const database = Database.migrate.pipe(Layer.provideMerge(PgClient.layer({ url: Redacted.make(DATABASE_URL) })))
  yield* Effect.gen(function*() {
    yield* Console.log("Limiters alone, 64 concurrent callers")
    yield* Effect.scoped(Effect.provide(decisions("memory"), RateLimiter.layerMemory))
    yield* Effect.scoped(Effect.provide(decisions("database"), SavedStates.layer))
    yield* Effect.scoped(Effect.provide(decisions("redis"), limiterOn(redis.url)))

    const onRedis = start({ DATABASE_URL, REDIS_URL: redis.url, DATA_DIR: yield* temporaryDirectory })
    yield* Console.log(
      `Allowed of 2,000 requests at a limit of 1,000, 64 connections, eight busy loops, ${rounds} rounds`
    )
    yield* Console.log("four processes on one Redis:")
    yield* Effect.scoped(Effect.flatMap(Effect.all([onRedis, onRedis, onRedis, onRedis]), exactness))
    yield* Console.log("one process, with counts in memory that are saved to PostgreSQL:")
    const alone = start({ DATABASE_URL, DATA_DIR: yield* temporaryDirectory })
    yield* Effect.scoped(Effect.flatMap(alone, (service) => exactness([service])))
  }).pipe(Effect.provide(sqlApiKeys.pipe(Layer.provide(random), Layer.provideMerge(database))))
})).pipe(Effect.provide(Logger.layer([])), NodeRuntime.runMain)
