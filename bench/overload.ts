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
import { hash } from "node:crypto"
import { connect } from "node:net"
import { randomLength, withChecksum } from "../src/api/Secrets.ts"
import { send } from "../test/support/Process.ts"
import { freePort } from "../test/support/Temporary.ts"
import * as Contender from "./Contender.ts"
import { load } from "./load.ts"
import * as Workload from "./Workload.ts"

const seconds = 8

/** The heap that Node gives to a process in a container of 768 MiB, and of 958 MiB, which has room for full caches. */
const [heapMegabytes, fullHeapMegabytes] = [384, 479]

/** Clients that connect from addresses in 127.0.0.0/24, send bytes, and then neither read nor close. */
type Trial = readonly [
  connections: number,
  addresses: number,
  what: string,
  bytesOf: (key: string, index: number) => string,
  options?: {
    readonly keys?: number
    readonly goal?: string
    readonly isManagement?: boolean
    /** Whether the caches are filled before, so that they belong to the memory at rest. */
    readonly isFull?: boolean
  }
]

/** Fills the caches of keys, of their counts, of pets and of addresses (docs/configuration.md). */
const fillCaches = Effect.fnUntraced(function*(url: string, service: Contender.Contender) {
  const [count, pets] = [100_000, 524_288]
  const secrets = Array.from({ length: count }, (_, index) => withChecksum(String(index).padStart(randomLength, "0")))
  const hashes = JSON.stringify(secrets.map((secret) => hash("sha256", secret)))
  yield* Workload.queryAt(url)((sql) =>
    Effect.all([
      sql`INSERT INTO api_keys (id, name, plan, per_minute, per_day, created_at)
        SELECT 'key_' || n, 'full', 'pro', 300, 10000, now() FROM generate_series(1, ${count}) AS n`,
      sql`INSERT INTO api_key_secrets (hash, key_id)
        SELECT decode(hash, 'hex'), 'key_' || n FROM json_array_elements_text(${hashes}::json) WITH ORDINALITY AS t (hash, n)`,
      sql`INSERT INTO pets (name, category_id) SELECT 'pet ' || n, 1 FROM generate_series(1, ${pets}) AS n`,
      sql`ANALYZE`
    ])
  )
  const ports = [Number(new URL(service.address).port)]
  let next = 0
  const pageOfKey = () => page(secrets[next++ % count] ?? "", next * 100 % pets)
  const ofAddress = () => {
    const address = `10.${next >> 16 & 255}.${next >> 8 & 255}.${next++ & 255}`
    return Workload.request("GET /v1/pets", undefined, `X-Forwarded-For: ${address}\r\n`)
  }
  for (const request of [pageOfKey, ofAddress]) {
    const { statuses } = yield* Effect.promise(() => load({ ports, request, connections: 32, requests: count }))
    yield* Console.error(`Filled the caches: ${JSON.stringify([...statuses])}`)
  }
})

const openClients = (address: string, [connections, addresses, , bytesOf]: Trial, keys: ReadonlyArray<string>) =>
  Effect.acquireRelease(
    Effect.sync(() =>
      Array.from({ length: connections }, (_, index) => {
        const localAddress = `127.0.0.${2 + index % addresses}`
        const bytes = bytesOf(keys[index % keys.length] ?? "", index)
        const socket = connect({ port: Number(new URL(address).port), host: "127.0.0.1", localAddress })
        return socket.on("error", () => {}).pause().on("connect", () => socket.write(bytes))
      })
    ),
    (sockets) => Effect.sync(() => sockets.forEach((socket) => socket.destroy()))
  )

/** Starts the service with 400 pets whose names have 4,000 bytes, and with keys on the plan Business. */
const startService = Effect.fnUntraced(function*(keyCount: number, isFull: boolean) {
  const { key, url } = yield* Workload.database(0)
  const management = yield* freePort
  const service = yield* Contender.start("Petstore", {
    DATABASE_URL: url,
    MANAGEMENT_PORT: String(management),
    NODE_OPTIONS: `--max-old-space-size=${isFull ? fullHeapMegabytes : heapMegabytes}`,
    ...isFull && { TRUSTED_PROXIES: "127.0.0.1" }
  })
  const issue = Workload.issueKey(`http://127.0.0.1:${management}`, { name: "silent", plan: "business" })
  const pet = { name: "🐈".repeat(1_000), categoryId: 1 }
  yield* Effect.replicateEffect(send(`${service.address}/v1/pets`, key, "POST", pet), 400)
  if (isFull) yield* fillCaches(url, service)
  const get = (url: string) =>
    send(url, key).pipe(
      Effect.timed,
      Effect.map(([took, { status }]) => ({ isServed: status === 200, ms: Duration.toMillis(took) })),
      Effect.timeout("10 seconds"),
      Effect.catchCause(() => Effect.succeed({ isServed: false, ms: 10_000 }))
    )
  return {
    service,
    management: `http://127.0.0.1:${management}`,
    keys: yield* Effect.replicateEffect(issue, keyCount),
    health: get(`http://127.0.0.1:${management}/healthz`),
    list: get(`${service.address}/v1/pets?limit=1`)
  }
})

const describe = (name: string, responses: ReadonlyArray<{ readonly isServed: boolean; readonly ms: number }>) =>
  `${name} ${responses.filter(({ isServed }) => isServed).length} of ${responses.length}, at most ${
    Math.max(...responses.map(({ ms }) => ms)).toFixed(0)
  } ms`

const defaultGoal = "200 MB, then 30; another key and /healthz within 1 s; SIGTERM within 3 s"

const titleOf = ([connections, addresses, what]: Trial) =>
  `${connections} connections of ${addresses === 1 ? "one address" : `${addresses} addresses`} ${what}`

/** Runs a trial, and prints the growth of the process and the responses to another key. */
const run = Effect.fnUntraced(function*(trial: Trial) {
  const { goal = defaultGoal, isFull = false, isManagement = false, keys: keyCount = 0 } = trial[4] ?? {}
  const { health, keys, list, management, service } = yield* startService(keyCount, isFull)
  yield* Effect.replicateEffect(Effect.all([list, health]), 100)
  yield* Effect.sleep("1 seconds")
  const attacked = isManagement ? management : service.address
  // A process that runs no more has no memory.
  const memory = Effect.try(() => Contender.usage(service)).pipe(Effect.orElseSucceed(() => undefined))
  const rest = Contender.usage(service).megabytes
  Contender.forgetHighest(service)
  const lists: Array<Effect.Success<typeof list>> = []
  const healths: Array<Effect.Success<typeof list>> = []
  const attack = Effect.gen(function*() {
    yield* openClients(attacked, trial, keys)
    for (const startedAt = performance.now(); performance.now() - startedAt < seconds * 1000;) {
      const [listed, healthy] = yield* Effect.all([list, health], { concurrency: 2 })
      lists.push(listed)
      healths.push(healthy)
      yield* Effect.sleep("20 millis")
    }
  })
  yield* Effect.scoped(attack)
  yield* Effect.sleep("5 seconds")
  const after = yield* memory
  // The shutdown begins while the clients of a second trial are connected.
  yield* openClients(attacked, trial, keys)
  yield* Effect.sleep("1 seconds")
  const above = (megabytes = NaN) => (megabytes - rest).toFixed(0)
  const [stopped] = yield* Effect.timed(service.stop)
  yield* Console.log(
    `${titleOf(trial)}\n  ${above(after?.highestMegabytes)} MB above ${rest.toFixed(0)} MB at rest, then ${
      above(after?.megabytes)
    } MB; ${describe("lists of another key:", lists)}; ${describe("/healthz:", healths)}; SIGTERM ${
      Duration.toSeconds(stopped).toFixed(1)
    } s (goal: ${goal})`
  )
}, Effect.scoped)

const get = Workload.request("GET /")
const burst = "GET / HTTP/1.1\r\nHost:\r\n\r\n".repeat(2_521)
const fieldsOf = (count: number, field: (index: number) => string) =>
  Array.from({ length: count }, (_, index) => `${field(index)}\r\n`).join("")
const manyFields = Workload.request("GET /", undefined, fieldsOf(990, (index) => `${(index + 36).toString(36)}: 1`))
const longFields = fieldsOf(90, (index) => `x${index}: ${"y".repeat(155)}`)
const shortNames = `{"name":"Rex","categoryId":1,${
  Array.from({ length: 8_000 }, (_, index) => `"${index.toString(36)}":1`).join()
}`.slice(0, 65_000)

/** A page of 403 KB. */
const page = (key: string, after: number) =>
  Workload.request(`GET /v1/pets?limit=100&cursor=${Workload.cursor(after)}`, key)
const create = (key: string, fields: string, body: string) =>
  Workload.request("POST /v1/pets", key, `Content-Type: application/json\r\n${fields}\r\n`, body)

const nineRequests = () => manyFields.repeat(9)
const chunked = "Transfer-Encoding: chunked"
const chunksOf1 = (key: string) => create(key, chunked, "1\r\n \r\n".repeat(65_000))
const tenPages = (key: string, index: number) =>
  Array.from({ length: 10 }, (_, request) => page(key, 1 + Math.floor(index / 10) * 10 + request)).join("")
const unfinished = (key: string) =>
  create(key, `Content-Length: 16384\r\n${longFields.slice(0, -2)}`, "{".padEnd(16_383))
const untilConnect = get.replace("/", "/a;b") + get.replace("GET", "HEAD") + get.repeat(2_000) +
  Workload.request("CONNECT a:1")
const notHttp = Workload.request("POST /nowhere", undefined, `${chunked}\r\n`, "zz\r\n")
const readAll = "150 MB, all are served"
const largestPages = "the maximum number of connections of an address times the page"

const pageOf300 = (key: string, index: number) => page(key, 1 + index % 300)

const trials: ReadonlyArray<Trial> = [
  [9_900, 10, "send nine requests of 990 fields", nineRequests],
  [9_900, 10, "send nine requests of 990 fields to the management port", nineRequests, { isManagement: true }],
  [500, 1, "send nine requests of 990 fields", nineRequests],
  [9_900, 10, "send an unfinished head of 990 fields", () => manyFields.slice(0, -2)],
  [1_000, 2, "request pages of 403 KB and never read", pageOf300, { keys: 1 }],
  [1_000, 2, "request pages of 403 KB and never read, with full caches", pageOf300, { keys: 1, isFull: true }],
  ...[16_384, 65_536].map((bytes): Trial => {
    const body = shortNames.slice(0, shortNames.lastIndexOf(",", bytes - 2)) + "}"
    const bytesOf = (key: string) => create(key, `Content-Length: ${body.length}`, body)
    return [1_000, 2, `send creates with a body of ${bytes} bytes with short names`, bytesOf, { keys: 1 }]
  }),
  [20, 1, "send GET /a;b, 2,000 requests, and CONNECT", () => untilConnect],
  [60, 1, "send 2,521 requests at once", () => burst],
  [300, 1, "send 2,521 requests at once", () => burst],
  [1_200, 12, "send 2,521 requests at once", () => burst],
  [60, 1, "send creates in 65,000 chunks of one byte", chunksOf1, { keys: 1 }],
  [500, 12, "get an error before their body, which is not HTTP", () => notHttp],
  [3_500, 1, "request a page of 403 KB and never read", (key) => page(key, 0), { keys: 4, goal: largestPages }],
  [180, 30, "request /docs ten times and never read", () => get.replace("/", "/docs").repeat(10), { goal: readAll }],
  [60, 10, "request ten pages of 403 KB each and never read", tenPages, { keys: 10, goal: readAll }],
  [1_990, 200, "send creates with heads of 15 KB and all but one byte of 16 KB", unfinished, { keys: 1 }]
]

const [part = ""] = process.argv.slice(2)
Effect.forEach(trials.filter((trial) => titleOf(trial).includes(part)), run, { discard: true }).pipe(
  NodeRuntime.runMain
)
