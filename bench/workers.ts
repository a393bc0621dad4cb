/**
 * Prints the requests per second of one process and of two workers, on PostgreSQL (`TEST_DATABASE_URL`) and Redis. It
 * needs wrk and a redis-server program. The load, PostgreSQL and Redis run on the same cores.
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Console, Effect } from "effect"
import { freePort, temporaryDirectory } from "../test/support/Harness.ts"
import * as Redis from "../test/support/Redis.ts"
import * as Contender from "./Contender.ts"
import { median } from "./median.ts"
import * as Workload from "./Workload.ts"
import * as Wrk from "./wrk.ts"

const pets = 200_000
const rounds = 5
const seconds = 4
const workers = [1, 2]

Effect.scoped(Effect.gen(function*() {
  const directory = yield* temporaryDirectory
  const redis = yield* Redis.run
  yield* redis.start
  const { key, url } = yield* Workload.database(pets)
  const files = Workload.requests(directory, pets)
  const keys = Workload.write(directory, "key", [key])
  const services = yield* Effect.forEach(
    workers,
    (count) =>
      Effect.flatMap(freePort, (management) =>
        Contender.start("Petstore", {
          env: {
            DATABASE_URL: url,
            REDIS_URL: redis.url,
            DATA_DIR: directory,
            LOG_LEVEL: "warn",
            WORKERS: String(count),
            MANAGEMENT_PORT: String(management)
          },
          key
        }))
  )
  // The second worker starts when the first one serves requests.
  yield* Effect.sleep("5 seconds")
  for (const operation of ["list of 20", "random pages", "get", "create"] as const) {
    const measure = Effect.fnUntraced(function*(service: Contender.Contender) {
      const { cpu } = Contender.usage(service)
      const { address } = service
      const measured = yield* Wrk.load({ address, requests: files[operation], keys, connections: 64, seconds })
      return { ...measured, cpu: (Contender.usage(service).cpu - cpu) / measured.requests * 1e6 }
    })
    yield* Effect.forEach(services, measure)
    const results = yield* Effect.replicateEffect(Effect.forEach(services, measure), rounds)
    for (const [index, count] of workers.entries()) {
      const of = (field: "requestsPerSecond" | "p50" | "p99" | "failed" | "cpu") =>
        median(results.map((round) => round[index]?.[field] ?? NaN))
      const ratio = median(
        results.map((round) => (round[index]?.requestsPerSecond ?? NaN) / (round[0]?.requestsPerSecond ?? NaN))
      )
      yield* Console.log(
        `${operation.padEnd(14)}${count} worker${count === 1 ? " " : "s"}` +
          `${of("requestsPerSecond").toFixed(0).padStart(8)} requests/s   ${ratio.toFixed(2)}` +
          `   p50 ${of("p50").toFixed(1)} ms   p99 ${of("p99").toFixed(1)} ms   CPU ${
            of("cpu").toFixed(0)
          } µs   failed ${of("failed")}`
      )
    }
  }
  for (const [index, count] of workers.entries()) {
    const service = services[index]
    if (service === undefined) continue
    const { megabytes } = Contender.usage(service)
    yield* Console.log(
      `${count} worker${count === 1 ? " " : "s"}: ${megabytes.toFixed(0)} MB resident in all processes`
    )
  }
})).pipe(NodeRuntime.runMain)
