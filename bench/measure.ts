/** Loads processes in turn, round by round, so that the machine's noise affects all of them alike. */
import { Config, Console, Effect, Schema } from "effect"
import { temporaryDirectory } from "../test/support/Harness.ts"
import * as Contender from "./Contender.ts"
import * as Workload from "./Workload.ts"
import * as Wrk from "./wrk.ts"

const connections = 32
/** Until the code is compiled and the caches are filled. */
const warmUpSeconds = 5
/** The interval of the median ratio at which the rounds end, as a share of the median. */
const maxInterval = 0.1

/** The maximum number of rounds, the seconds that each process is loaded in a round, and the operations. */
const settings = Config.all({
  rounds: Config.Int("BENCH_ROUNDS").pipe(Config.withDefault(10)),
  seconds: Config.Int("BENCH_SECONDS").pipe(Config.withDefault(2)),
  operations: Config.Array(Schema.Literals(Workload.operations), "BENCH_OPERATIONS").pipe(
    Config.withDefault(Workload.operations)
  )
})

/** A process to load, with requests of these keys in turn. */
export interface Case {
  readonly name: string
  readonly contender: Contender.Contender
  readonly keys: ReadonlyArray<string>
}

/** The medians of a case in all rounds. */
export interface Result {
  readonly name: string
  readonly requestsPerSecond: number
  /** The requests per second as a multiple of those of the first case in the same round. */
  readonly ratio: number
  readonly p99: number
}

const sorted = (values: ReadonlyArray<number>) => values.toSorted((a, b) => a - b)

export const median = (values: ReadonlyArray<number>): number => sorted(values)[values.length >> 1] ?? NaN

/**
 * Returns the 95 % confidence interval of a median: two of the values, whatever their distribution. Fewer than six
 * values have none.
 */
const medianInterval = (values: ReadonlyArray<number>): readonly [low: number, high: number] => {
  // The probability that exactly, and that fewer than, `rank` values are below the median.
  let rank = 0, exactly = 0.5 ** values.length, fewer = 0
  while (fewer + exactly <= 0.025) {
    fewer += exactly
    rank++
    exactly *= (values.length - rank + 1) / rank
  }
  const inOrder = sorted(values)
  return [inOrder[rank - 1] ?? -Infinity, inOrder[values.length - rank] ?? Infinity]
}

const row = (cells: ReadonlyArray<string>): string =>
  cells.map((cell, index) => index === 0 ? cell.padEnd(22) : cell.padStart(index === 2 ? 24 : 11)).join("")

/**
 * Prints a table for each operation, and calls `onResults` after it. `pets` is the number of pets in the table. The
 * rounds end when the interval of each median ratio to the first case is under 10 %, or after the maximum number.
 */
export const compare = Effect.fnUntraced(function*(
  title: string,
  pets: number,
  cases: ReadonlyArray<Case>,
  onResults: (operation: Workload.Operation, results: ReadonlyArray<Result>) => Effect.Effect<void> = () => Effect.void
) {
  const { operations, rounds: maxRounds, seconds } = yield* settings
  yield* Console.log(
    `\n${title}: PostgreSQL, ${pets} pets, ${connections} connections, at most ${maxRounds} rounds of ${seconds} s in turn ` +
      `after ${warmUpSeconds} s; medians, and the ratio's 95 % interval`
  )
  const directory = yield* temporaryDirectory
  const requests = Workload.requests(directory, pets)
  const load = Effect.fnUntraced(function*(
    { contender, keys, name }: Case,
    operation: Workload.Operation,
    duration: number
  ) {
    const { cpu } = Contender.usage(contender)
    const measured = yield* Wrk.load({
      address: contender.address,
      requests: requests[operation],
      keys: Workload.write(directory, `keys of ${name.replaceAll("/", " ")}`, keys),
      connections,
      seconds: duration
    })
    return { ...measured, cpu: (Contender.usage(contender).cpu - cpu) / measured.requests * 1e6 }
  })
  type Sample = Effect.Success<ReturnType<typeof load>>

  for (const operation of operations) {
    yield* Effect.forEach(cases, (each) => load(each, operation, warmUpSeconds))
    const rounds: Array<ReadonlyArray<Sample>> = []
    const column = (index: number, field: keyof Sample) => rounds.map((round) => round[index]?.[field] ?? NaN)
    const ratios = (index: number) =>
      column(index, "requestsPerSecond").map((rate, round) => rate / (rounds[round]?.[0]?.requestsPerSecond ?? NaN))
    const isPrecise = () =>
      cases.every((_, index) => {
        const [low, high] = medianInterval(ratios(index))
        return high - low < maxInterval * median(ratios(index))
      })
    do {
      rounds.push(yield* Effect.forEach(cases, (each) => load(each, operation, seconds)))
    } while (rounds.length < maxRounds && !isPrecise())

    yield* Console.log(
      `\n${row([operation, "requests/s", `× ${cases[0]?.name}`, "p50 ms", "p99 ms", "p99.9 ms", "CPU µs", "MB"])}` +
        `   (${rounds.length} rounds)`
    )
    const results: Array<Result> = []
    for (const [index, { contender, name }] of cases.entries()) {
      const of = (field: keyof Sample) => median(column(index, field))
      const ratio = median(ratios(index))
      const interval = medianInterval(ratios(index)).map((bound) => bound.toFixed(2)).join(" to ")
      const failed = column(index, "failed").reduce((sum, each) => sum + each, 0)
      results.push({ name, ratio, requestsPerSecond: of("requestsPerSecond"), p99: of("p99") })
      yield* Console.log(
        row([
          name,
          of("requestsPerSecond").toFixed(0),
          `${ratio.toFixed(2)} (${interval})`,
          ...(["p50", "p99", "p999"] as const).map((field) => of(field).toFixed(2)),
          of("cpu").toFixed(1),
          Contender.usage(contender).megabytes.toFixed(0)
        ]) + (failed === 0 ? "" : `   ${failed} FAILED`)
      )
    }
    yield* onResults(operation, results)
  }
})
