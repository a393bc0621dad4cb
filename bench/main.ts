/**
 * Compares the service with peers, and with itself in other configurations: the rate, the latency and the CPU of a request.
 *
 * `npm run bench [-- TABLE…]` prints the tables `peers` and `settings` in Markdown, in about 20 minutes, or only the given
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
import { type Case, compare, formatRate, type Result, settings, table } from "./measure.ts"
import * as Workload from "./Workload.ts"

type Cell = (row: Result["rows"][number]) => string

/** Prints a table with a row for each case, from the index `first` on, and a column for each operation. */
const summarize = (title: string, results: ReadonlyArray<Result>, first: number, cell: Cell) =>
  Console.log(`\n${
    table([
      [title, ...results.map(({ operation }) => operation)],
      ...results[0]?.rows.slice(first).map(({ name }) => [
        name,
        ...results.map(({ rows }) => rows.filter((row) => row.name === name).map(cell).join())
      ]) ?? []
    ])
  }`)

const startRedis = Effect.gen(function*() {
  const redis = yield* Redis.run
  yield* redis.start
  return { url: redis.url, title: `redis-server *:${redis.port}` }
})

const peers = Effect.gen(function*() {
  const { ids, keyCount, operations } = yield* settings
  const { key, keys, servers, url } = yield* Workload.database(ids, keyCount)
  const env = { DATABASE_URL: url }
  const service = yield* Contender.start("Petstore", env)
  yield* Console.log(
    `Petstore: ${service.startedIn.toFixed(0)} ms from the start to the first response, ` +
      `${Contender.usage(service).megabytes.toFixed(0)} MB at rest`
  )
  const redis = yield* startRedis
  const shared = { ...env, REDIS_URL: redis.url, PORT: String(yield* freePort), REUSE_PORT: "true" }
  const two = yield* Effect.all([Contender.start("Petstore", shared), Contender.start("Petstore", shared)])
  yield* until(() => two.every(({ latestOutput }) => latestOutput().includes("Listening on")))
  const cases: Array<Case> = [
    { name: "Petstore", processes: [service], keys, servers },
    { name: "2 × Petstore, Redis", processes: two, keys, servers: [...servers, redis.title] }
  ]
  for (const name of Contender.peers) {
    const contender = yield* Contender.start(name, env).pipe(
      Effect.catchTag(
        "Unavailable",
        ({ message }) => Effect.as(Console.log(`${name} is skipped. ${message}`), undefined)
      )
    )
    if (contender !== undefined) cases.push({ name, processes: [contender], keys, servers })
  }
  const floor = yield* Contender.start("node:http", { SERVICE: service.address, KEY: key })
  cases.push({ name: "node:http", processes: [floor], keys, servers: [] })
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
  const start = (name: string, env: Readonly<Record<string, string>>, ownKeys = keyCount) =>
    Effect.map(Contender.start("Petstore", { DATABASE_URL: url, ...env }), (service): Case => ({
      name,
      processes: [service],
      keys: keys.slice(0, ownKeys),
      servers: "REDIS_URL" in env ? [...servers, redis.title] : servers
    }))
  const cases = yield* Effect.all([
    start("default", {}),
    start("one key", {}, 1),
    start(`${keys.length} keys`, {}, keys.length),
    start("Redis", { REDIS_URL: redis.url }),
    start("traced", {
      OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${yield* collector}`,
      OTEL_LOGS_EXPORTER: "none"
    }),
    start("without access log", { LOG_LEVEL: "warn" })
  ])
  yield* compare(cases, ["list", "get"], "reverse")
})

const tables = { peers, settings: configurations }
const chosen = process.argv.slice(2)
Effect.forEach(
  Object.entries(tables).filter(([name]) => chosen.length === 0 || chosen.includes(name)),
  ([, run]) => Effect.scoped(run),
  { discard: true }
).pipe(NodeRuntime.runMain)
