/**
 * Compares the speed of this tree with another commit. Both run at once, each on its own PostgreSQL database, and are
 * loaded in turn, so that the machine's noise affects both alike. The results are the medians of the ratios.
 *
 * `npm run bench:compare -- REVISION [NAME=VALUE…]`. The settings are those of this tree: the revision `.` is this tree
 * without them, so that the cost of a setting can be measured. It needs wrk and `TEST_DATABASE_URL`, a PostgreSQL server to create databases on.
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { PgClient } from "@effect/sql-pg"
import { Config, Console, Data, Effect, Redacted, Schema } from "effect"
import { execFileSync } from "node:child_process"
import { symlinkSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { freePort, temporaryDatabaseUrl, temporaryDirectory, unlimitedKeyOptions } from "../test/support/Harness.ts"
import * as Contender from "./Contender.ts"
import { median } from "./median.ts"
import * as Workload from "./Workload.ts"
import * as Wrk from "./wrk.ts"

const pets = 200_000
const connections = 32
const warmUpSeconds = 4
const adminToken = "adm_0123456789abcdef"

class MissingRevision extends Data.TaggedError("MissingRevision") {
  override readonly message = "Name a revision to compare with: npm run bench:compare -- HEAD~1"
}

/** The operations (all by default), and the rounds and seconds for each commit and operation. */
const settings = Config.all({
  operations: Config.Array(Schema.Literals(Workload.operations), "BENCH_OPERATIONS").pipe(Config.withDefault([])),
  rounds: Config.Int("BENCH_ROUNDS").pipe(Config.withDefault(7)),
  seconds: Config.Int("BENCH_SECONDS").pipe(Config.withDefault(2))
})

const repository = fileURLToPath(new URL("..", import.meta.url))

/** Extracts the sources at `revision`, with the modules that are installed here. */
const sourcesAt = Effect.fnUntraced(function*(revision: string) {
  const directory = yield* temporaryDirectory
  const archive = execFileSync("git", ["archive", revision, "src", "package.json"], {
    cwd: repository,
    maxBuffer: 64 * 1024 * 1024
  })
  execFileSync("tar", ["-x", "-C", directory], { input: archive })
  symlinkSync(join(repository, "node_modules"), join(directory, "node_modules"))
  return directory
})

const decodeIssued = Schema.decodeUnknownEffect(Schema.Struct({ key: Schema.String }))

/** Starts the service of `sources` on a new database with `pets` pets, and issues a key without limits. */
const startService = Effect.fnUntraced(function*(sources: string, env: Readonly<Record<string, string>> = {}) {
  const url = yield* temporaryDatabaseUrl
  const managementPort = yield* freePort
  const service = yield* Contender.start("Petstore", {
    program: join(sources, "src/main.ts"),
    env: { DATABASE_URL: url, ADMIN_TOKEN: adminToken, MANAGEMENT_PORT: String(managementPort), ...env }
  })
  const fill = Effect.gen(function*() {
    const sql = yield* PgClient.PgClient
    yield* sql`INSERT INTO pets (name, category_id, status)
      SELECT 'pet ' || n, n % 100, CASE n % 4 WHEN 0 THEN 'sold' WHEN 1 THEN 'pending' WHEN 2 THEN 'available' END
      FROM generate_series(1, ${pets}) AS n`
    yield* sql`VACUUM ANALYZE pets`
  })
  yield* Effect.provide(fill, PgClient.layer({ url: Redacted.make(url), maxConnections: 1 }))
  const issued = yield* Effect.promise(() =>
    fetch(`http://127.0.0.1:${managementPort}/admin/keys`, {
      method: "POST",
      headers: { authorization: `Bearer ${adminToken}`, "content-type": "application/json" },
      body: JSON.stringify(unlimitedKeyOptions)
    }).then((response) => response.json())
  )
  return { ...service, key: (yield* decodeIssued(issued)).key }
})

interface Sample extends Wrk.Measured {
  /** Microseconds of CPU per request. */
  readonly cpu: number
}

/** Sends the requests of a file to a service. */
const load = Effect.fnUntraced(function*(
  service: Contender.Contender,
  options: { readonly directory: string; readonly requests: string; readonly seconds: number }
) {
  const { cpu } = Contender.usage(service)
  const measured = yield* Wrk.load({
    address: service.address,
    requests: options.requests,
    keys: Workload.write(options.directory, "key", [service.key]),
    connections,
    seconds: options.seconds
  })
  const sample: Sample = { ...measured, cpu: (Contender.usage(service).cpu - cpu) / measured.requests * 1e6 }
  return sample
})

/** Returns one line: the ratio of the requests per second, then both sides of each figure. */
const describe = (operation: string, samples: ReadonlyArray<readonly [before: Sample, after: Sample]>): string => {
  const ratios = samples.map(([before, after]) => after.requestsPerSecond / before.requestsPerSecond)
  const medians = (field: keyof Sample, digits: number): string =>
    [0, 1].map((side) => median(samples.map((sample) => sample[side === 0 ? 0 : 1][field])).toFixed(digits)).join(
      " to "
    )
  const failed = samples.flat().reduce((sum, sample) => sum + sample.failed, 0)
  return [
    operation.padEnd(14),
    `${median(ratios).toFixed(2)} ×`,
    `${medians("requestsPerSecond", 0)} requests/s`,
    `p99 ${medians("p99", 1)} ms`,
    `CPU ${medians("cpu", 1)} µs`,
    `(${ratios.map((ratio) => ratio.toFixed(2)).join(" ")})`,
    ...failed === 0 ? [] : [`${failed} FAILED`]
  ].join("   ")
}

const comparison = Effect.gen(function*() {
  const { operations, rounds, seconds } = yield* settings
  const [, , given, ...assignments] = process.argv
  const revision = yield* Effect.fromNullishOr(given).pipe(Effect.mapError(() => new MissingRevision()))
  const before = yield* startService(revision === "." ? repository : yield* sourcesAt(revision))
  const env = Object.fromEntries(assignments.map((assignment) => assignment.split(/=(.*)/, 2)))
  const after = yield* startService(repository, env)
  yield* Console.log(
    `This tree ${
      assignments.map((assignment) => `${assignment} `).join("")
    }beside ${revision}: PostgreSQL, ${pets} pets, ${connections} connections, ` +
      `${rounds} rounds of ${seconds} s in turn after ${warmUpSeconds} s; median ratio, medians, the ratio of each round`
  )
  const directory = yield* temporaryDirectory
  const files = Workload.requests(directory, pets)
  for (const operation of operations.length === 0 ? Workload.operations : operations) {
    const both = (duration: number) =>
      Effect.all([
        load(before, { directory, requests: files[operation], seconds: duration }),
        load(after, { directory, requests: files[operation], seconds: duration })
      ])
    yield* both(warmUpSeconds)
    yield* Console.log(describe(operation, yield* Effect.replicateEffect(both(seconds), rounds)))
  }
})

Effect.scoped(comparison).pipe(NodeRuntime.runMain)
