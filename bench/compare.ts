/**
 * Compares the speed of this tree with another commit, and with itself as the control: a ratio within the control's
 * range shows no difference. All run at once, each on its own database, and start anew in each round.
 *
 * `npm run bench:compare -- REVISION [NAME=VALUE…]`. The settings are those of this tree and the control: the revision
 * `.` is this tree without them, so that the cost of a setting can be measured. All start as their `npm start` does. It
 * needs what `npm run bench` needs, without Redis and the peers, and reads the same variables.
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Console, Data, Effect } from "effect"
import { execFileSync } from "node:child_process"
import { symlinkSync } from "node:fs"
import { join } from "node:path"
import { temporaryDirectory } from "../test/support/Temporary.ts"
import * as Contender from "./Contender.ts"
import { type Case, compare, settings, summarize } from "./measure.ts"
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
  return directory
})

/** The service on a database of its own, which stays when the process starts anew. */
const makeCase = Effect.fnUntraced(function*(
  name: string,
  directory: string,
  env: Readonly<Record<string, string>> = {}
) {
  const { ids, keyCount } = yield* settings
  const { keys, servers, url } = yield* Workload.database(ids, keyCount, directory)
  const start = Effect.all([Contender.start("Petstore", { DATABASE_URL: url, ...env }, directory)])
  const made: Case = { name, start, keys, servers }
  return made
})

const comparison = Effect.gen(function*() {
  const [, , given, ...assignments] = process.argv
  const revision = yield* Effect.fromNullishOr(given).pipe(Effect.mapError(() => new MissingRevision()))
  const env = Object.fromEntries(assignments.map((assignment) => assignment.split(/=(.*)/, 2)))
  const { operations } = yield* settings
  yield* Console.log(`${["This tree", ...assignments].join(" ")} beside ${revision}`)
  const ours = yield* makeCase("this tree", Contender.repository, env)
  const control = yield* makeCase("control", Contender.repository, env)
  const directory = revision === "." ? Contender.repository : yield* checkOut(revision)
  const results = yield* compare([ours, control, yield* makeCase(revision, directory)], operations)
  yield* summarize("CPU, this tree over it", results, 1, ({ ratio }) => ratio("cpu"))
  yield* summarize("CPU with database, this tree over it", results, 1, ({ ratio }) => ratio("cpuWithServers"))
})

Effect.scoped(comparison).pipe(NodeRuntime.runMain)
