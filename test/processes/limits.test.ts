/** Tests the limits of running processes on one Redis, and without it. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Schema } from "effect"
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

/** Sends more requests of a new key than its limit a day, over 64 connections. Returns the number of allowed ones. */
const countAllowed = (services: readonly [Running, ...ReadonlyArray<Running>], perDay: number) =>
  Effect.gen(function*() {
    const { key } = yield* issue(services[0], { perMinute: 1_000_000, perDay })
    const requests = Math.round(1.1 * perDay)
    const { statuses } = yield* Effect.promise(() =>
      load({ ports: services.map(port), request: get(key), connections: 64, requests })
    )
    const [allowed = 0, rejected = 0] = [statuses.get(200), statuses.get(429)]
    assert.strictEqual(allowed + rejected, requests)
    return allowed
  })

/** The number of decisions that a process made without Redis. */
const localDecisions = (service: Running) =>
  Effect.map(
    text(`${service.management}/metrics`),
    (metrics) => Number(/^petstore_rate_limit_fallback_decisions_total (\d+)/m.exec(metrics)?.[1] ?? NaN)
  )

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
          const services = [first, ...others] as const
          const countLocal = Effect.map(
            Effect.forEach(services, localDecisions),
            (counts) => counts.reduce((sum, count) => sum + count, 0)
          )
          for (const limit of [500, 2_000, 777]) {
            const before = yield* countLocal
            const allowed = yield* countAllowed(services, limit)
            // A machine that stands still for 35 ms makes a process decide without Redis.
            assert.closeTo(allowed, limit, (yield* countLocal) - before)
          }

          const { id, key } = yield* issue(first, { perMinute: 3, perDay: 100 })
          const code = (service: Running) =>
            Effect.promise(() =>
              fetch(`${service.address}/v1/pets`, { headers: { authorization: `Bearer ${key}` } })
                .then((response) => response.json())
            ).pipe(Effect.flatMap(Schema.decodeUnknownEffect(ErrorBody)), Effect.map((body) => body.code))
          yield* Effect.promise(() => load({ ports: [port(first)], request: get(key), connections: 1, requests: 10 }))
          for (const service of others) assert.strictEqual(yield* code(service), "api_key_banned")
          yield* Effect.promise(() =>
            fetch(`${others[0].management}/admin/keys/${id}/ban`, { method: "DELETE", headers: { authorization } })
          )
          assert.strictEqual(yield* code(others[1]), "rate_limit_exceeded")
        }),
      300_000
    )

    it.live("respond to every request while Redis is slow, down, hanging or empty, and report it in log, metrics and readiness", () =>
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
        const metrics = text(`${service.management}/metrics`)
        const untilCounting = (limits: string) =>
          Effect.gen(function*() {
            const ready = text(`${service.management}/readyz`)
            while ((yield* ready) !== JSON.stringify({ status: "ready", limits })) yield* Effect.sleep("10 millis")
          })
        const faults = Effect.gen(function*() {
          yield* untilCounting("shared")
          for (const fault of ["slow", "refusing", "hanging"] as const) {
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
        })
        const statuses = new Set<number>()
        const round = Effect.promise(async () => {
          const measured = await load({ ports: [port(service)], request: get(key), connections: 16, seconds: 0.3 })
          for (const status of measured.statuses.keys()) statuses.add(status)
        })
        yield* Effect.raceFirst(faults, Effect.forever(round))
        assert.deepStrictEqual([...statuses], [200])
        assert.match(service.stderr(), /REDIS_URL: Redis cannot be used. This process counts requests by itself: \w/)
        assert.isAtLeast(service.stderr().match(/Limits are counted in Redis/g)?.length ?? 0, 5)
        assert.match(
          yield* metrics,
          /petstore_rate_limit_decisions_total\{outcome="allowed",plan="enterprise"\} \d+/
        )
        assert.match(yield* metrics, /petstore_rate_limit_fallback_decisions_total [1-9]/)
        assert.match(yield* metrics, /petstore_rate_limit_redis_duration_seconds_count [1-9]/)
      }))
  }
)
