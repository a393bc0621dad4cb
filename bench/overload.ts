/**
 * Prints how the service stands clients that send more than they may, never read, or never finish a request: its memory
 * above rest, `/healthz` and another key meanwhile, the memory after they are gone, and the time of a shutdown. Each
 * trial starts a new process on PostgreSQL.
 *
 * `npm run bench:overload`, or `npm run bench:overload -- PART` for the trials whose title has this part. It needs
 * `TEST_DATABASE_URL`, a PostgreSQL server to create databases on, and Linux, where every address of 127.0.0.0/8 is local.
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Console, Duration, Effect } from "effect"
import { connect } from "node:net"
import { freePort } from "../test/support/Temporary.ts"
import * as Contender from "./Contender.ts"
import * as Workload from "./Workload.ts"

const seconds = 8

/** The heap that Node gives to a process in a container of 768 MiB. */
const heapMegabytes = 384

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

/** Starts the service with 400 pets whose names have 4,000 bytes, and with keys on the plan Business. */
const startService = Effect.fnUntraced(function*(keyCount: number) {
  const { key, url } = yield* Workload.database(0)
  const management = yield* freePort
  const service = yield* Contender.start("Petstore", {
    DATABASE_URL: url,
    MANAGEMENT_PORT: String(management),
    NODE_OPTIONS: `--max-old-space-size=${heapMegabytes}`
  })
  const issue = Workload.issueKey(`http://127.0.0.1:${management}`, { name: "silent", plan: "business" })
  const headers = { "authorization": `Bearer ${key}`, "content-type": "application/json" }
  const body = JSON.stringify({ name: "🐈".repeat(1_000), categoryId: 1 })
  yield* Effect.promise(async () => {
    for (let i = 0; i < 400; i++) await fetch(`${service.address}/v1/pets`, { method: "POST", headers, body })
  })
  const get = (url: string) =>
    Effect.promise(async () => {
      const startedAt = performance.now()
      const response = await fetch(url, { headers, signal: AbortSignal.timeout(10_000) })
      await response.text()
      return { isServed: response.status === 200, ms: performance.now() - startedAt }
    }).pipe(Effect.catchDefect(() => Effect.succeed({ isServed: false, ms: 10_000 })))
  return {
    service,
    management: `http://127.0.0.1:${management}`,
    keys: yield* Effect.replicateEffect(issue, keyCount),
    health: get(`http://127.0.0.1:${management}/healthz`),
    list: get(`${service.address}/v1/pets?limit=1`)
  }
})

interface Trial {
  readonly title: string
  readonly goal: string
  readonly keys?: number
  readonly isManagement?: true
  readonly clientsOf: (keys: ReadonlyArray<string>) => ReadonlyArray<SilentClient>
}

const describe = (name: string, responses: ReadonlyArray<{ readonly isServed: boolean; readonly ms: number }>) =>
  `${name} ${responses.filter(({ isServed }) => isServed).length} of ${responses.length}, at most ${
    Math.max(...responses.map(({ ms }) => ms)).toFixed(0)
  } ms`

/** Runs a trial, and prints the growth of the process and the responses to another key. */
const run = Effect.fnUntraced(function*({ clientsOf, goal, isManagement, keys: keyCount = 0, title }: Trial) {
  const { health, keys, list, management, service } = yield* startService(keyCount)
  yield* Effect.replicateEffect(Effect.all([list, health]), 100)
  yield* Effect.sleep("1 seconds")
  const attacked = isManagement === undefined ? service.address : management
  const megabytes = Effect.try(() => Contender.usage(service).megabytes).pipe(Effect.orElseSucceed(() => NaN))
  const rest = yield* megabytes
  let highest = rest
  const lists: Array<Effect.Success<typeof list>> = []
  const healths: Array<Effect.Success<typeof list>> = []
  const trial = Effect.gen(function*() {
    yield* openClients(attacked, clientsOf(keys))
    for (const startedAt = performance.now(); performance.now() - startedAt < seconds * 1000;) {
      const [listed, healthy] = yield* Effect.all([list, health], { concurrency: 2 })
      lists.push(listed)
      healths.push(healthy)
      highest = Math.max(highest, yield* megabytes)
      yield* Effect.sleep("20 millis")
    }
  })
  yield* Effect.scoped(trial)
  yield* Effect.sleep("5 seconds")
  const after = yield* megabytes
  // The shutdown begins while the clients of a second trial are connected.
  yield* openClients(attacked, clientsOf(keys))
  yield* Effect.sleep("1 seconds")
  const [stopped] = yield* Effect.timed(service.stop)
  yield* Console.log(
    `${title}\n  ${(highest - rest).toFixed(0)} MB above ${rest.toFixed(0)} MB at rest, then ${
      (after - rest).toFixed(0)
    } MB; ${describe("lists of another key:", lists)}; ${describe("/healthz:", healths)}; SIGTERM ${
      Duration.toSeconds(stopped).toFixed(1)
    } s (goal: ${goal})`
  )
}, Effect.scoped)

const burst = "GET / HTTP/1.1\r\nHost:\r\n\r\n".repeat(2_521)
const goal = "200 MB, then 30; another key and /healthz within 1 s; SIGTERM within 3 s"
const repeat = (count: number, clientOf: (index: number) => SilentClient) =>
  Array.from({ length: count }, (_, index) => clientOf(index))

const fields = Array.from({ length: 990 }, (_, index) => `${(index + 36).toString(36)}: 1\r\n`).join("")
const manyFields = head("GET /", undefined, fields)

const longFields = Array.from({ length: 90 }, (_, index) => `x${index}: ${"y".repeat(155)}\r\n`).join("")

/** The cursor of the page after a pet. */
const cursor = (id: number): string => Buffer.from(String(id)).toString("base64url")

const shortNames = `{"name":"Rex","categoryId":1,${
  Array.from({ length: 8_000 }, (_, index) => `"${index.toString(36)}":1`).join()
}`.slice(0, 65_000)

const trials: ReadonlyArray<Trial> = [
  ...[undefined, true].map((isManagement): Trial => ({
    title: `9,900 connections of ten addresses send nine requests of 990 fields${
      isManagement ? " to the management port" : ""
    }`,
    goal,
    ...isManagement && { isManagement },
    clientsOf: () => repeat(9_900, (index) => ({ bytes: manyFields.repeat(9), host: 2 + index % 10 }))
  })),
  {
    title: "500 connections of one address send nine requests of 990 fields",
    goal,
    clientsOf: () => repeat(500, () => ({ bytes: manyFields.repeat(9), host: 2 }))
  },
  {
    title: "9,900 connections of ten addresses send an unfinished head of 990 fields",
    goal,
    clientsOf: () => repeat(9_900, (index) => ({ bytes: manyFields.slice(0, -2), host: 2 + index % 10 }))
  },
  {
    title: "1,000 connections of one key request a page of 403 KB and never read",
    goal,
    keys: 1,
    clientsOf: ([key]) =>
      repeat(1_000, (index) => ({
        bytes: head(`GET /v1/pets?limit=100&cursor=${cursor(1 + index % 300)}`, key),
        host: 2 + index % 2
      }))
  },
  ...[16_384, 65_536].map((bytes): Trial => ({
    title: `1,000 creates of one key have a body of ${bytes} bytes with short names`,
    goal,
    keys: 1,
    clientsOf: ([key]) =>
      repeat(1_000, (index) => {
        const body = shortNames.slice(0, shortNames.lastIndexOf(",", bytes - 2)) + "}"
        const fields = `Content-Type: application/json\r\nContent-Length: ${body.length}\r\n`
        return { bytes: head("POST /v1/pets", key, fields) + body, host: 2 + index % 2 }
      })
  })),
  {
    title: "20 connections send GET /a;b, 2,000 requests, and CONNECT",
    goal,
    clientsOf: () =>
      repeat(
        20,
        () => ({
          bytes: head("GET /a;b") + head("HEAD /") + head("GET /").repeat(2_000) + head("CONNECT a:1"),
          host: 2
        })
      )
  },
  {
    title: "60 connections send 2,521 requests at once",
    goal,
    clientsOf: () => repeat(60, () => ({ bytes: burst, host: 2 }))
  },
  {
    title: "60 creates of one key send 65,000 chunks of one byte",
    goal,
    keys: 1,
    clientsOf: ([key]) =>
      repeat(60, () => ({
        bytes: head("POST /v1/pets", key, "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n") +
          "1\r\n \r\n".repeat(65_000),
        host: 2
      }))
  },
  {
    title: "300 connections send 2,521 requests at once",
    goal,
    clientsOf: () => repeat(300, () => ({ bytes: burst, host: 2 }))
  },
  {
    title: "1,200 connections of twelve addresses send 2,521 requests at once",
    goal,
    clientsOf: () => repeat(1_200, (index) => ({ bytes: burst, host: 2 + index % 12 }))
  },
  {
    title: "500 requests get an error before their body, which is not HTTP",
    goal,
    clientsOf: () =>
      repeat(
        500,
        (index) => ({
          bytes: head("POST /nowhere", undefined, "Transfer-Encoding: chunked\r\n") + "zz\r\n",
          host: 2 + index % 12
        })
      )
  },
  {
    title: "3,500 connections of one address request a page of 403 KB and never read",
    goal: "the maximum number of connections of an address times the page",
    keys: 4,
    clientsOf: (keys) =>
      repeat(3_500, (index) => ({ bytes: head("GET /v1/pets?limit=100", keys[index % keys.length]), host: 2 }))
  },
  {
    title: "180 clients of 30 addresses request /docs ten times and never read",
    goal: "150 MB, all are served",
    clientsOf: () => repeat(180, (index) => ({ bytes: head("GET /docs").repeat(10), host: 2 + index % 30 }))
  },
  {
    title: "10 keys request 600 pages of 403 KB and never read",
    goal: "150 MB, all are served",
    keys: 10,
    clientsOf: (keys) =>
      keys.flatMap((key, index) =>
        repeat(6, (client) => {
          const page = (start: number) => head(`GET /v1/pets?limit=100&cursor=${cursor(start)}`, key)
          const bytes = Array.from({ length: 10 }, (_, request) => page(1 + client * 10 + request)).join("")
          return { bytes, host: 2 + index }
        })
      )
  },
  {
    title: "2,000 creates of one key send heads of 15 KB and all but one byte of 16 KB",
    goal,
    keys: 1,
    clientsOf: ([key]) =>
      repeat(1_990, (index) => ({
        bytes: head("POST /v1/pets", key, `Content-Type: application/json\r\nContent-Length: 16384\r\n${longFields}`) +
          "{".padEnd(16_383),
        host: 2 + index % 200
      }))
  }
]

const [part = ""] = process.argv.slice(2)
Effect.forEach(trials.filter(({ title }) => title.includes(part)), run, { discard: true }).pipe(NodeRuntime.runMain)
