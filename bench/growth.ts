/**
 * Prints how the speed changes with the table, the keys in use, the connections (also for the floor) and the processes.
 * Each figure is a ratio to the first of its kind. All are loaded in turn.
 *
 * It needs wrk, a redis-server program, and `TEST_DATABASE_URL`, a PostgreSQL server with room for databases of 3 GB.
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Console, Effect } from "effect"
import { temporaryDirectory } from "../test/support/Harness.ts"
import * as Redis from "../test/support/Redis.ts"
import * as Contender from "./Contender.ts"
import { median } from "./median.ts"
import * as Workload from "./Workload.ts"
import * as Wrk from "./wrk.ts"

const rounds = 3
const seconds = 3
const warmUp = 8

interface Case {
  readonly name: string
  readonly services: ReadonlyArray<Contender.Contender>
  readonly requests: Workload.Requests
  readonly keys: string
  readonly connections: number
}

/** Loads each case in turn, with each operation. */
const compare = Effect.fnUntraced(function*(title: string, cases: ReadonlyArray<Case>) {
  yield* Console.log(`\n${title.padEnd(22)}${cases.map(({ name }) => name.padStart(22)).join("")}`)
  for (const operation of Workload.operations) {
    const one = ({ connections, keys, requests, services }: Case, duration: number) =>
      Effect.map(
        Effect.forEach(services, ({ address }) =>
          Wrk.load({
            address,
            requests: requests[operation],
            keys,
            connections: connections / services.length,
            seconds: duration
          }), { concurrency: "unbounded" }),
        (measured) => ({
          requestsPerSecond: measured.reduce((sum, each) => sum + each.requestsPerSecond, 0),
          p99: Math.max(...measured.map(({ p99 }) => p99)),
          failed: measured.reduce((sum, each) => sum + each.failed, 0)
        })
      )
    for (const each of cases) yield* one(each, warmUp)
    const samples = cases.map(() => Array<Effect.Success<ReturnType<typeof one>>>())
    for (let round = 0; round < rounds; round++) {
      for (const [index, each] of cases.entries()) samples[index]?.push(yield* one(each, seconds))
    }
    const rates = samples.map((measured) => median(measured.map(({ requestsPerSecond }) => requestsPerSecond)))
    const cells = rates.map((rate, index) => {
      const p99 = median(samples[index]?.map((sample) => sample.p99) ?? [])
      const failed = samples[index]?.some((sample) => sample.failed > 0) === true ? " FAILED" : ""
      return `${(rate / (rates[0] ?? NaN)).toFixed(2)} (${rate.toFixed(0)}/s, ${p99.toFixed(0)} ms)${failed}`.padStart(
        22
      )
    })
    yield* Console.log(operation.padEnd(22) + cells.join(""))
  }
})

const growth = Effect.gen(function*() {
  const directory = yield* temporaryDirectory
  const keyFile = (name: string, keys: ReadonlyArray<string>) => Workload.write(directory, name, keys)
  yield* Console.log(`Ratio (requests a second, p99); medians of ${rounds} rounds of ${seconds} s in turn, one process`)

  yield* Effect.scoped(Effect.gen(function*() {
    const cases: Array<Case> = []
    for (const pets of [10_000, 1_000_000, 10_000_000]) {
      const { key, url } = yield* Workload.database(pets)
      const service = yield* Contender.start("Petstore", { env: { DATABASE_URL: url }, key })
      const requests = Workload.requests(directory, pets)
      cases.push({
        name: `${pets}`,
        services: [service],
        requests,
        keys: keyFile(`key ${pets}`, [key]),
        connections: 32
      })
    }
    yield* compare("Pets", cases)
  }))

  const pets = 200_000
  const requests = Workload.requests(directory, pets)
  const { key, keys, url } = yield* Workload.database(pets, 100_000)
  const env = { DATABASE_URL: url }
  const services = [yield* Contender.start("Petstore", { env, key })]
  yield* compare(
    "Keys",
    [1, 100, 100_000].map((many) => ({
      name: `${many}`,
      services,
      requests,
      keys: keyFile(`${many} keys`, keys.slice(0, many)),
      connections: 32
    }))
  )
  const oneKey = keyFile("one key", [key])
  const floor = yield* Effect.forEach(
    services,
    ({ address }) => Contender.start("floor (node:http)", { env: { SERVICE: address, KEY: key }, key })
  )
  for (const [title, loaded] of [["Connections", services], ["Connections, floor", floor]] as const) {
    yield* compare(
      title,
      [32, 1, 8, 256, 2_000].map((connections) => ({
        name: `${connections}`,
        services: loaded,
        requests,
        keys: oneKey,
        connections
      }))
    )
  }

  const redis = yield* Redis.run
  yield* redis.start
  const shared = { ...env, REDIS_URL: redis.url }
  const together = [
    yield* Contender.start("Petstore", { env: shared, key }),
    yield* Contender.start("Petstore", { env: shared, key })
  ]
  yield* compare(
    "Processes, on Redis",
    [1, 2].map((many) => ({
      name: `${many}`,
      services: together.slice(0, many),
      requests,
      keys: oneKey,
      connections: 32
    }))
  )
})

Effect.scoped(growth).pipe(NodeRuntime.runMain)
