/** Tests the limits of running processes, with and without Redis. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Schema } from "effect"
import { join } from "node:path"
import { load } from "../../bench/load.ts"
import { temporaryDatabaseUrl, temporaryDirectory } from "../support/Harness.ts"
import { type Running, start } from "../support/Process.ts"
import * as Proxy from "../support/Proxy.ts"
import * as Redis from "../support/Redis.ts"

const ADMIN_TOKEN = "adm_test"
const authorization = `Bearer ${ADMIN_TOKEN}`

const Issued = Schema.Struct({ id: Schema.String, key: Schema.String })
const ErrorBody = Schema.Struct({ code: Schema.String })

const issue = (service: Running, limits: { readonly perMinute: number; readonly perDay: number }) =>
  Effect.promise(async () => {
    const response = await fetch(`${service.management}/admin/keys`, {
      method: "POST",
      headers: { authorization, "content-type": "application/json" },
      body: JSON.stringify({ name: "load", plan: "enterprise", limits })
    })
    return response.json()
  }).pipe(Effect.flatMap(Schema.decodeUnknownEffect(Issued)))

const text = (url: string) => Effect.promise(() => fetch(url).then((response) => response.text()))

const port = (service: Running) => Number(new URL(service.address).port)

const get = (key: string) => `GET /v1/pets HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${key}\r\n\r\n`

/** Sends 4,500 requests of a key with a limit of 3,000 a minute, over 64 connections. Returns the number of each status. */
const countStatuses = (services: readonly [Running, ...ReadonlyArray<Running>]) =>
  Effect.gen(function*() {
    const { key } = yield* issue(services[0], { perMinute: 3_000, perDay: 1_000_000 })
    const { statuses } = yield* Effect.promise(() =>
      load({ ports: services.map(port), request: get(key), connections: 64, requests: 4_500 })
    )
    return Object.fromEntries(statuses)
  })

describe("One process on the embedded database", () => {
  it.live("allows exactly as many requests as the limit over 64 connections", () =>
    Effect.gen(function*() {
      const service = yield* start({ DATA_DIR: yield* temporaryDirectory, ADMIN_TOKEN })
      assert.deepStrictEqual(yield* countStatuses([service]), { 200: 3_000, 429: 1_500 })
    }), 60_000)
})

describe.skipIf(Redis.missing !== undefined)("One process whose wall clock steps", () => {
  it.live(
    "rejects a key for no longer than its window when the wall clock steps, and shows the reset on the new clock",
    () =>
      Effect.gen(function*() {
        const directory = yield* temporaryDirectory
        const clock = join(directory, "clock")
        Redis.setFakeTimeAhead(clock, 0)
        const service = yield* start({ DATA_DIR: directory, ADMIN_TOKEN, ...Redis.fakeTimeEnv(clock) })
        const { key } = yield* issue(service, { perMinute: 2, perDay: 100 })
        const call = Effect.promise(async () => {
          const { headers, status } = await fetch(`${service.address}/v1/pets`, {
            headers: { authorization: `Bearer ${key}` }
          })
          const number = (name: string) => Number(headers.get(name))
          return { status, retryAfter: number("retry-after"), resetAt: number("x-ratelimit-reset") }
        })
        yield* call
        assert.strictEqual((yield* call).status, 200)
        const startedAt = Date.now() / 1000
        for (const ahead of [-3_600, 3_600, 0]) {
          Redis.setFakeTimeAhead(clock, ahead)
          const { resetAt, retryAfter, status } = yield* call
          assert.strictEqual(status, 429)
          assert.isAtMost(retryAfter, 60)
          assert.isAtLeast(retryAfter, 40)
          assert.closeTo(resetAt, startedAt + ahead + 60, 5)
        }
      }),
    60_000
  )
})

describe.skipIf(Redis.missing !== undefined || process.env.TEST_DATABASE_URL === undefined)(
  "Processes on one Redis",
  () => {
    it.live(
      "allow exactly as many requests as the limit, as four processes together, and share bans",
      () =>
        Effect.gen(function*() {
          const redis = yield* Redis.run
          yield* redis.start
          const DATABASE_URL = yield* temporaryDatabaseUrl
          const process = start({
            DATABASE_URL,
            ADMIN_TOKEN,
            DATA_DIR: yield* temporaryDirectory,
            REDIS_URL: redis.url
          })
          const first = yield* process
          const others = yield* Effect.all([process, process, process], { concurrency: "unbounded" })
          assert.deepStrictEqual(yield* countStatuses([first, ...others]), { 200: 3_000, 429: 1_500 })
          // No process counts in its memory while Redis replies.
          for (const { stderr } of [first, ...others]) {
            assert.notInclude(stderr(), "Redis cannot be used")
          }

          const { id, key } = yield* issue(first, { perMinute: 3, perDay: 100 })
          yield* Effect.promise(() => load({ ports: [port(first)], request: get(key), connections: 1, requests: 10 }))
          const code = (service: Running) =>
            Effect.promise(() =>
              fetch(`${service.address}/v1/pets`, { headers: { authorization: `Bearer ${key}` } })
                .then((response) => response.json())
            ).pipe(Effect.flatMap(Schema.decodeUnknownEffect(ErrorBody)), Effect.map((body) => body.code))
          for (const service of others) {
            assert.strictEqual(yield* code(service), "api_key_banned")
          }
          yield* Effect.promise(() =>
            fetch(`${others[0].management}/admin/keys/${id}/ban`, { method: "DELETE", headers: { authorization } })
          )
          assert.strictEqual(yield* code(others[1]), "rate_limit_exceeded")
        }),
      60_000
    )

    it.live(
      "respond to every request while Redis is slow, down, hanging or empty, and report it in log, metrics and readiness",
      () =>
        Effect.gen(function*() {
          const redis = yield* Redis.run
          yield* redis.start
          const proxy = yield* Proxy.run(redis.port)
          const service = yield* start({
            DATABASE_URL: yield* temporaryDatabaseUrl,
            ADMIN_TOKEN,
            DATA_DIR: yield* temporaryDirectory,
            REDIS_URL: `redis://127.0.0.1:${proxy.port}`
          })
          const { key } = yield* issue(service, { perMinute: 1_000_000, perDay: 1_000_000 })
          const ready = Effect.map(text(`${service.management}/readyz`), (body) => JSON.parse(body))
          const metrics = text(`${service.management}/metrics`)
          const untilCounting = (limits: string) =>
            Effect.gen(function*() {
              while ((yield* ready).limits !== limits) {
                yield* Effect.sleep("10 millis")
              }
            })

          assert.deepStrictEqual(yield* ready, { status: "ready", limits: "shared" })
          yield* Effect.promise(() => load({ ports: [port(service)], request: get(key), connections: 1, requests: 10 }))
          assert.include(yield* metrics, "petstore_rate_limit_fallback 0")
          assert.notMatch(yield* metrics, /petstore_rate_limit_fallback_decisions_total [1-9]/)
          const faults = Effect.gen(function*() {
            for (const fault of ["slow", "refusing", "hanging"] as const) {
              yield* Effect.sleep("300 millis")
              proxy.setFault(fault)
              yield* untilCounting("fallback")
              assert.include(yield* metrics, "petstore_rate_limit_fallback 1")
              proxy.setFault(undefined)
              yield* untilCounting("shared")
            }
            yield* redis.kill
            yield* untilCounting("fallback")
            yield* redis.start
            yield* untilCounting("shared")
            yield* Effect.sleep("300 millis")
          })
          const statuses = new Set<number>()
          let slowest = 0
          const round = Effect.promise(async () => {
            const measured = await load({ ports: [port(service)], request: get(key), connections: 16, seconds: 0.3 })
            for (const status of measured.statuses.keys()) statuses.add(status)
            slowest = Math.max(slowest, measured.p99)
          })
          yield* Effect.raceFirst(faults, Effect.forever(round))
          assert.deepStrictEqual([...statuses], [200])
          assert.isBelow(slowest, 300)
          const warnings = service.stderr().split("\n").filter((line) => line.includes("\"WARN\""))
          assert.isTrue(
            warnings.some((line) => /Redis cannot be used. This process counts requests by itself: \w/.test(line))
          )
          assert.isAtLeast(service.stderr().match(/Limits are counted in Redis/g)?.length ?? 0, 5)
          assert.match(
            yield* metrics,
            /petstore_rate_limit_decisions_total\{outcome="allowed",plan="enterprise"\} \d+/
          )
          assert.match(yield* metrics, /petstore_rate_limit_fallback_decisions_total [1-9]/)
          assert.match(yield* metrics, /petstore_rate_limit_redis_duration_seconds_count [1-9]/)
        }),
      60_000
    )

    it.live("log one line about an invalid REDIS_URL, and exit with 1", () =>
      Effect.gen(function*() {
        const failed = yield* Effect.flip(
          start({ DATA_DIR: yield* temporaryDirectory, REDIS_URL: "http://secret@nowhere" })
        )
        assert.strictEqual(failed.code, 1)
        assert.include(
          failed.stderr,
          "REDIS_URL: expected redis://host:port, redis+sentinel://host:port/name or redis+cluster"
        )
        assert.notInclude(failed.stderr, "secret")
      }))
  }
)
