/**
 * Compares the speed of the service with the same service on other frameworks, and with the floors. All of them run at
 * once, and each is loaded in turn for several rounds. The results are ratios of medians.
 *
 * It needs wrk, and `TEST_DATABASE_URL`, a PostgreSQL server to create databases on.
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Config, Console, Effect } from "effect"
import { temporaryDirectory } from "../test/support/Harness.ts"
import * as Contender from "./Contender.ts"
import { median } from "./median.ts"
import * as Workload from "./Workload.ts"
import * as Wrk from "./wrk.ts"

const pets = 200_000
const connections = 32
/** Seconds of warm-up, until the code is compiled and the caches are filled. */
const warmUp = 6

/** Rounds and seconds for each process and operation. */
const settings = Config.all({
  rounds: Config.Int("BENCH_ROUNDS").pipe(Config.withDefault(3)),
  seconds: Config.Int("BENCH_SECONDS").pipe(Config.withDefault(3))
})

interface Sample extends Wrk.Measured {
  /** Microseconds of CPU per request. */
  readonly cpu: number
}

const row = (cells: ReadonlyArray<string>): string =>
  cells.map((cell, nth) => nth === 0 ? cell.padEnd(23) : cell.padStart(12)).join("")

const comparison = Effect.gen(function*() {
  const { rounds, seconds } = yield* settings
  const { key, url } = yield* Workload.database(pets)
  const env = { DATABASE_URL: url }
  const service = yield* Contender.start("Petstore", { env, key })
  const peers = yield* Effect.forEach(Contender.peers, (name) => Contender.start(name, { env, key }))
  const embedded = yield* Workload.embedded(pets)
  const alone = yield* Contender.start("Petstore, embedded", {
    env: { DATA_DIR: embedded.directory },
    key: embedded.key
  })
  const repeating = { SERVICE: service.address, KEY: key }
  const floor = yield* Contender.start("floor (node:http)", { env: repeating, key })
  const committing = yield* Contender.start("floor, committing", { env: { ...env, ...repeating }, key })
  yield* Console.log(
    `PostgreSQL, ${pets} pets, ${connections} connections, ${rounds} rounds of ${seconds} s in turn after ${warmUp} s; medians`
  )
  for (const own of [service, alone]) {
    yield* Console.log(
      `${own.name}: started to the first 200 in ${own.startedIn.toFixed(0)} ms, ` +
        `${Contender.usage(own).megabytes.toFixed(0)} MB at rest`
    )
  }
  const directory = yield* temporaryDirectory
  const requests = Workload.requests(directory, pets)
  for (const operation of Workload.operations) {
    // Its reads are those of the other floor.
    const contenders = [service, ...peers, alone, floor, ...operation === "create" ? [committing] : []]
    const samples = new Map(contenders.map(({ name }) => [name, Array<Sample>()]))
    const one = Effect.fnUntraced(function*(contender: Contender.Contender, duration: number) {
      const { cpu } = Contender.usage(contender)
      const measured = yield* Wrk.load({
        address: contender.address,
        requests: requests[operation],
        keys: Workload.write(directory, contender.name, [contender.key]),
        connections,
        seconds: duration
      })
      return { ...measured, cpu: (Contender.usage(contender).cpu - cpu) / measured.requests * 1e6 }
    })
    for (const contender of contenders) yield* one(contender, warmUp)
    for (let round = 0; round < rounds; round++) {
      for (const contender of contenders) samples.get(contender.name)?.push(yield* one(contender, seconds))
    }
    const of = (name: Contender.Name, field: keyof Sample) =>
      median((samples.get(name) ?? []).map((sample) => sample[field]))
    const own = of("Petstore", "requestsPerSecond")
    yield* Console.log(
      `\n${row([operation, "requests/s", "Petstore is", "p50 ms", "p99 ms", "CPU µs", "MB"])}`
    )
    for (const contender of contenders) {
      const rate = of(contender.name, "requestsPerSecond")
      const failed = samples.get(contender.name)?.reduce((sum, sample) => sum + sample.failed, 0) ?? 0
      yield* Console.log(
        row([
          contender.name,
          rate.toFixed(0),
          `${(own / rate).toFixed(2)} ×`,
          of(contender.name, "p50").toFixed(2),
          of(contender.name, "p99").toFixed(2),
          of(contender.name, "cpu").toFixed(1),
          Contender.usage(contender).megabytes.toFixed(0)
        ]) + (failed === 0 ? "" : `   ${failed} FAILED`)
      )
    }
  }
})

Effect.scoped(comparison).pipe(NodeRuntime.runMain)
