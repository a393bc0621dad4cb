/**
 * Counts the work of a request where noise of the machine changes less than 1 %: Effect operations, bytes allocated, and
 * calls of read and write. Compare trees only: without the optimising compilers, the bytes are 40 % higher than usual.
 *
 * `npm run bench:counters -- [DIRECTORY…]` counts the services of other directories too. It needs `TEST_DATABASE_URL`.
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Config, Console, Effect, Schema } from "effect"
import { existsSync, readFileSync } from "node:fs"
import { join } from "node:path"
import * as Contender from "./Contender.ts"
import { load } from "./load.ts"
import { settings, table } from "./measure.ts"
import * as Workload from "./Workload.ts"

/** The module that counts, in this tree and in those that it is copied to. */
export const preload = "bench/countersPreload.ts"

/** All code is interpreted, so that a run counts what another does, and nothing is collected during an operation. */
const nodeFlags = [
  "--no-opt",
  "--no-maglev",
  "--single-threaded",
  "--expose-gc",
  "--min-semi-space-size=1024",
  "--max-semi-space-size=1024"
]

const decodeCounters = Schema.decodeUnknownEffect(
  Schema.fromJsonString(Schema.Struct({ operations: Schema.Finite, bytes: Schema.Finite, bytesLeft: Schema.Finite }))
)

/** Asks the process for its counters. Their line is the last one of its kind in the output, and a new one. */
const readCounters = Effect.fnUntraced(function*({ latestOutput, pid }: Contender.Contender) {
  const lines = () => latestOutput().match(/^counters .*(?=\n)/gm) ?? []
  const last = lines().at(-1)
  process.kill(pid, "SIGUSR2")
  let line: string | undefined
  while ((line = lines().at(-1)) === last) yield* Effect.sleep("5 millis")
  // The kernel's counts of all calls that read or write. Others, such as `epoll_pwait`, depend on timing.
  const calls = (name: string) =>
    Number(new RegExp(`${name}: (\\d+)`).exec(readFileSync(`/proc/${pid}/io`, "utf8"))?.[1])
  return { ...yield* decodeCounters(line?.slice("counters ".length)), reads: calls("syscr"), writes: calls("syscw") }
})

/** Counts the operations of the service in `directory`, on a database of its own: the header and a row for each. */
export const count = Effect.fnUntraced(function*(directory: string, env: Readonly<Record<string, string>> = {}) {
  const requestsPerOperation = yield* Config.withDefault(Config.Int("BENCH_COUNTED"), 2_000)
  const { operations } = yield* settings
  const data = yield* Workload.database(100, 1, directory)
  // The file of the tree itself counts in the copy of Effect that the tree runs on.
  const own = join(directory, preload)
  const flags = [...nodeFlags, `--import=${existsSync(own) ? own : join(Contender.repository, preload)}`]
  const service = yield* Contender.start("Petstore", { ...data.env, ...env }, directory, flags)
  const ports = [Number(new URL(service.address).port)]
  const run = (operation: Workload.Operation, requests: number) =>
    Effect.promise(async () => {
      // The highest id is 1, so that all requests are the same.
      const request = Workload.requests(operation, 1, data.keys)
      const { statuses } = await load({ ports, request, connections: 1, requests })
      if (statuses.keys().some((status) => status >= 300)) throw new Error(`${operation}: ${[...statuses].join(" ")}`)
    })
  // The first requests fill the caches. The gap of a page is cached after two checks, a second apart.
  for (const pause of ["1100 millis", "1100 millis", "0 millis"] as const) {
    yield* Effect.forEach(operations, (operation) => run(operation, 200), { discard: true })
    yield* Effect.sleep(pause)
  }
  return yield* Effect.forEach(operations, (operation) =>
    Effect.gen(function*() {
      const before = yield* readCounters(service)
      yield* run(operation, requestsPerOperation)
      const after = yield* readCounters(service)
      const each = (count: number, digits: number) => (count / requestsPerOperation).toFixed(digits)
      return {
        operation,
        cells: [
          each(after.operations - before.operations, 1),
          each(after.bytes - before.bytesLeft, 0),
          each(after.reads - before.reads, 2),
          each(after.writes - before.writes, 2)
        ]
      }
    }))
}, Effect.scoped)

/** The columns of the cells that `count` returns. */
export const columns = ["Effect operations", "bytes", "reads", "writes"]

const print = Effect.fnUntraced(function*(directory: string) {
  const rows = (yield* count(directory)).map(({ cells, operation }) => [operation, ...cells])
  yield* Console.log(`\n${directory}\n${table([["a request", ...columns], ...rows])}`)
})

if (import.meta.main) {
  const directories = [Contender.repository, ...process.argv.slice(2)]
  Effect.forEach(directories, print, { discard: true }).pipe(NodeRuntime.runMain)
}
