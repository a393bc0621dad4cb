import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { runCommand } from "../support/CommandRun.ts"
import { temporaryDatabaseUrl } from "../support/Databases.ts"
import * as Load from "../support/Load.ts"
import { adminToken, issue, metricsOf, type Running, runProgram, send, start } from "../support/Process.ts"
import { untilCounting } from "../support/Process.ts"
import * as Proxy from "../support/Proxy.ts"
import * as Redis from "../support/Redis.ts"

const noLocalDecisions = "petstore_rate_limit_fallback_decisions_total 0\n"

/** Lifts a ban with the command, and returns what the command prints. */
const unban = ({ management: PETSTORE_ADMIN_URL }: Running, id: string) =>
  Effect.map(runCommand({ ADMIN_TOKEN: adminToken, PETSTORE_ADMIN_URL }, ["keys", "unban", id]), ({ stdout }) => stdout)

describe.skipIf(!Redis.isInstalled || process.env.TEST_DATABASE_URL === undefined)("Processes on one Redis", () => {
  it.live("together allow exactly the limit, and share bans, even on a busy machine", () =>
    Effect.gen(function*() {
      const redis = yield* Redis.runStarted()
      const service = start({ DATABASE_URL: yield* temporaryDatabaseUrl, REDIS_URL: redis.url })
      const first = yield* service
      const others = yield* Effect.all([service, service, service], { concurrency: "unbounded" })
      const services = [first, ...others] as const
      yield* Effect.scoped(Effect.gen(function*() {
        for (let i = 0; i < 2; i++) yield* runProgram(process.execPath, ["--eval", "for (;;);"])
        for (let round = 0; round < Number(process.env.ROUNDS ?? 3); round++) {
          const limits = { perMinute: 1_000, perDay: 1_000 }
          const { key } = yield* issue(first, { name: "a", plan: "enterprise", limits })
          const statuses = yield* Load.list(services, key, 64, 2_000)
          assert.deepStrictEqual(Object.fromEntries(statuses), { 200: 1_000, 429: 1_000 })
        }
      }))
      for (const service of services) assert.include(yield* metricsOf(service), noLocalDecisions)
      const { id, key } = yield* issue(first, { name: "b", plan: "enterprise", limits: { perMinute: 3, perDay: 100 } })
      const codes = Effect.forEach(others, ({ address }) =>
        Effect.map(send(`${address}/v1/pets`, key), ({ body }): string => body.code))
      yield* Load.list([first], key, 1, 10)
      assert.deepStrictEqual(yield* codes, Array(3).fill("api_key_banned"))
      assert.match(yield* unban(others[0], id), /^Lifted the ban on \S+ which would have lasted until \S+\n$/)
      assert.include(yield* codes, "rate_limit_exceeded")
    }))

  it.live("respond to every request while Redis is slow, down, hanging or empty, and report it", () =>
    Effect.gen(function*() {
      const redis = yield* Redis.runStarted()
      const proxy = yield* Proxy.run(redis.port)
      const REDIS_URL = `redis://127.0.0.1:${proxy.port}`
      const service = yield* start({ DATABASE_URL: yield* temporaryDatabaseUrl, REDIS_URL })
      const { id, key } = yield* issue(service)
      const faults = Effect.gen(function*() {
        yield* untilCounting("shared", service)
        for (const fault of ["slow", "refusing", "hanging"] as const) {
          proxy.setFault(fault)
          yield* untilCounting("fallback", service)
          assert.include(yield* metricsOf(service), "petstore_rate_limit_fallback 1")
          proxy.setFault(undefined)
          yield* untilCounting("shared", service)
        }
        yield* redis.kill
        yield* untilCounting("fallback", service)
        assert.include(yield* unban(service, id), "Redis was not used")
        yield* redis.start
        yield* untilCounting("shared", service)
      })
      const found = new Set<number>()
      const round = Effect.map(Load.list([service], key, 16, 200), (all) => all.forEach((_, each) => found.add(each)))
      yield* Effect.raceFirst(faults, Effect.forever(round))
      assert.deepStrictEqual([...found], [200])
      assert.match(service.stderr(), /REDIS_URL: Redis cannot be used \(\w.*\)\. This process counts/)
      assert.notInclude(yield* metricsOf(service), noLocalDecisions)
    }))
})
