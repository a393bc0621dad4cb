/**
 * Prints the costs of the parts of a deployment, for `docs/capacity.md`: bytes per pet, key and caller. It also
 * prints the time of a decision in Redis.
 *
 * It needs wrk, a redis-server and a redis-cli program, and `TEST_DATABASE_URL`, a PostgreSQL server to create a
 * database on.
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { PgClient } from "@effect/sql-pg"
import { Console, Effect, Redacted } from "effect"
import { execFileSync } from "node:child_process"
import { temporaryDirectory } from "../test/support/Harness.ts"
import * as Redis from "../test/support/Redis.ts"
import * as Contender from "./Contender.ts"
import * as Workload from "./Workload.ts"
import * as Wrk from "./wrk.ts"

const pets = 200_000
const keys = 10_000

const row = (name: string, value: string) => Console.log(`${name.padEnd(60)}${value.padStart(16)}`)

const bytesPerRow = Effect.fnUntraced(function*(tables: ReadonlyArray<string>, rows: number) {
  const sql = yield* PgClient.PgClient
  let total = 0
  for (const table of tables) {
    const [size] = yield* sql<{ readonly bytes: number }>`SELECT pg_total_relation_size(${table})::float8 AS bytes`
    total += size?.bytes ?? 0
  }
  return `${(total / rows).toFixed(0)} bytes`
})

const redisCli = (port: number, ...args: ReadonlyArray<string>): string =>
  execFileSync("redis-cli", ["-p", String(port), ...args], { encoding: "utf8" })

type Database = Effect.Success<ReturnType<typeof Workload.database>>

const measure = Effect.fnUntraced(function*({ key, keys: secrets, url }: Database) {
  const directory = yield* temporaryDirectory
  const redis = yield* Redis.run
  yield* redis.start
  const requests = Workload.requests(directory, pets)
  const service = yield* Contender.start("Petstore", { env: { DATABASE_URL: url, REDIS_URL: redis.url }, key })
  const load = (file: string, seconds: number) =>
    Wrk.load({ address: service.address, requests: requests["list of 20"], keys: file, connections: 32, seconds })
  const own = () => Contender.usage({ pid: service.pid }).cpu
  const ofRedis = () => Contender.usage({ pid: redis.pid() }).cpu

  yield* row("PostgreSQL, per pet, indexes included", yield* bytesPerRow(["pets"], pets))
  yield* row("PostgreSQL, per key, indexes included", yield* bytesPerRow(["api_keys", "api_key_secrets"], keys))

  yield* load(Workload.write(directory, "one key", [key]), 5)
  const before = [own(), ofRedis()] as const
  const measured = yield* load(Workload.write(directory, "one key", [key]), 5)
  yield* row(
    "Service, CPU of one list of 20, limits in Redis",
    `${((own() - before[0]) / measured.requests * 1e6).toFixed(0)} µs`
  )
  yield* row(
    "Redis, CPU of one request of one busy key",
    `${((ofRedis() - before[1]) / measured.requests * 1e6).toFixed(1)} µs`
  )

  const file = Workload.write(directory, "all keys", secrets)
  yield* load(file, 5)
  const beforeMany = ofRedis()
  const many = yield* load(file, 5)
  yield* row(
    "Redis, CPU of one request, 10,000 keys in turn",
    `${((ofRedis() - beforeMany) / many.requests * 1e6).toFixed(1)} µs`
  )
  const callers = Number(redisCli(redis.port, "DBSIZE").replace(/\D/g, ""))
  const used = Number(/used_memory_dataset:(\d+)/.exec(redisCli(redis.port, "INFO", "memory"))?.[1])
  yield* row("Redis, memory per caller", `${(used / callers).toFixed(0)} bytes`)

  const idle = own()
  yield* Effect.sleep("10 seconds")
  yield* row("Service, CPU while no request comes", `${((own() - idle) / 10 * 1000).toFixed(1)} ms/s`)
  const connections = yield* Effect.flatMap(
    PgClient.PgClient,
    (sql) =>
      sql<{ readonly count: number }>`SELECT count(*)::int AS count FROM pg_stat_activity
      WHERE datname = current_database() AND pid <> pg_backend_pid()`
  )
  yield* row("PostgreSQL, connections of the process after the load", String(connections[0]?.count))
})

Effect.scoped(Effect.gen(function*() {
  const database = yield* Workload.database(pets, keys)
  yield* Effect.provide(measure(database), PgClient.layer({ url: Redacted.make(database.url) }))
})).pipe(NodeRuntime.runMain)
