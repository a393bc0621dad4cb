/**
 * Compares the service with peers, and with itself in other configurations: the rate, the latency and the CPU of a request.
 *
 * `npm run bench [-- TABLE…]` prints the tables `peers` and `settings` in Markdown, in about 30 minutes, or only the given
 * one. It needs wrk, redis-server, and `TEST_DATABASE_URL`, a PostgreSQL server of this machine to create databases on.
 * `peers` also needs the npm registry for Bun, and Debian's packages golang-go and golang-github-jackc-pgx-v4-dev for Go.
 *
 * A quick run: `BENCH_ROUNDS=1 BENCH_SECONDS=1 BENCH_PETS=100000 BENCH_OPERATIONS=list,get npm run bench -- peers`.
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Console, Effect } from "effect"
import { createServer, type Server } from "node:http"
import { until } from "../test/support/Process.ts"
import * as Redis from "../test/support/Redis.ts"
import { freePort } from "../test/support/Temporary.ts"
import * as Contender from "./Contender.ts"
import { type Case, compare, formatRate, settings, summarize } from "./measure.ts"
import * as Workload from "./Workload.ts"

const startRedis = Effect.gen(function*() {
  const redis = yield* Redis.runStarted()
  return { url: redis.url, title: `redis-server *:${redis.port}` }
})

const peers = Effect.gen(function*() {
  const { ids, keyCount, operations } = yield* settings
  const { key, keys, servers, url } = yield* Workload.database(ids, keyCount)
  const env = { DATABASE_URL: url, PORT: String(yield* freePort) }
  const redis = yield* startRedis
  const shared = { DATABASE_URL: url, REDIS_URL: redis.url, PORT: String(yield* freePort), REUSE_PORT: "true" }
  const two = Effect.all([Contender.start("Petstore", shared), Contender.start("Petstore", shared)]).pipe(
    Effect.tap((both) => until(() => both.every(({ latestOutput }) => latestOutput().includes("Listening on"))))
  )
  const cases: Array<Case> = [
    { name: "Petstore", start: Effect.all([Contender.start("Petstore", env)]), keys, servers },
    { name: "2 × Petstore, Redis", start: two, keys, servers: [...servers, redis.title] }
  ]
  for (const name of Contender.peers) {
    const start = Effect.all([Contender.start(name, { DATABASE_URL: url })])
    const isAvailable = yield* Effect.scoped(start).pipe(
      Effect.as(true),
      Effect.catchTag("Unavailable", ({ message }) => Effect.as(Console.log(`${name} is skipped. ${message}`), false))
    )
    if (isAvailable) cases.push({ name, start, keys, servers })
  }
  const floor = Contender.start("node:http", { SERVICE: `http://127.0.0.1:${env.PORT}`, KEY: key })
  cases.push({ name: "node:http", start: Effect.all([floor]), keys, servers: [] })
  const results = yield* compare(cases, operations)
  yield* summarize("CPU with database, Petstore over it", results, 1, ({ ratio }) => ratio("cpuWithServers"))
  yield* summarize("CPU alone, Petstore over it", results, 1, ({ ratio }) => ratio("cpu"))
  yield* summarize("Rate, Petstore over it", results, 1, ({ ratio }) => ratio("rate"))
  yield* summarize(
    "CPU µs, with database",
    results,
    0,
    ({ median }) => `${median("cpu").toFixed(0)}, ${median("cpuWithServers").toFixed(0)}`
  )
  yield* summarize(
    "Requests/s (p99 ms)",
    results,
    0,
    ({ median }) => `${formatRate(median("rate"))} (${median("p99").toFixed(1)})`
  )
})

/** A collector of traces that accepts and drops everything. Returns its port. */
const collector = Effect.acquireRelease(
  Effect.promise(() =>
    new Promise<Server>((resolve) => {
      const server = createServer((request, response) => {
        request.resume().on("end", () => response.setHeader("content-type", "application/json").end("{}"))
      })
      server.listen(0, "127.0.0.1", () => resolve(server))
    })
  ),
  (server) => Effect.sync(() => server.close())
).pipe(Effect.map((server) => {
  const address = server.address()
  return typeof address === "object" && address !== null ? address.port : 0
}))

/** Prints shares of the default configuration, which has 1,000 keys as `peers` has. */
const configurations = Effect.gen(function*() {
  const { ids, keyCount } = yield* settings
  const { keys, servers, url } = yield* Workload.database(ids, 100 * keyCount)
  const redis = yield* startRedis
  const make = (name: string, env: Readonly<Record<string, string>>, ownKeys = keyCount): Case => ({
    name,
    start: Effect.all([Contender.start("Petstore", { DATABASE_URL: url, ...env })]),
    keys: keys.slice(0, ownKeys),
    servers: "REDIS_URL" in env ? [...servers, redis.title] : servers
  })
  const cases = [
    make("default", {}),
    make("one key", {}, 1),
    make(`${keys.length} keys`, {}, keys.length),
    make("Redis", { REDIS_URL: redis.url }),
    make("traced", {
      OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${yield* collector}`,
      OTEL_LOGS_EXPORTER: "none"
    }),
    make("without access log", { LOG_LEVEL: "warn" })
  ]
  yield* compare(cases, ["list", "get"], "reverse")
})

const tables = { peers, settings: configurations }
const chosen = process.argv.slice(2)
Effect.forEach(
  Object.entries(tables).filter(([name]) => chosen.length === 0 || chosen.includes(name)),
  ([, run]) => Effect.scoped(run),
  { discard: true }
).pipe(NodeRuntime.runMain)
