/**
 * Compares the speed of the service with peers, with itself in other configurations, and with many keys.
 *
 * `npm run bench [-- TABLE…]` prints the tables `peers`, `settings` and `keys`, or only the given ones. It needs wrk, and
 * `TEST_DATABASE_URL`, a PostgreSQL server to create databases on. `peers` also needs the npm registry for Bun and
 * Debian's packages golang-go and golang-github-jackc-pgx-v4-dev for Go. `settings` also needs a redis-server.
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Console, Effect } from "effect"
import { createServer, type Server } from "node:http"
import * as Redis from "../test/support/Redis.ts"
import * as Contender from "./Contender.ts"
import { type Case, compare, type Result } from "./measure.ts"
import * as Workload from "./Workload.ts"

const pets = 200_000

/** The goals: requests per second as a multiple of the fastest peer's. */
const goals: Readonly<Record<Workload.Operation, number>> = {
  "list": 2,
  "random page": 1.4,
  "get": 1.2,
  "create": 1.3,
  "idempotent": 1.3
}

const printGoal = (operation: Workload.Operation, results: ReadonlyArray<Result>) => {
  const peers = results.filter(({ name }) => name !== "Petstore" && name !== "node:http")
  const [fastest] = peers.toSorted((a, b) => b.requestsPerSecond - a.requestsPerSecond)
  return fastest === undefined ? Effect.void : Console.log(
    `Petstore is ${peers.map(({ name, ratio }) => `${(1 / ratio).toFixed(2)} × ${name}`).join(", ")}. ` +
      `The goal is ${goals[operation]} × ${fastest.name}, with a p99 of at most ${fastest.p99.toFixed(2)} ms.`
  )
}

const peers = Effect.gen(function*() {
  const { key, keys, url } = yield* Workload.database(pets)
  const env = { DATABASE_URL: url }
  const service = yield* Contender.start("Petstore", env)
  yield* Console.log(
    `Petstore: ${service.startedIn.toFixed(0)} ms from the start to the first response, ` +
      `${Contender.usage(service).megabytes.toFixed(0)} MB at rest`
  )
  const cases: Array<Case> = [{ name: "Petstore", contender: service, keys }]
  for (const name of Contender.peers) {
    const contender = yield* Contender.start(name, env).pipe(
      Effect.catchTag(
        "Unavailable",
        ({ message }) => Effect.as(Console.log(`${name} is skipped. ${message}`), undefined)
      )
    )
    if (contender !== undefined) cases.push({ name, contender, keys })
  }
  const floor = yield* Contender.start("node:http", { SERVICE: service.address, KEY: key })
  yield* compare("Peers", pets, [...cases, { name: "node:http", contender: floor, keys }], printGoal)
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

const configurations = Effect.gen(function*() {
  const { keys, url } = yield* Workload.database(pets)
  const redis = yield* Redis.run
  yield* redis.start
  const settings = {
    "default": {},
    "Redis": { REDIS_URL: redis.url },
    "traced": {
      OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${yield* collector}`,
      OTEL_LOGS_EXPORTER: "none"
    },
    "without access log": { LOG_LEVEL: "warn" }
  }
  const cases = yield* Effect.forEach(Object.entries(settings), ([name, env]) =>
    Effect.map(
      Contender.start("Petstore", { DATABASE_URL: url, ...env }),
      (contender): Case => ({ name, contender, keys })
    ))
  yield* compare("Settings (goals: 0.85 of lists with Redis, 0.8 traced)", pets, cases)
})

const activeKeys = Effect.gen(function*() {
  const { keys, url } = yield* Workload.database(pets, 100_000)
  const cases = yield* Effect.forEach([1, 1_000, 100_000], (count) =>
    Effect.map(
      Contender.start("Petstore", { DATABASE_URL: url }),
      (contender): Case => ({ name: `${count} keys`, contender, keys: keys.slice(0, count) })
    ))
  yield* compare("Active keys (goal: 0.85 with 100,000)", pets, cases)
})

const tables = { peers, settings: configurations, keys: activeKeys }
const chosen = process.argv.slice(2)
Effect.forEach(
  Object.entries(tables).filter(([name]) => chosen.length === 0 || chosen.includes(name)),
  ([, table]) => Effect.scoped(table),
  { discard: true }
).pipe(NodeRuntime.runMain)
