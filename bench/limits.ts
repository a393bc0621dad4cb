/**
 * Prints the cost of the rate limits, and checks that they are exact. It needs `TEST_DATABASE_URL`, a PostgreSQL server
 * to create a database on, and a redis-server program.
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { PgClient } from "@effect/sql-pg"
import { Console, Effect, Layer, Redacted } from "effect"
import { fileURLToPath } from "node:url"
import { ApiKeys } from "../src/api-keys/ApiKeys.ts"
import type { Limits } from "../src/api/Plans.ts"
import * as Database from "../src/database/Database.ts"
import { RateLimiter } from "../src/rate-limit/RateLimiter.ts"
import { endless, limiterOn, random, temporaryDatabaseUrl, temporaryDirectory } from "../test/support/Harness.ts"
import { type Running, start } from "../test/support/Process.ts"
import * as Redis from "../test/support/Redis.ts"
import { load } from "./load.ts"
import { median } from "./median.ts"

const rounds = 10

const port = (service: Running) => Number(new URL(service.address).port)

const get = (key: string) => `GET /v1/pets/1 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${key}\r\n\r\n`

const issue = (limits: Limits) =>
  Effect.flatMap(ApiKeys, (apiKeys) => apiKeys.issue({ name: "bench", plan: "enterprise", limits })).pipe(
    Effect.map(({ key }) => Redacted.value(key))
  )

/** Measures a limiter alone: decisions per second, and the time of one decision on an idle process. */
const decisions = (name: string) =>
  Effect.gen(function*() {
    const limiter = yield* RateLimiter
    const charge = limiter.charge("key:bench", endless.limits)
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

/** Measures the service with each limiter in turn, as a ratio to a limiter that does nothing. */
const throughput = (DATABASE_URL: string, REDIS_URL: string, key: string) =>
  Effect.gen(function*() {
    const results = new Map<string, Array<number>>()
    const services = yield* Effect.forEach(["nothing", "database", "redis"] as const, (LIMITER) =>
      Effect.map(
        start({ DATABASE_URL, REDIS_URL, LIMITER }, fileURLToPath(new URL("service.ts", import.meta.url))),
        (service) => ({ LIMITER, service })
      ))
    for (let round = 0; round <= 7; round++) {
      for (const { LIMITER, service } of services) {
        const { requestsPerSecond } = yield* Effect.promise(() =>
          load({ ports: [port(service)], request: get(key), connections: 32, seconds: 2 })
        )
        // The first round is the warm-up.
        if (round > 0) results.set(LIMITER, [...results.get(LIMITER) ?? [], requestsPerSecond])
      }
    }
    const floor = median(results.get("nothing") ?? [])
    for (const [name, values] of results) {
      yield* Console.log(
        `  ${name.padEnd(10)}${median(values).toFixed(0).padStart(9)} requests/s   ${
          (median(values) / floor).toFixed(3)
        }`
      )
    }
  })

/** Sends more than 10,000 requests of a key with that limit a minute, ten times, each with a new key. */
const exactness = (services: ReadonlyArray<Running>) =>
  Effect.gen(function*() {
    const admitted: Array<number> = []
    for (let round = 0; round < rounds; round++) {
      const key = yield* issue({ perMinute: 10_000, perDay: 1_000_000 })
      const { statuses } = yield* Effect.promise(() =>
        load({ ports: services.map(port), request: get(key), connections: 64, requests: 14_000 })
      )
      admitted.push(statuses.get(200) ?? 0)
    }
    yield* Console.log(`  ${admitted.join(" ")}${admitted.every((one) => one === 10_000) ? "" : "   NOT EXACT"}`)
  })

Effect.scoped(Effect.gen(function*() {
  const redis = yield* Redis.run
  yield* redis.start
  const DATABASE_URL = yield* temporaryDatabaseUrl
  const database = Database.migrate.pipe(Layer.provideMerge(PgClient.layer({ url: Redacted.make(DATABASE_URL) })))
  yield* Effect.gen(function*() {
    yield* Console.log("Limiters by themselves, 64 callers at once")
    yield* Effect.scoped(Effect.provide(decisions("memory"), RateLimiter.layerMemory))
    yield* Effect.scoped(Effect.provide(decisions("database"), RateLimiter.layer))
    yield* Effect.scoped(Effect.provide(decisions("redis"), limiterOn(redis.url)))

    const { sql } = yield* Effect.map(PgClient.PgClient, (client) => ({ sql: client }))
    yield* sql`INSERT INTO pets (name, category_id) VALUES ('Rex', 1)`
    const key = yield* issue(endless.limits)
    yield* Console.log("The service with each limiter: get, PostgreSQL, 32 connections, medians of 7 rounds in turn")
    yield* Effect.scoped(throughput(DATABASE_URL, redis.url, key))

    const process = start({ DATABASE_URL, REDIS_URL: redis.url, DATA_DIR: yield* temporaryDirectory })
    yield* Console.log(`Admitted of 14,000 requests at a limit of 10,000, 64 connections, ${rounds} rounds`)
    yield* Console.log("four processes on one Redis:")
    yield* Effect.scoped(Effect.flatMap(Effect.all([process, process, process, process]), exactness))
    yield* Console.log("one process, counts in its memory, written behind to PostgreSQL:")
    const alone = start({ DATABASE_URL, DATA_DIR: yield* temporaryDirectory })
    yield* Effect.scoped(Effect.flatMap(alone, (service) => exactness([service])))
  }).pipe(Effect.provide(ApiKeys.layer.pipe(Layer.provide(random), Layer.provideMerge(database))))
})).pipe(NodeRuntime.runMain)
