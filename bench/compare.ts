/**
 * Compares the CPU of a request of this tree with another commit, and with itself as the control, beside counters that
 * noise hardly changes. All run at once, each on its own database, and start anew in each round.
 *
 * `npm run bench:compare -- REVISION [NAME=VALUE…]`. The settings are those of this tree and the control: the revision
 * `.` is this tree without them, so that the cost of a setting can be measured. All start as their `npm start` does. It
 * needs what `npm run bench` needs, without the peers, and reads the same variables.
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Console, Data, Effect } from "effect"
import { execFileSync } from "node:child_process"
import { cpSync, symlinkSync } from "node:fs"
import { join } from "node:path"
import { temporaryDirectory } from "../test/support/Temporary.ts"
import * as Contender from "./Contender.ts"
import { columns, count, preload } from "./counters.ts"
import { type Case, cpuOf, measure, memoryOf, ratio, settings, table } from "./measure.ts"
import * as Workload from "./Workload.ts"

class MissingRevision extends Data.TaggedError("MissingRevision") {
  override readonly message = "Give a revision to compare with: npm run bench:compare -- REVISION"
}

const git = (...args: ReadonlyArray<string>) => execFileSync("git", args, { cwd: Contender.repository, maxBuffer: 1e8 })

/** Returns a directory with a revision. It has the dependencies of this tree if they are the same, else its own. */
const checkOut = Effect.fnUntraced(function*(revision: string) {
  const directory = yield* temporaryDirectory
  const input = git("archive", revision, "src", "package.json", "package-lock.json")
  execFileSync("tar", ["-x", "-C", directory], { input })
  if (git("diff", "--name-only", revision, "--", "package-lock.json").length === 0) {
    symlinkSync(join(Contender.repository, "node_modules"), join(directory, "node_modules"))
  } else {
    execFileSync("npm", ["ci", "--omit=dev", "--ignore-scripts"], { cwd: directory })
  }
  cpSync(join(Contender.repository, preload), join(directory, preload))
  return directory
})

const comparison = Effect.gen(function*() {
  const [, , given, ...assignments] = process.argv
  const revision = yield* Effect.fromNullishOr(given).pipe(Effect.mapError(() => new MissingRevision()))
  const { ids, keyCount, operations } = yield* settings
  const env: Readonly<Record<string, string>> = Object.fromEntries(assignments.map((each) => each.split(/=(.*)/, 2)))
  const ours = { name: ["this tree", ...assignments].join(" "), directory: Contender.repository, env }
  const other = { name: revision, directory: revision === "." ? ours.directory : yield* checkOut(revision), env: {} }
  const trees = [ours, other, { ...ours, name: "control" }]
  // Each has a database of its own, which stays when the process starts anew.
  const cases = yield* Effect.forEach(
    trees,
    ({ directory, env, name }) =>
      Effect.map(Workload.database(ids, keyCount, directory), (data): Case => {
        return { ...data, name, start: Contender.start("Petstore", { ...data.env, ...env }, directory) }
      })
  )
  const samples = yield* measure(cases)
  // The control is the same tree, so its counters are too.
  const counted = yield* Effect.forEach([ours, other], ({ directory, env }) => count(directory, env))
  const rows = operations.flatMap((operation) =>
    trees.map(({ name }, index) => [
      operation,
      name,
      cpuOf(samples, name, operation),
      index === 0 ? "" : ratio(samples, ours.name, name, operation).text,
      memoryOf(samples, name, [operation]),
      ...counted[index]?.find((row) => row.operation === operation)?.cells ?? columns.map(() => "")
    ])
  )
  const header = ["a request", "", "CPU µs, with database", "this tree over it", "MB at rest, highest", ...columns]
  yield* Console.log(table([header, ...rows]))
})

Effect.scoped(comparison).pipe(NodeRuntime.runMain)
