/**
 * Loads processes in turn, round by round, so that the machine's noise affects all of them alike. Each round has new
 * processes: a process keeps the code that V8 optimised first, so two processes of one program differ by up to 1.2.
 */
import { Array, Config, Console, Effect, Schema, type Scope } from "effect"
import * as Contender from "./Contender.ts"
import { load } from "./load.ts"
import * as Workload from "./Workload.ts"

const connections = 32

/** The rounds, and the seconds of each load; the highest id of the pets, and the number of keys. */
export const settings = Config.all({
  rounds: Config.Int("BENCH_ROUNDS").pipe(Config.withDefault(4)),
  seconds: Config.Finite("BENCH_SECONDS").pipe(Config.withDefault(1.25)),
  ids: Config.Int("BENCH_PETS").pipe(Config.withDefault(200_000)),
  keyCount: Config.Int("BENCH_KEYS").pipe(Config.withDefault(1_000)),
  operations: Config.Array(Schema.Literals(Workload.operations), "BENCH_OPERATIONS").pipe(
    Config.withDefault(Workload.operations.filter((operation) => !operation.startsWith("uniform")))
  )
})

/** A process that starts anew in each round, on the same data. */
export interface Case {
  readonly name: string
  readonly start: Effect.Effect<Contender.Contender, Effect.Error<ReturnType<typeof Contender.start>>, Scope.Scope>
  readonly keys: ReadonlyArray<string>
  /** Parts of the command lines of the servers' processes that work for it. */
  readonly servers: ReadonlyArray<string>
}

/** The figures of one load: microseconds of CPU per request, with the database, and resident megabytes. */
interface Sample {
  readonly cpu: number
  readonly atRest: number
  readonly highest: number
}

/** Returns the figures of a case in all rounds. */
export type Samples = (name: string, operation: Workload.Operation) => ReadonlyArray<Sample>

/** Loads a process with an operation, first until its code is compiled and its caches are filled. */
const measureLoad = Effect.fnUntraced(function*(
  { keys, name, servers }: Case,
  process: Contender.Contender,
  operation: Workload.Operation,
  warmSeconds: number
) {
  const { ids, seconds } = yield* settings
  const run = (seconds: number) =>
    Effect.promise(() => {
      const request = Workload.requests(operation, ids, keys)
      return load({ ports: [Number(new URL(process.address).port)], request, connections, seconds })
    })
  const atRest = Contender.usage(process).megabytes
  Contender.forgetHighest(process)
  yield* run(warmSeconds)
  const [before, serversBefore] = [Contender.usage(process), Contender.cpuOf(servers)]
  const { p99, requests, requestsPerSecond, statuses } = yield* run(seconds)
  const after = Contender.usage(process)
  let cpu = after.cpu - before.cpu
  for (const [pid, seconds] of Contender.cpuOf(servers)) cpu += seconds - (serversBefore.get(pid) ?? 0)
  const sample: Sample = { cpu: cpu / requests * 1e6, atRest, highest: after.highestMegabytes }
  const failed = requests - (statuses.get(200) ?? 0) - (statuses.get(201) ?? 0)
  const figures = `${sample.cpu.toFixed(0)} µs, ${requestsPerSecond.toFixed(0)}/s, p99 ${p99.toFixed(1)} ms`
  yield* Console.error(`  ${operation}, ${name}: ${figures}${failed > 0 ? `, ${failed} of ${requests} FAILED` : ""}`)
  return sample
})

/** Starts the processes of all cases, loads them in turn with each operation, and ends them. Each round has its order. */
const runRound = Effect.fnUntraced(function*(cases: ReadonlyArray<Case>, round: number) {
  const { operations, rounds, seconds } = yield* settings
  const started = yield* Effect.forEach(cases, (each) => Effect.map(each.start, (process) => ({ each, process })))
  const times = started.map(({ each, process }) => `${each.name} ${process.startedIn.toFixed(0)} (${process.address})`)
  yield* Console.error(`Round ${round + 1} of ${rounds}. Milliseconds to the first response: ${times.join(", ")}`)
  const rotated = Array.rotate(started, -round)
  const inTurn = round % 2 === 0 ? rotated : rotated.toReversed()
  const samples = new Map<string, Sample>()
  for (const [index, operation] of operations.entries()) {
    for (const { each, process } of inTurn) {
      const sample = yield* measureLoad(each, process, operation, index === 0 ? 2 * seconds : seconds)
      samples.set(`${each.name} ${operation}`, sample)
    }
  }
  return samples
}, Effect.scoped)

export const measure = Effect.fnUntraced(function*(cases: ReadonlyArray<Case>) {
  const { rounds } = yield* settings
  const all = yield* Effect.forEach(Array.range(0, rounds - 1), (round) => runRound(cases, round))
  const samples: Samples = (name, operation) => all.flatMap((round) => round.get(`${name} ${operation}`) ?? [])
  return samples
})

const median = (values: ReadonlyArray<number>): number => {
  const sorted = values.toSorted((a, b) => a - b)
  return ((sorted[(sorted.length - 1) >> 1] ?? NaN) + (sorted[sorted.length >> 1] ?? NaN)) / 2
}

/** Compares the CPU of two cases in each round. A ratio whose range holds 1 shows no difference. */
export const ratio = (samples: Samples, ours: string, other: string, operation: Workload.Operation) => {
  const ratios = Array.zipWith(samples(ours, operation), samples(other, operation), (own, its) => own.cpu / its.cpu)
  const values = [Math.min(...ratios), median(ratios), Math.max(...ratios)]
  const [lowest, middle, highest] = values.map((value) => value.toFixed(2))
  const side = Number(highest) < 1 ? "below" : Number(lowest) > 1 ? "above" : "equal"
  return { side, text: `${side === "equal" ? side : middle} (${lowest}–${highest})` } as const
}

export const cpuOf = (samples: Samples, name: string, operation: Workload.Operation): string =>
  median(samples(name, operation).map(({ cpu }) => cpu)).toFixed(0)

/** The memory before the first of some operations, and the highest during them: the median and the maximum of the rounds. */
export const memoryOf = (samples: Samples, name: string, operations: ReadonlyArray<Workload.Operation>): string => {
  const atRest = operations.slice(0, 1).flatMap((first) => samples(name, first)).map((sample) => sample.atRest)
  const highest = operations.flatMap((operation) => samples(name, operation)).map((sample) => sample.highest)
  return `${median(atRest).toFixed(0)}, ${Math.max(...highest).toFixed(0)}`
}

/** Returns a table in Markdown. */
export const table = (rows: ReadonlyArray<ReadonlyArray<string>>): string =>
  rows.flatMap((cells, index) => [
    `| ${cells.join(" | ")} |`,
    ...index === 0 ? [`|${"---|".repeat(cells.length)}`] : []
  ]).join("\n")
