/**
 * Prints the table of growth: what a start and each operation cost with more keys, more pets and more processes.
 *
 * `npm run bench:growth` takes about 5 minutes on two idle cores, and goes to 100,000 keys and 1,000,000 pets. With
 * `-- long`, it goes to 1,000,000 keys and 10,000,000 pets. It needs redis-server and `TEST_DATABASE_URL`, a PostgreSQL
 * server of this machine to create databases on. WAL is that of the whole server, so nothing else may write to it.
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Console, Effect } from "effect"
import { untilTrue } from "../test/support/Process.ts"
import * as Redis from "../test/support/Redis.ts"
import { freePort } from "../test/support/Temporary.ts"
import * as Contender from "./Contender.ts"
import { load, type Measured } from "./load.ts"
import { table } from "./measure.ts"
import * as Workload from "./Workload.ts"

const isLong = process.argv[2] === "long"
const keyCounts = [1_000, 10_000, 100_000, ...isLong ? [1_000_000] : []]
const petCounts = [100_000, 1_000_000, ...isLong ? [10_000_000] : []]
const processCounts = [2, 4]
const connections = 32
/** Requests of each process: the first until its code is compiled, however busy the machine is, and those measured. */
const [warmRequests, measuredRequests] = [4_000, isLong ? 20_000 : 4_000]
const adminRequests = 200

/** The database of a measurement, with the settings of its processes. */
type Data = Omit<Effect.Success<ReturnType<typeof Workload.database>>, "env"> & {
  readonly env: Readonly<Record<string, string>>
}

/** Buffers that the database has read, and bytes of WAL. The sessions of the service must have ended. */
const countersOf = (url: string) =>
  Workload.queryAt(url)((sql) => {
    const others = sql`SELECT FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
      AND backend_type = 'client backend'`
    const counters = sql<{ readonly buffers: number; readonly wal: number }>`
      SELECT (blks_hit + blks_read)::float8 AS buffers, pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8 AS wal
      FROM pg_stat_database WHERE datname = current_database()`
    return Effect.andThen(
      untilTrue(Effect.map(others, ({ length }) => length === 0), "the sessions of the service have ended"),
      Effect.map(counters, ([row = { buffers: NaN, wal: NaN }]) => row)
    )
  })

const serverCpu = ({ servers }: Data): number => Contender.cpuOf(servers).values().reduce((sum, cpu) => sum + cpu, 0)

const start = Effect.fnUntraced(function*({ env }: Data) {
  const management = yield* freePort
  return { ...yield* Contender.start("Petstore", { ...env, MANAGEMENT_PORT: String(management) }), management }
})
type Started = Effect.Success<ReturnType<typeof start>>

/** Sends this many requests to each process. */
type Send = (started: ReadonlyArray<Started>, requests: number) => Promise<Measured>

/** Starts processes, sends `warmed` requests to each, measures `measured` more, and ends the processes. */
const measure = Effect.fnUntraced(function*(
  data: Data,
  processes: number,
  send?: Send,
  warmed = warmRequests,
  measured = measuredRequests
) {
  const before = yield* countersOf(data.url)
  const run = Effect.gen(function*() {
    const first = yield* start(data)
    const atStart = { ms: first.startedIn, ...Contender.usage(first) }
    const started = [first, ...yield* Effect.replicateEffect(start(data), processes - 1)]
    if (send === undefined) return { atStart, all: 1, p50: NaN, cpu: NaN, serverCpu: NaN }
    yield* Effect.promise(() => send(started, warmed))
    const cpu = () => started.reduce((sum, each) => sum + Contender.usage(each).cpu, 0)
    const [cpuBefore, serverBefore] = [cpu(), serverCpu(data)]
    const { p50, requests, statuses } = yield* Effect.promise(() => send(started, measured))
    if (statuses.keys().some((status) => status >= 300)) return yield* Effect.die([...statuses])
    return {
      atStart,
      all: requests + processes * warmed,
      p50,
      cpu: (cpu() - cpuBefore) / requests * 1e6,
      serverCpu: (serverCpu(data) - serverBefore) / requests * 1e6
    }
  })
  const figures = yield* Effect.scoped(run)
  const after = yield* countersOf(data.url)
  const [buffers, wal] = [after.buffers - before.buffers, after.wal - before.wal]
  return { ...figures, buffers: buffers / figures.all, wal: wal / figures.all }
})

const formatCount = (count: number): string => count.toLocaleString("en")

const petOperations = ["list", "uniform page", "uniform get", "create"] as const
const petHeader = [
  "pets",
  "processes",
  "operation",
  "CPU µs",
  "database and Redis µs",
  "buffers",
  "WAL bytes",
  "node:http, as many processes, µs"
]

/** The CPU of as many processes of `node:http`, which repeat responses of the service from memory. */
const measureFloor = Effect.fnUntraced(function*(data: Data, processes: number, send: Send) {
  const service = yield* start(data)
  yield* Effect.promise(() => send([service], 1))
  const env = { SERVICE: service.address, KEY: data.keys[0] ?? "" }
  const floor = Effect.map(Contender.start("node:http", env), (started) => ({ ...started, management: 0 }))
  const started = yield* Effect.replicateEffect(floor, processes)
  yield* Effect.promise(() => send(started, warmRequests))
  const cpu = () => started.reduce((sum, each) => sum + Contender.usage(each).cpu, 0)
  const before = cpu()
  const { requests } = yield* Effect.promise(() => send(started, measuredRequests))
  return (cpu() - before) / requests * 1e6
}, Effect.scoped)

const measurePets = Effect.fnUntraced(function*(data: Data, ids: number, processes: number) {
  const start = yield* measure(data, processes)
  return yield* Effect.forEach(petOperations, (operation) => {
    const request = Workload.requests(operation, ids, data.keys)
    const send: Send = (started, requests) => {
      const ports = started.map(({ address }) => Number(new URL(address).port))
      return load({ ports, request, connections, requests: requests * ports.length })
    }
    return Effect.gen(function*() {
      const { all, buffers, cpu, serverCpu, wal } = yield* measure(data, processes, send)
      const floor = yield* measureFloor(data, processes, send)
      return [
        formatCount(ids),
        String(processes) + ("REDIS_URL" in data.env ? ", Redis" : ""),
        operation,
        cpu.toFixed(0),
        serverCpu.toFixed(0),
        Math.max(0, buffers - start.buffers / all).toFixed(1),
        operation === "create" ? wal.toFixed(0) : "",
        floor.toFixed(0)
      ]
    })
  })
})

/** Statements that insert keys whose limits have states, and which were used in this hour. */
const insertKeys = (count: number) => [
  `INSERT INTO api_keys (id, name, hint, plan, per_minute, per_day, created_at)
  SELECT 'key_' || left(md5(n::text), 16), 'customer ' || n, right(md5(n::text), 4), 'pro', 300, 10000,
    now() - make_interval(secs => n) FROM generate_series(1, ${count}) AS n`,
  `INSERT INTO api_key_secrets (hash, key_id) SELECT sha256(id::bytea), id FROM api_keys WHERE hint IS NOT NULL
  ON CONFLICT DO NOTHING`,
  `INSERT INTO key_usage_totals SELECT s.seconds, to_timestamp(floor(extract(epoch FROM now()) / s.seconds) * s.seconds),
  id, hashtext(id) & 1023, hashtext(id) >> 8 & 15, 0 FROM api_keys, (VALUES (3600), (86400)) AS s (seconds)`,
  `INSERT INTO key_limits (key_id, process, seq, saved_at, ends_at, state)
  SELECT id, 0, 0, now(), now() + interval '1 day', jsonb_build_object('minute', jsonb_build_object('used', 5, 'resetAt', t + 60000),
    'day', jsonb_build_object('used', 5, 'resetAt', t + 86400000))::text
  FROM api_keys, (SELECT floor(extract(epoch FROM now()) * 1000) AS t) AS t`,
  "VACUUM ANALYZE api_keys, api_key_secrets, key_usage_totals, key_limits"
]

const adminPaths = {
  "list of keys": () => "/admin/keys?limit=20",
  "search of a key": () => `/admin/keys?limit=20&search=customer%20${1 + Math.floor(Math.random() * 1_000)}`,
  "keys with most requests": () => "/admin/usage?window=hour&limit=20"
}

const measureKeys = Effect.fnUntraced(function*(keys: number) {
  const data = yield* Workload.database(0)
  yield* Workload.queryAt(data.url)((sql) => Effect.forEach(insertKeys(keys), (statement) => sql.unsafe(statement)))
  const { atStart: { cpu, megabytes, ms }, buffers } = yield* measure(data, 1)
  const started = ["start", ms.toFixed(0), (cpu * 1e3).toFixed(0), "", buffers.toFixed(0), megabytes.toFixed(0)]
  const rows = yield* Effect.forEach(Object.entries(adminPaths), ([name, path]) => {
    const send: Send = ([first], requests) => {
      const request = () => Workload.request(`GET ${path()}`, Contender.adminToken)
      return load({ ports: [first?.management ?? 0], request, connections: 1, requests })
    }
    return Effect.map(measure(data, 1, send, adminRequests, adminRequests), (figures) => [
      name,
      figures.p50.toFixed(1),
      (figures.cpu / 1e3).toFixed(1),
      (figures.serverCpu / 1e3).toFixed(1),
      Math.max(0, figures.buffers - buffers / figures.all).toFixed(0),
      ""
    ])
  })
  return [started, ...rows].map((row) => [formatCount(keys), ...row])
}, Effect.scoped)

Effect.scoped(Effect.gen(function*() {
  const keyRows = yield* Effect.forEach(keyCounts, measureKeys)
  const keyHeader = ["keys", "", "ms", "CPU ms", "database ms", "buffers", "MB"]
  yield* Console.log(`${table([keyHeader, ...keyRows.flat()])}\n`)
  const petRows = yield* Effect.forEach(petCounts, (ids) =>
    Effect.scoped(Effect.gen(function*() {
      const data = yield* Workload.database(ids, 100)
      const one = yield* measurePets(data, ids, 1)
      if (ids !== petCounts[1]) return one
      const { port, url } = yield* Redis.runStarted()
      const env = { ...data.env, REDIS_URL: url }
      const shared = { ...data, env, servers: [...data.servers, `redis-server *:${port}`] }
      const more = yield* Effect.forEach([1, ...processCounts], (processes) => measurePets(shared, ids, processes))
      return [...one, ...more.flat()]
    })))
  yield* Console.log(table([petHeader, ...petRows.flat()]))
})).pipe(NodeRuntime.runMain)
