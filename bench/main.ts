/**
 * Compares the speed of the service with the same service on other frameworks, and with the floors. All of them run at
 * once, and each is loaded in turn for several rounds. The results are ratios of medians. Each has its default settings
 * and its usual logger, whose lines this process reads and drops.
 *
 * It needs wrk, redis-server, and `TEST_DATABASE_URL`, a PostgreSQL server to create databases on.
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Config, Console, Effect, Schema } from "effect"
import { execFileSync } from "node:child_process"
import { copyFileSync } from "node:fs"
import { createServer, type Server } from "node:http"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { temporaryDirectory } from "../test/support/Harness.ts"
import * as Redis from "../test/support/Redis.ts"
import * as Contender from "./Contender.ts"
import { median } from "./median.ts"
import * as Workload from "./Workload.ts"
import * as Wrk from "./wrk.ts"

const pets = 200_000
const connections = 32
/** Seconds of warm-up, until the code is compiled and the caches are filled. */
const warmUp = 6

const tableNames = ["default", "redis", "tracing"] as const

/** The tables to print (all by default), and the rounds and seconds for each process and operation. */
const settings = Config.all({
  tables: Config.Array(Schema.Literals(tableNames), "BENCH_TABLES").pipe(Config.withDefault(tableNames)),
  rounds: Config.Int("BENCH_ROUNDS").pipe(Config.withDefault(3)),
  seconds: Config.Int("BENCH_SECONDS").pipe(Config.withDefault(3))
})

interface Sample extends Wrk.Measured {
  /** Microseconds of CPU per request. */
  readonly cpu: number
}

const row = (cells: ReadonlyArray<string>): string =>
  cells.map((cell, index) => index === 0 ? cell.padEnd(23) : cell.padStart(12)).join("")

/** A table of the comparison: the configuration of all contenders, and the operations that it has. */
interface Table {
  readonly title: string
  readonly env: Readonly<Record<string, string>>
  readonly deployment?: Contender.Deployment
  readonly operations: ReadonlyArray<Workload.Operation>
}

/**
 * Measures one table. The table of the default configuration also has the embedded database and the floors. The others
 * also have the service in the default configuration.
 */
const printTable = Effect.fnUntraced(function*({ deployment, env, operations, title }: Table) {
  const { rounds, seconds } = yield* settings
  const { key, url } = yield* Workload.database(pets)
  const shared = { DATABASE_URL: url, ...env }
  const service = yield* Contender.start("Petstore", { env: shared, key, ...deployment })
  const peers = yield* Effect.forEach(
    Contender.peers,
    (name) => Contender.start(name, { env: shared, key, ...deployment })
  )
  const alone: Array<Contender.Contender> = []
  const floors: Array<Contender.Contender> = []
  if (Object.keys(env).length > 0) {
    alone.push(yield* Contender.start("Petstore, default", { env: { DATABASE_URL: url }, key }))
  } else {
    const embedded = yield* Workload.embedded(pets)
    alone.push(
      yield* Contender.start("Petstore, embedded", { env: { DATA_DIR: embedded.directory }, key: embedded.key })
    )
    const repeating = { SERVICE: service.address, KEY: key }
    floors.push(
      yield* Contender.start("floor (node:http)", { env: repeating, key }),
      yield* Contender.start("floor, committing", { env: { ...shared, ...repeating }, key })
    )
  }
  yield* Console.log(
    `\n${title}: PostgreSQL, ${pets} pets, ${connections} connections, ` +
      `${rounds} rounds of ${seconds} s in turn after ${warmUp} s; medians`
  )
  for (const own of [service, ...alone]) {
    yield* Console.log(
      `${own.name}: started to the first 200 in ${own.startedIn.toFixed(0)} ms, ` +
        `${Contender.usage(own).megabytes.toFixed(0)} MB at rest`
    )
  }
  const directory = yield* temporaryDirectory
  const requests = Workload.requests(directory, pets)
  for (const operation of operations) {
    const isCreate = operation === "create" || operation === "idempotent"
    // The committing floor only differs from the other one in creates.
    const contenders = [service, ...peers, ...alone, ...isCreate ? floors : floors.slice(0, 1)]
    const samples = new Map(contenders.map(({ name }) => [name, Array<Sample>()]))
    const one = Effect.fnUntraced(function*(contender: Contender.Contender, duration: number) {
      const { cpu } = Contender.usage(contender)
      const measured = yield* Wrk.load({
        address: contender.address,
        requests: requests[operation],
        keys: Workload.write(directory, contender.name, [contender.key]),
        connections,
        seconds: duration
      })
      return { ...measured, cpu: (Contender.usage(contender).cpu - cpu) / measured.requests * 1e6 }
    })
    for (const contender of contenders) yield* one(contender, warmUp)
    for (let round = 0; round < rounds; round++) {
      for (const contender of contenders) samples.get(contender.name)?.push(yield* one(contender, seconds))
    }
    const of = (name: Contender.Name, field: keyof Sample) =>
      median((samples.get(name) ?? []).map((sample) => sample[field]))
    const own = of("Petstore", "requestsPerSecond")
    yield* Console.log(
      `\n${row([operation, "requests/s", "Petstore is", "p50 ms", "p99 ms", "p99.9 ms", "CPU µs", "MB"])}`
    )
    for (const contender of contenders) {
      const rate = of(contender.name, "requestsPerSecond")
      const failed = samples.get(contender.name)?.reduce((sum, sample) => sum + sample.failed, 0) ?? 0
      yield* Console.log(
        row([
          contender.name,
          rate.toFixed(0),
          `${(own / rate).toFixed(2)} ×`,
          of(contender.name, "p50").toFixed(2),
          of(contender.name, "p99").toFixed(2),
          of(contender.name, "p999").toFixed(2),
          of(contender.name, "cpu").toFixed(1),
          Contender.usage(contender).megabytes.toFixed(0)
        ]) + (failed === 0 ? "" : `   ${failed} FAILED`)
      )
    }
  }
})

const ratio = { OTEL_TRACES_SAMPLER: "parentbased_traceidratio", OTEL_TRACES_SAMPLER_ARG: "0.01" }

/** A collector of traces that accepts and drops everything. */
const collector = Effect.acquireRelease(
  Effect.promise(() =>
    new Promise<Server>((resolve) => {
      const server = createServer((request, response) => {
        request.resume().on("end", () => response.setHeader("content-type", "application/json").end("{}"))
      })
      server.listen(0, "127.0.0.1", () => resolve(server))
    })
  ),
  (server) => Effect.sync(() => server.close())
)

const repository = fileURLToPath(new URL("..", import.meta.url))

/** Prints the size of the files that the image adds to its base, and of the base's Node. */
const printSizes = Effect.gen(function*() {
  const directory = yield* temporaryDirectory
  for (const file of ["package.json", "package-lock.json"]) copyFileSync(join(repository, file), join(directory, file))
  execFileSync("npm", ["ci", "--omit=dev", "--silent"], { cwd: directory })
  execFileSync(join(repository, "node_modules/.bin/tsc"), [
    "-p",
    "tsconfig.build.json",
    "--outDir",
    join(directory, "dist")
  ], {
    cwd: repository
  })
  const megabytes = (path: string) =>
    (Number(execFileSync("du", ["-sb", path]).toString().split("\t")[0]) / 1e6).toFixed(1)
  yield* Console.log(
    `Image: ${megabytes(join(directory, "dist"))} MB of the service and ${
      megabytes(join(directory, "node_modules"))
    } MB ` +
      `of its dependencies, beside ${megabytes(process.execPath)} MB of Node`
  )
})

const comparison = Effect.gen(function*() {
  const { tables } = yield* settings
  yield* Effect.scoped(printSizes)
  const operations = ["list of 20", "get", "create"] as const
  const redis = yield* Redis.run
  yield* redis.start
  const onRedis = { REDIS_URL: redis.url }
  if (tables.includes("default")) {
    yield* Effect.scoped(printTable({ title: "Default settings", env: {}, operations: Workload.operations }))
  }
  if (tables.includes("redis")) {
    yield* Effect.scoped(printTable({ title: "Limits in Redis", env: onRedis, operations }))
  }
  if (tables.includes("tracing")) {
    const address = (yield* collector).address()
    const port = typeof address === "object" && address !== null ? address.port : 0
    for (const [title, sampler] of [["Traces", {}], ["Traces of 1 %", ratio]] as const) {
      // The loggers of the others do not export to OTLP either.
      const env = {
        OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${port}`,
        OTEL_LOGS_EXPORTER: "none",
        ...sampler
      }
      yield* Effect.scoped(printTable({ title, env, deployment: { isTraced: true }, operations }))
    }
  }
})

Effect.scoped(comparison).pipe(NodeRuntime.runMain)
