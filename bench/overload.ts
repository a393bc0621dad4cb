/**
 * Prints how the service stands clients that never read, and clients that never finish a request: its memory above rest, and
 * the latency of another client meanwhile. Each trial starts a new process on PostgreSQL.
 *
 * `npm run bench:overload`. It needs `TEST_DATABASE_URL`, a PostgreSQL server to create databases on, and Linux, where
 * every address of 127.0.0.0/8 is local.
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Console, Effect } from "effect"
import { connect } from "node:net"
import { freePort } from "../test/support/Harness.ts"
import * as Contender from "./Contender.ts"
import { median } from "./measure.ts"
import * as Workload from "./Workload.ts"

const seconds = 8

/** A client that sends its bytes and then neither reads nor closes. */
interface SilentClient {
  readonly bytes: string
  /** The last part of its address in 127.0.0.0/24. */
  readonly host: number
}

const openClients = (address: string, clients: ReadonlyArray<SilentClient>) =>
  Effect.acquireRelease(
    Effect.sync(() =>
      clients.map(({ bytes, host }) => {
        const localAddress = `127.0.0.${host}`
        const socket = connect({ port: Number(new URL(address).port), host: "127.0.0.1", localAddress })
        return socket.on("error", () => {}).pause().on("connect", () => socket.write(bytes))
      })
    ),
    (sockets) => Effect.sync(() => sockets.forEach((socket) => socket.destroy()))
  )

const head = (request: string, key?: string, headers = "") =>
  `${request} HTTP/1.1\r\nHost: localhost\r\n${
    key === undefined ? "" : `Authorization: Bearer ${key}\r\n`
  }${headers}\r\n`

/** Starts the service with 400 pets whose names have 1,000 characters, and with keys on the plan Business. */
const startService = Effect.fnUntraced(function*(keyCount: number) {
  const { key, url } = yield* Workload.database(0)
  const management = yield* freePort
  const service = yield* Contender.start("Petstore", { DATABASE_URL: url, MANAGEMENT_PORT: String(management) })
  const issue = Workload.issueKey(`http://127.0.0.1:${management}`, { name: "silent", plan: "business" })
  const headers = { "authorization": `Bearer ${key}`, "content-type": "application/json" }
  const body = JSON.stringify({ name: "x".repeat(1_000), categoryId: 1 })
  yield* Effect.promise(async () => {
    for (let i = 0; i < 400; i++) await fetch(`${service.address}/v1/pets`, { method: "POST", headers, body })
  })
  const list = Effect.promise(async () => {
    const startedAt = performance.now()
    const response = await fetch(`${service.address}/v1/pets?limit=1`, { headers, signal: AbortSignal.timeout(5_000) })
    await response.text()
    return { status: response.status, ms: performance.now() - startedAt }
  }).pipe(Effect.catchDefect(() => Effect.succeed({ status: 0, ms: 5_000 })))
  return { service, keys: yield* Effect.replicateEffect(issue, keyCount), list }
})

/** Runs a trial, and prints the growth of the process and the responses to another key. */
const trial = (
  title: string,
  goal: string,
  keyCount: number,
  clientsOf: (keys: ReadonlyArray<string>) => ReadonlyArray<SilentClient>
) =>
  Effect.scoped(Effect.gen(function*() {
    const { keys, list, service } = yield* startService(keyCount)
    yield* Effect.replicateEffect(list, 100)
    yield* Effect.sleep("1 seconds")
    const rest = Contender.usage(service).megabytes
    yield* openClients(service.address, clientsOf(keys))
    let highest = rest
    const responses: Array<Effect.Success<typeof list>> = []
    for (const startedAt = performance.now(); performance.now() - startedAt < seconds * 1000;) {
      responses.push(yield* list)
      highest = Math.max(highest, Contender.usage(service).megabytes)
      yield* Effect.sleep("20 millis")
    }
    const latencies = responses.map(({ ms }) => ms)
    const others = responses.filter(({ status }) => status !== 200).length
    yield* Console.log(
      `${title}\n  ${(highest - rest).toFixed(0)} MB above ${rest.toFixed(0)} MB at rest; another key: ` +
        `${responses.length - others} of ${responses.length} lists were served, in ${
          median(latencies).toFixed(1)
        } ms, ` +
        `at most ${Math.max(...latencies).toFixed(0)} ms (goal: ${goal})`
    )
  }))

const served = "all are served"
Effect.all([
  trial(
    "180 clients of 30 addresses request /docs ten times and never read",
    `150 MB, ${served}`,
    0,
    () => Array.from({ length: 180 }, (_, index) => ({ bytes: head("GET /docs").repeat(10), host: 2 + index % 30 }))
  ),
  trial(
    "10 keys request 600 pages of 100 KB and never read",
    `150 MB, ${served}`,
    10,
    (keys) =>
      keys.flatMap((key, index) =>
        Array.from({ length: 6 }, (_, client) => {
          const page = (start: number) =>
            head(`GET /v1/pets?limit=100&cursor=${Buffer.from(String(start)).toString("base64url")}`, key)
          const bytes = Array.from({ length: 10 }, (_, request) => page(1 + client * 10 + request)).join("")
          return { bytes, host: 2 + index }
        })
      )
  ),
  trial(
    "2,600 creates of one key send one byte of their body",
    `${served} at once`,
    1,
    ([key]) =>
      Array.from({ length: 2_600 }, (_, index) => ({
        bytes: head("POST /v1/pets", key, "Content-Type: application/json\r\nContent-Length: 40\r\n") + "{",
        host: 2 + index % 200
      }))
  )
], { discard: true }).pipe(NodeRuntime.runMain)
