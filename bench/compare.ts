/**
 * Compares the speed of this tree with another commit. Both run at once, each on its own database.
 *
 * `npm run bench:compare -- REVISION [NAME=VALUE…]`. The settings are those of this tree: the revision `.` is this tree
 * without them, so that the cost of a setting can be measured. It needs wrk and `TEST_DATABASE_URL`, a PostgreSQL server
 * to create databases on.
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Data, Effect } from "effect"
import { execFileSync } from "node:child_process"
import { symlinkSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { temporaryDirectory } from "../test/support/Harness.ts"
import * as Contender from "./Contender.ts"
import { type Case, compare } from "./measure.ts"
import * as Workload from "./Workload.ts"

const pets = 200_000
const repository = fileURLToPath(new URL("..", import.meta.url))

class MissingRevision extends Data.TaggedError("MissingRevision") {
  override readonly message = "Give a revision to compare with: npm run bench:compare -- REVISION"
}

/** Returns the path of the main file of a revision, with the dependencies of this tree. */
const mainAt = Effect.fnUntraced(function*(revision: string) {
  const directory = yield* temporaryDirectory
  const archive = execFileSync("git", ["archive", revision, "src", "package.json"], { cwd: repository, maxBuffer: 1e8 })
  execFileSync("tar", ["-x", "-C", directory], { input: archive })
  symlinkSync(join(repository, "node_modules"), join(directory, "node_modules"))
  return join(directory, "src/main.ts")
})

/** Starts the service with a database of its own. */
const startCase = Effect.fnUntraced(function*(name: string, main: string, env: Readonly<Record<string, string>> = {}) {
  const { keys, url } = yield* Workload.database(pets, 1, main)
  const contender = yield* Contender.start("Petstore", { DATABASE_URL: url, ...env }, main)
  const started: Case = { name, contender, keys }
  return started
})

const comparison = Effect.gen(function*() {
  const [, , given, ...assignments] = process.argv
  const revision = yield* Effect.fromNullishOr(given).pipe(Effect.mapError(() => new MissingRevision()))
  const main = join(repository, "src/main.ts")
  const env = Object.fromEntries(assignments.map((assignment) => assignment.split(/=(.*)/, 2)))
  yield* compare(`This tree beside ${revision}`, pets, [
    yield* startCase(revision, revision === "." ? main : yield* mainAt(revision)),
    yield* startCase(`this tree ${assignments.join(" ")}`, main, env)
  ])
})

Effect.scoped(comparison).pipe(NodeRuntime.runMain)
