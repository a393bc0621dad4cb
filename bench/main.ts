/**
 * Compares the CPU of a request of the service and of its peers: without a cache of pets, with the same one, and as each
 * ships. It takes less than 20 minutes on two idle cores, and prints its progress to standard error.
 *
 * `npm run bench` prints three tables in Markdown. It needs `TEST_DATABASE_URL`, a PostgreSQL server of this machine to
 * create databases on, the npm registry for Bun, and Debian's packages golang-go, golang-github-jackc-pgx-v4-dev and
 * golang-github-rs-zerolog-dev for Go.
 *
 * A quick run: `BENCH_ROUNDS=1 BENCH_SECONDS=0.5 BENCH_PETS=2000 BENCH_KEYS=10 BENCH_OPERATIONS=list,get npm run bench`.
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Console, Effect } from "effect"
import * as Contender from "./Contender.ts"
import { type Case, cpuOf, measure, memoryOf, ratio, type Samples, settings, table } from "./measure.ts"
import * as Workload from "./Workload.ts"

/** Prints a table with rows for each configuration of the service, and a sentence about its ratios. */
const print = Effect.fnUntraced(function*(
  title: string,
  samples: Samples,
  ours: ReadonlyArray<{ readonly name: string; /** An identical copy of it. */ readonly control?: string }>,
  peers: ReadonlyArray<string>
) {
  const { operations } = yield* settings
  const found: Array<{ readonly side: string; readonly peer: string; readonly row: string }> = []
  const rows = ours.flatMap(({ control, name }) =>
    operations.map((operation) => {
      const row = control === undefined ? `${name} ${operation}` : operation
      const cells = peers.map((peer) => {
        const { side, text } = ratio(samples, name, peer, operation)
        found.push({ side, peer, row })
        return text
      })
      const ofControl = control === undefined ? "" : ratio(samples, name, control, operation).text
      return [row, cpuOf(samples, name, operation), memoryOf(samples, name, [operation]), ...cells, ofControl]
    })
  )
  const list = (side: "above" | "below") =>
    peers.flatMap((peer) => {
      const its = found.filter((each) => each.side === side && each.peer === peer).map(({ row }) => row)
      return its.length === 0 ? [] : [`${peer} (${its.length === rows.length ? "all" : its.join(", ")})`]
    }).join(", ") || "none"
  const memory = [...ours.map(({ name }) => name), ...peers].map((name) =>
    `${name} ${memoryOf(samples, name, operations)}`
  )
  const header = ["", "Petstore µs", "MB at rest, highest", ...peers.map((peer) => `over ${peer}`), "over itself"]
  yield* Console.log(`\n### ${title}\n\n${table([header, ...rows])}
\nThe ratio is below 1 over ${list("below")}, and above 1 over ${list("above")}. All others are equal.
Memory in MB, at rest and highest: ${memory.join("; ")}.`)
})

const comparison = Effect.gen(function*() {
  const { ids, keyCount } = yield* settings
  yield* Console.error("Fills the databases.")
  const onServer = yield* Workload.database(ids, keyCount)
  const embedded = yield* Workload.embedded(ids, keyCount)
  const make = (
    name: string,
    program: Contender.Program,
    env: Readonly<Record<string, string>> = {},
    data: Pick<typeof onServer, "keys" | "servers"> & Pick<typeof embedded, "env"> = onServer
  ): Case => ({ name, start: Contender.start(program, { ...data.env, ...env }), ...data })

  const peers = yield* Effect.filter(Contender.peers, (name) =>
    Effect.scoped(make(name, name).start).pipe(
      Effect.as(true),
      Effect.catchTag("Unavailable", ({ message }) => Effect.as(Console.error(`${name} is skipped. ${message}`), false))
    ))
  const uncached = { PET_CACHE_SECONDS: "0" }
  // The service's default.
  const cached = { PET_CACHE_SECONDS: "300" }
  const shipped = [make("Petstore", "Petstore"), make("control", "Petstore")]
  const first = yield* measure([
    ...shipped,
    make("without cache", "Petstore", uncached),
    make("control without cache", "Petstore", uncached),
    make("embedded", "Petstore", {}, embedded),
    ...peers.map((name) => make(name, name))
  ])
  const second = yield* measure([...shipped, ...peers.map((name) => make(name, name, cached))])
  const withoutCache = { name: "without cache", control: "control without cache" }
  const asShipped = { name: "Petstore", control: "control" }
  yield* print("No pet is cached", first, [withoutCache], peers)
  yield* print("All cache pets", second, [asShipped], peers)
  yield* print("As shipped: only Petstore caches pets", first, [asShipped, { name: "embedded" }], peers)
})

Effect.scoped(comparison).pipe(NodeRuntime.runMain)
