/**
 * Counts the work of a request where noise of the machine changes nothing: Effect operations, bytes allocated, and calls
 * of read and write. Compare trees only: without the optimising compilers, the bytes are 40 % higher than usual.
 *
 * `npm run bench:counters -- [DIRECTORY…]` counts the services of other directories too. It needs `TEST_DATABASE_URL` and
 * strace.
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Console, Data, Effect, Schema } from "effect"
import { spawn } from "node:child_process"
import { randomUUID } from "node:crypto"
import { Agent, request as sendRequest } from "node:http"
import { fileURLToPath } from "node:url"
import * as Contender from "./Contender.ts"
import { table } from "./measure.ts"
import * as Workload from "./Workload.ts"

const requestsPerOperation = 500

/** All code is interpreted, so that a run counts what another does, and nothing is collected during an operation. */
const nodeFlags = [
  "--no-opt",
  "--no-maglev",
  "--single-threaded",
  "--expose-gc",
  "--min-semi-space-size=1024",
  "--max-semi-space-size=1024",
  `--import=${fileURLToPath(new URL("countersPreload.ts", import.meta.url))}`
]

const newPet = { method: "POST", path: "/v1/pets", body: Workload.newPet }

const operations = {
  "get": () => ({ method: "GET", path: "/v1/pets/1" }),
  "list": () => ({ method: "GET", path: "/v1/pets" }),
  "create": () => newPet,
  "idempotent create": () => ({ ...newPet, headers: { "idempotency-key": randomUUID() } })
}

interface Sent {
  readonly method: string
  readonly path: string
  readonly body?: string
  readonly headers?: Readonly<Record<string, string>>
}

export class RequestFailed extends Data.TaggedError("RequestFailed")<{ readonly message: string }> {}
export class StraceFailed extends Data.TaggedError("StraceFailed")<{ readonly message: string }> {}

/** Sends requests one after the other over one connection. */
const send = (agent: Agent, port: string, key: string, { body, headers, method, path }: Sent) =>
  Effect.callback<void, RequestFailed>((resume) => {
    const type = body === undefined ? {} : { "content-type": "application/json", "content-length": body.length }
    const options = { agent, port, method, path, headers: { authorization: `Bearer ${key}`, ...type, ...headers } }
    const fail = (reason: unknown) => resume(new RequestFailed({ message: `${method} ${path}: ${String(reason)}` }))
    sendRequest(options, (response) => {
      response.resume().on("end", () => {
        if (response.statusCode === 200 || response.statusCode === 201) resume(Effect.void)
        else fail(response.statusCode)
      })
    }).on("error", fail).end(body)
  })

const decodeCounters = Schema.decodeUnknownEffect(
  Schema.fromJsonString(Schema.Struct({ operations: Schema.Int, bytes: Schema.Finite }))
)

/** Asks the process for its counters. Their line is the last one of its kind in the output, and a new one. */
const readCounters = Effect.fnUntraced(function*({ latestOutput, pid }: Contender.Contender) {
  const lines = () => latestOutput().match(/^counters .*(?=\n)/gm) ?? []
  const last = lines().at(-1)
  process.kill(pid, "SIGUSR2")
  let line: string | undefined
  while ((line = lines().at(-1)) === last) yield* Effect.sleep("5 millis")
  return yield* decodeCounters(line?.slice("counters ".length))
})

/** Counts the system calls of a process while `effect` runs. Other calls, such as `epoll_pwait`, depend on timing. */
const countCalls = <A, E, R>(pid: number, effect: Effect.Effect<A, E, R>) =>
  Effect.gen(function*() {
    const strace = spawn("strace", ["-f", "-c", "-p", String(pid)], { stdio: ["ignore", "ignore", "pipe"] })
    let output = ""
    const ended = new Promise<void>((resolve) => strace.on("close", () => resolve()))
    strace.on("error", (error) => (output += String(error)))
    strace.stderr.setEncoding("utf8").on("data", (text: string) => (output += text))
    while (!output.includes("attached")) {
      if (strace.exitCode !== null || output.includes("Error")) return yield* new StraceFailed({ message: output })
      yield* Effect.sleep("10 millis")
    }
    yield* effect
    strace.kill("SIGINT")
    yield* Effect.promise(() => ended)
    const calls = (names: RegExp) =>
      output.split("\n").map((line) => line.trim().split(/\s+/)).filter((fields) => names.test(fields.at(-1) ?? ""))
        .reduce((sum, [, , , count]) => sum + Number(count), 0)
    return { reads: calls(/^(?:read|readv|recv\w*)$/), writes: calls(/^(?:write|writev|send\w*)$/) }
  })

/** Counts the operations of the service in `directory`, on a database of its own. */
export const count = Effect.fnUntraced(function*(directory: string) {
  const { key, url } = yield* Workload.database(20_000, 1, directory)
  const env = { DATABASE_URL: url, PET_CACHE_SECONDS: "300" }
  const service = yield* Contender.start("Petstore", env, directory, nodeFlags)
  const agent = yield* Effect.acquireRelease(
    Effect.sync(() => new Agent({ keepAlive: true, maxSockets: 1 })),
    (made) => Effect.sync(() => made.destroy())
  )
  const { port } = new URL(service.address)
  const counted = []
  for (const [operation, make] of Object.entries(operations)) {
    const run = (requests: number) =>
      Effect.repeat(Effect.suspend(() => send(agent, port, key, make())), { times: requests - 1 })
    // The first requests fill the caches. The gap of the first page is cached after two checks, a second apart.
    yield* run(200)
    yield* Effect.sleep("1100 millis")
    yield* run(200)
    yield* Effect.sleep("1100 millis")
    yield* run(200)
    yield* readCounters(service)
    yield* run(requestsPerOperation)
    const counters = yield* readCounters(service)
    const { reads, writes } = yield* countCalls(service.pid, run(requestsPerOperation))
    counted.push({
      operation,
      operations: counters.operations,
      bytes: counters.bytes,
      reads: reads / requestsPerOperation,
      writes: writes / requestsPerOperation
    })
  }
  return counted
}, Effect.scoped)

const print = Effect.fnUntraced(function*(directory: string) {
  const rows = (yield* count(directory)).map(({ bytes, operation, operations, reads, writes }) => [
    operation,
    String(operations),
    Math.round(bytes).toLocaleString("en"),
    reads.toFixed(2),
    writes.toFixed(2)
  ])
  yield* Console.log(
    `\n${directory}\n${table([["a request", "Effect operations", "bytes", "reads", "writes"], ...rows])}`
  )
})

if (import.meta.main) {
  const directories = [Contender.repository, ...process.argv.slice(2)]
  Effect.forEach(directories, print, { discard: true }).pipe(NodeRuntime.runMain)
}
