/**
 * Compares creates with an `Idempotency-Key` to creates without one, at several numbers of connections. One process is
 * loaded with both in turn. The results are the medians of the ratios.
 *
 * `npm run bench:creates`. It needs wrk and `TEST_DATABASE_URL`, a PostgreSQL server to create databases on.
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Config, Console, Effect } from "effect"
import { temporaryDirectory } from "../test/support/Harness.ts"
import * as Contender from "./Contender.ts"
import { median } from "./median.ts"
import * as Workload from "./Workload.ts"
import * as Wrk from "./wrk.ts"

const pets = 200_000
const connectionCounts = [1, 8, 32, 256]
const warmUpSeconds = 4

/** Rounds and seconds for each operation and number of connections. */
const settings = Config.all({
  rounds: Config.Int("BENCH_ROUNDS").pipe(Config.withDefault(7)),
  seconds: Config.Int("BENCH_SECONDS").pipe(Config.withDefault(2))
})

const comparison = Effect.gen(function*() {
  const { rounds, seconds } = yield* settings
  const { key, url } = yield* Workload.database(pets)
  const service = yield* Contender.start("Petstore", { env: { DATABASE_URL: url }, key })
  const directory = yield* temporaryDirectory
  const requests = Workload.requests(directory, pets)
  const keys = Workload.write(directory, "key", [key])
  const load = Effect.fnUntraced(function*(operation: Workload.Operation, connections: number, duration: number) {
    const { cpu } = Contender.usage(service)
    const measured = yield* Wrk.load({
      address: service.address,
      requests: requests[operation],
      keys,
      connections,
      seconds: duration
    })
    return { ...measured, cpu: (Contender.usage(service).cpu - cpu) / measured.requests * 1e6 }
  })
  const both = (connections: number, duration: number) =>
    Effect.all([load("create", connections, duration), load("idempotent", connections, duration)])
  yield* Console.log(
    `PostgreSQL, ${pets} pets, ${rounds} rounds of ${seconds} s in turn after ${warmUpSeconds} s; ` +
      "without and with a key, medians, the ratio of each round"
  )
  for (const connections of connectionCounts) {
    yield* both(connections, warmUpSeconds)
    const samples = yield* Effect.replicateEffect(both(connections, seconds), rounds)
    const ratios = samples.map(([without, withKey]) => withKey.requestsPerSecond / without.requestsPerSecond)
    const medians = (field: "requestsPerSecond" | "p50" | "p99" | "cpu", digits: number): string =>
      [0, 1].map((side) => median(samples.map((sample) => sample[side === 0 ? 0 : 1][field])).toFixed(digits))
        .join(" and ")
    const failed = samples.flat().reduce((sum, sample) => sum + sample.failed, 0)
    yield* Console.log(
      [
        `${connections} connections`.padEnd(16),
        `${median(ratios).toFixed(2)} ×`,
        `${medians("requestsPerSecond", 0)} requests/s`,
        `p50 ${medians("p50", 2)} ms`,
        `p99 ${medians("p99", 1)} ms`,
        `CPU ${medians("cpu", 1)} µs`,
        `(${ratios.map((ratio) => ratio.toFixed(2)).join(" ")})`,
        ...failed === 0 ? [] : [`${failed} FAILED`]
      ].join("   ")
    )
  }
})

Effect.scoped(comparison).pipe(NodeRuntime.runMain)
