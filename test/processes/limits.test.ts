/** Tests the limits of running processes on one Redis, and without it. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { load } from "../../bench/load.ts"
import { temporaryDatabaseUrl } from "../support/Databases.ts"
import {
  issue,
  metricsOf,
  portOf,
  type Running,
  runProgram,
  send,
  sendAdmin,
  start,
  until,
  untilTrue
} from "../support/Process.ts"
import * as Proxy from "../support/Proxy.ts"
import * as Redis from "../support/Redis.ts"

const get = (key: string) => `GET /v1/pets HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${key}\r\n\r\n`

const enterprise = { name: "limited", plan: "enterprise" }

/** Sends twice as many requests with a key as its limit a day, over 64 connections. Returns the number of allowed ones. */
const countAllowed = Effect.fnUntraced(function*(services: ReadonlyArray<Running>, key: string, perDay: number) {
  const requests = 2 * perDay
  const ports = services.map(portOf)
  const { statuses } = yield* Effect.promise(() => load({ ports, request: get(key), connections: 64, requests }))
  const [allowed = 0, rejected = 0] = [statuses.get(200), statuses.get(429)]
  assert.strictEqual(allowed + rejected, requests)
  return allowed
})

/** The number of decisions that processes made without Redis. */
const localDecisions = (services: ReadonlyArray<Running>) =>
  Effect.map(Effect.forEach(services, metricsOf), (texts) => {
    const counts = texts.map((text) => /^petstore_rate_limit_fallback_decisions_total (\d+)/m.exec(text)?.[1])
    return counts.reduce((sum, count) => sum + Number(count), 0)
  })

describe.skipIf(Redis.missing !== undefined || process.env.TEST_DATABASE_URL === undefined)(
  "Processes on one Redis",
  () => {
    it.live("allow exactly the limit together, and share bans, on a busy machine", () =>
      Effect.gen(function*() {
        const redis = yield* Redis.run
        yield* redis.start
        const service = start({ DATABASE_URL: yield* temporaryDatabaseUrl, REDIS_URL: redis.url })
        const first = yield* service
        const others = yield* Effect.all([service, service, service], { concurrency: "unbounded" })
        const services = [first, ...others] as const
        yield* Effect.scoped(Effect.gen(function*() {
          // `npm run bench:limits` has ten rounds beside eight such programs.
          for (let i = 0; i < 2; i++) yield* runProgram(process.execPath, ["--eval", "for (;;);"])
          for (let round = 0; round < 3; round++) {
            const { key } = yield* issue(first, { ...enterprise, limits: { perMinute: 1_000, perDay: 1_000 } })
            assert.strictEqual(yield* countAllowed(services, key, 1_000), 1_000)
          }
        }))
        assert.strictEqual(yield* localDecisions(services), 0)

        const { id, key } = yield* issue(first, { ...enterprise, limits: { perMinute: 3, perDay: 100 } })
        const codeOf = (service: Running) =>
          Effect.map(send(`${service.address}/v1/pets`, key), ({ body }): string => body.code)
        yield* Effect.promise(() => load({ ports: [portOf(first)], request: get(key), connections: 1, requests: 10 }))
        for (const service of others) assert.strictEqual(yield* codeOf(service), "api_key_banned")
        yield* sendAdmin(others[0], "DELETE", `/keys/${id}/ban`)
        assert.strictEqual(yield* codeOf(others[1]), "rate_limit_exceeded")
      }))

    it.live("respond to every request while Redis is slow, down, hanging or empty, and report it", () =>
      Effect.gen(function*() {
        const redis = yield* Redis.run
        yield* redis.start
        const proxy = yield* Proxy.run(redis.port)
        const REDIS_URL = `redis://127.0.0.1:${proxy.port}`
        const service = yield* start({ DATABASE_URL: yield* temporaryDatabaseUrl, REDIS_URL })
        const { key } = yield* issue(service)
        const untilCounting = (limits: string) =>
          untilTrue(Effect.map(send(`${service.management}/readyz`, ""), ({ body }) => body.limits === limits))
        const faults = Effect.gen(function*() {
          yield* untilCounting("shared")
          for (const fault of ["slow", "refusing", "hanging"] as const) {
            proxy.setFault(fault)
            yield* untilCounting("fallback")
            assert.include(yield* metricsOf(service), "petstore_rate_limit_fallback 1")
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
          const measured = await load({ ports: [portOf(service)], request: get(key), connections: 16, requests: 200 })
          for (const status of measured.statuses.keys()) statuses.add(status)
        })
        yield* Effect.raceFirst(faults, Effect.forever(round))
        assert.deepStrictEqual([...statuses], [200])
        assert.match(service.stderr(), /REDIS_URL: Redis cannot be used. This process counts requests by itself: \w/)
        // The line of the last recovery can arrive after the response of /readyz.
        yield* until(() => (service.stderr().match(/Limits are counted in Redis/g)?.length ?? 0) >= 5)
        assert.isAbove(yield* localDecisions([service]), 0)
      }))
  }
)
