/**
 * Loads processes in turn, round by round, so that the machine's noise affects all of them alike. Each round has new
 * processes: a process keeps the code that V8 optimised first, so two processes of one program differ by up to 1.2.
 */
import { Array, Config, Console, Effect, Schema, type Scope } from "effect"
import { temporaryDirectory } from "../test/support/Temporary.ts"
import * as Contender from "./Contender.ts"
import * as Workload from "./Workload.ts"
import * as Wrk from "./wrk.ts"

const connections = 32

/** The rounds, and the seconds of each load; the highest id of the pets, and the number of keys. */
export const settings = Config.all({
  rounds: Config.Int("BENCH_ROUNDS").pipe(Config.withDefault(6)),
  seconds: Config.Int("BENCH_SECONDS").pipe(Config.withDefault(2)),
  ids: Config.Int("BENCH_PETS").pipe(Config.withDefault(2_000_000)),
  keyCount: Config.Int("BENCH_KEYS").pipe(Config.withDefault(1_000)),
  operations: Config.Array(Schema.Literals(Workload.operations), "BENCH_OPERATIONS").pipe(
    Config.withDefault(Workload.operations)
  )
})

/** Processes behind one address, which are loaded with requests of these keys in turn. */
export interface Case {
  readonly name: string
  /** Starts the processes, on the same data each time. */
  readonly start: Effect.Effect<
    Array.NonEmptyReadonlyArray<Contender.Contender>,
    Effect.Error<ReturnType<typeof Contender.start>>,
    Scope.Scope
  >
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
  readonly megabytes: number
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

export const median = (values: ReadonlyArray<number>): number => {
  const sorted = values.toSorted((a, b) => a - b)
  return ((sorted[(sorted.length - 1) >> 1] ?? NaN) + (sorted[sorted.length >> 1] ?? NaN)) / 2
}

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

type Cell = (row: Result["rows"][number]) => string

/** Prints a table with a row for each case, from the index `first` on, and a column for each operation. */
export const summarize = (title: string, results: ReadonlyArray<Result>, first: number, cell: Cell) =>
  Console.log(`\n${
    table([
      [title, ...results.map(({ operation }) => operation)],
      ...results[0]?.rows.slice(first).map(({ name }) => [
        name,
        ...results.map(({ rows }) => rows.filter((row) => row.name === name).map(cell).join())
      ]) ?? []
    ])
  }`)

/** Loads the processes of a case with an operation. */
const load = Effect.fnUntraced(function*(
  { keys, name, servers }: Case,
  processes: Array.NonEmptyReadonlyArray<Contender.Contender>,
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
    cpuWithServers: (cpu + ofServers) / requests * 1e6,
    megabytes: processes.reduce((sum, process) => sum + Contender.usage(process).megabytes, 0)
  }
  return sample
})

/** Starts the processes of all cases, loads them in turn with each operation, and ends them. Each round has its order. */
const runRound = Effect.fnUntraced(function*(
  cases: ReadonlyArray<Case>,
  operations: ReadonlyArray<Workload.Operation>,
  round: number
) {
  const { ids, seconds } = yield* settings
  const directory = yield* temporaryDirectory
  const started = yield* Effect.forEach(cases, (each) => Effect.map(each.start, (processes) => ({ each, processes })))
  const facts = started.map(({ each, processes: [first] }) =>
    `${each.name} ${first.startedIn.toFixed(0)} ms, ${Contender.usage(first).megabytes.toFixed(0)} MB`
  )
  yield* Console.log(`Round ${round + 1}: time to the first response and memory at rest: ${facts.join("; ")}`)
  // Six rounds have all orders of three cases.
  const rotated = Array.rotate(started, -round)
  const inTurn = round % 2 === 0 ? rotated : rotated.toReversed()
  return yield* Effect.forEach(operations, (operation) => {
    const loadAll = (seconds: number) =>
      Effect.forEach(inTurn, ({ each, processes }) =>
        Effect.map(
          load(each, processes, operation, { directory, ids, seconds }),
          (sample) => [each.name, sample] as const
        ))
    // The first loads last until the code is compiled and the caches are filled.
    return Effect.map(Effect.andThen(loadAll(seconds + 1), loadAll(seconds)), (samples) => new Map(samples))
  })
}, Effect.scoped)

/** Prints a table for each operation. A ratio is the first case's figure over that of each, or the `reverse`. */
export const compare = Effect.fnUntraced(function*(
  cases: ReadonlyArray<Case>,
  operations: ReadonlyArray<Workload.Operation>,
  order?: "reverse"
) {
  const { rounds } = yield* settings
  const ratioOf = order === "reverse" ? `over ${cases[0]?.name}` : `${cases[0]?.name} over it`
  const loads = yield* Effect.forEach(Array.range(0, rounds - 1), (round) => runRound(cases, operations, round))
  return yield* Effect.forEach(operations, (operation, position) =>
    Effect.gen(function*() {
      const rows = cases.map(({ name }): Row => {
        const column = (field: keyof Sample, of = name) =>
          loads.map((round) => round[position]?.get(of)?.[field] ?? NaN)
        return {
          name,
          median: (field) => median(column(field)),
          ratio: (field) => {
            const firsts = column(field, cases[0]?.name)
            return formatSpread(
              Array.zipWith(column(field), firsts, (own, first) => order === "reverse" ? own / first : first / own)
            )
          }
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
            median("megabytes").toFixed(0),
            ...index === 0 ? ["", "", ""] : [ratio("rate"), ratio("cpu"), ratio("cpuWithServers")]
          ])
        ])
      }`)
      const result: Result = { operation, rows }
      return result
    }))
})
