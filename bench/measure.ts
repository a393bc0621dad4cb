/** Loads processes in turn, round by round, so that the machine's noise affects all of them alike. */
import { Config, Console, Effect, Schema } from "effect"
import { temporaryDirectory } from "../test/support/Temporary.ts"
import * as Contender from "./Contender.ts"
import * as Workload from "./Workload.ts"
import * as Wrk from "./wrk.ts"

const connections = 32

/** The rounds, and the seconds of each load; the highest id of the pets, and the number of keys. */
export const settings = Config.all({
  rounds: Config.Int("BENCH_ROUNDS").pipe(Config.withDefault(7)),
  seconds: Config.Int("BENCH_SECONDS").pipe(Config.withDefault(2)),
  ids: Config.Int("BENCH_PETS").pipe(Config.withDefault(2_000_000)),
  keyCount: Config.Int("BENCH_KEYS").pipe(Config.withDefault(1_000)),
  operations: Config.Array(Schema.Literals(Workload.operations), "BENCH_OPERATIONS").pipe(
    Config.withDefault(Workload.operations)
  )
})

/** The processes behind one address, which are loaded with requests of these keys in turn. */
export interface Case {
  readonly name: string
  readonly processes: readonly [Contender.Contender, ...ReadonlyArray<Contender.Contender>]
  readonly keys: ReadonlyArray<string>
  /** Parts of the command lines of the servers' processes that work for these. */
  readonly servers: ReadonlyArray<string>
}

/** The figures of one load. CPU is in microseconds per request. */
interface Sample {
  readonly rate: number
  readonly p99: number
  readonly cpu: number
  readonly cpuWithServers: number
}

/** The figures of a case in all rounds. Ratios are those to the first case in the same round, or the reverse. */
interface Row {
  readonly name: string
  readonly median: (field: keyof Sample) => number
  readonly ratio: (field: keyof Sample) => string
}

export interface Result {
  readonly operation: Workload.Operation
  readonly rows: ReadonlyArray<Row>
}

export const median = (values: ReadonlyArray<number>): number =>
  values.toSorted((a, b) => a - b)[values.length >> 1] ?? NaN

/** Formats the median, the lowest and the highest value. */
const formatSpread = (values: ReadonlyArray<number>): string =>
  `${median(values).toFixed(2)} (${Math.min(...values).toFixed(2)} to ${Math.max(...values).toFixed(2)})`

export const formatRate = (rate: number): string => Math.round(rate).toLocaleString("en")

/** Returns a table in Markdown. */
export const table = (rows: ReadonlyArray<ReadonlyArray<string>>): string =>
  rows.flatMap((cells, index) => [
    `| ${cells.join(" | ")} |`,
    ...index === 0 ? [`|${"---|".repeat(cells.length)}`] : []
  ]).join("\n")

/** Loads a case with an operation. */
const load = Effect.fnUntraced(function*(
  { keys, name, processes, servers }: Case,
  operation: Workload.Operation,
  { directory, ids, seconds }: { readonly directory: string; readonly ids: number; readonly seconds: number }
) {
  const cpuBefore = new Map(processes.map((process) => [process, Contender.usage(process).cpu]))
  const serversBefore = Contender.cpuOf(servers)
  const { failed, p99, requests, requestsPerSecond } = yield* Wrk.load({
    address: processes[0].address,
    requests: Workload.write(directory, "requests", Workload.requests(operation, ids)),
    keys: Workload.write(directory, "keys", keys),
    connections,
    seconds
  })
  if (failed > 0) yield* Console.log(`${name}: ${failed} of ${requests} requests failed (${operation}).`)
  let cpu = 0
  for (const [process, before] of cpuBefore) cpu += Contender.usage(process).cpu - before
  let ofServers = 0
  for (const [pid, after] of Contender.cpuOf(servers)) ofServers += after - (serversBefore.get(pid) ?? 0)
  const sample: Sample = {
    rate: requestsPerSecond,
    p99,
    cpu: cpu / requests * 1e6,
    cpuWithServers: (cpu + ofServers) / requests * 1e6
  }
  return sample
})

/** Prints a table for each operation. A ratio is the first case's figure over that of each, or the `reverse`. */
export const compare = Effect.fnUntraced(function*(
  cases: ReadonlyArray<Case>,
  operations: ReadonlyArray<Workload.Operation>,
  order?: "reverse"
) {
  const { ids, rounds, seconds } = yield* settings
  const directory = yield* temporaryDirectory
  const ratioOf = order === "reverse" ? `over ${cases[0]?.name}` : `${cases[0]?.name} over it`
  return yield* Effect.forEach(operations, (operation) =>
    Effect.gen(function*() {
      // Until the code is compiled and the caches are filled.
      yield* Effect.forEach(cases, (each) => load(each, operation, { directory, ids, seconds: seconds + 1 }))
      const round = Effect.forEach(cases, (each) => load(each, operation, { directory, ids, seconds }))
      const samples = yield* Effect.replicateEffect(round, rounds)
      const rows = cases.map(({ name }, index): Row => {
        const column = (field: keyof Sample) => samples.map((round) => round[index]?.[field] ?? NaN)
        return {
          name,
          median: (field) => median(column(field)),
          ratio: (field) =>
            formatSpread(
              column(field).map((value, round) => {
                const first = samples[round]?.[0]?.[field] ?? NaN
                return order === "reverse" ? value / first : first / value
              })
            )
        }
      })
      yield* Console.log(`\n${
        table([
          [
            operation,
            "requests/s",
            "p99 ms",
            "CPU µs",
            "with database",
            "MB",
            `rate: ${ratioOf}`,
            "CPU",
            "with database"
          ],
          ...rows.map(({ median, name, ratio }, index) => [
            name,
            formatRate(median("rate")),
            median("p99").toFixed(1),
            median("cpu").toFixed(0),
            median("cpuWithServers").toFixed(0),
            cases[index]?.processes.map((process) => Contender.usage(process).megabytes.toFixed(0)).join(" + ") ?? "",
            ...index === 0 ? ["", "", ""] : [ratio("rate"), ratio("cpu"), ratio("cpuWithServers")]
          ])
        ])
      }`)
      const result: Result = { operation, rows }
      return result
    }))
})
