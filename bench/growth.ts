/**
 * Prints the table of growth: what a start and each operation cost with more keys, more pets and more processes.
 *
 * `npm run bench:growth` takes about 5 minutes on two idle cores, and goes to 100,000 keys and 1,000,000 pets. With `-- long`, it goes to
 * 1,000,000 keys and 10,000,000 pets. It needs redis-server and `TEST_DATABASE_URL`, a PostgreSQL
 * server of this machine to create databases on. WAL is that of the whole server, so nothing else may write to it.
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { PgClient } from "@effect/sql-pg"
import { Array, Console, Effect, Redacted } from "effect"
import { untilTrue } from "../test/support/Process.ts"
import * as Redis from "../test/support/Redis.ts"
import { freePort } from "../test/support/Temporary.ts"
import * as Contender from "./Contender.ts"
import { load } from "./load.ts"
import { formatRate, median, table } from "./measure.ts"
import * as Workload from "./Workload.ts"

const isLong = process.argv[2] === "long"
const keyCounts = [1_000, 10_000, 100_000, ...isLong ? [1_000_000] : []]
const petCounts = [100_000, 1_000_000, ...isLong ? [10_000_000] : []]
const processCounts = [2, 4]
const connections = 32
/** Requests of each process: the first until its code is compiled, however busy the machine is, and those measured. */
const [warmRequests, measuredRequests] = [4_000, isLong ? 20_000 : 4_000]
const adminRequests = 200

/** The database of a measurement, and the processes of its servers. */
interface Data extends Effect.Success<ReturnType<typeof Workload.database>> {
  readonly redis?: { readonly url: string; readonly title: string }
}

const on = <A, E>(url: string, use: (sql: PgClient.PgClient) => Effect.Effect<A, E>) =>
  Effect.flatMap(PgClient.PgClient, use).pipe(
    Effect.provide(
      PgClient.layer({ url: Redacted.make(url), maxConnections: 1, startupParameters: { statement_timeout: "0" } })
    )
  )

/** Buffers that the database has read, and bytes of WAL. The sessions of the service must have ended. */
const countersOf = (url: string) =>
  on(url, (sql) => {
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

const serverCpu = ({ redis, servers }: Data): number =>
  Contender.cpuOf(redis === undefined ? servers : [...servers, redis.title]).values().reduce((sum, cpu) => sum + cpu, 0)

const start = Effect.fnUntraced(function*({ redis, url }: Data) {
  const management = String(yield* freePort)
  const env = { DATABASE_URL: url, MANAGEMENT_PORT: management, ...redis && { REDIS_URL: redis.url } }
  return { ...yield* Contender.start("Petstore", env), management: `http://127.0.0.1:${management}` }
})
type Started = Effect.Success<ReturnType<typeof start>>

interface Figures {
  /** What a process needs to start: milliseconds, megabytes, and seconds of its CPU. */
  readonly started: readonly [ms: number, megabytes: number, cpu: number]
  /** The requests that were measured, and with those that warmed the processes. */
  readonly requests: number
  readonly all: number
  readonly ms: number
  readonly cpu: number
  readonly serverCpu: number
  readonly buffers: number
  readonly wal: number
}

/** Starts processes, sends requests with `warm`, sends those that are measured with `send`, and ends the processes. */
const measure = Effect.fnUntraced(function*(
  data: Data,
  processes: number,
  warm: (started: ReadonlyArray<Started>) => Promise<number>,
  send: (started: ReadonlyArray<Started>) => Promise<number>
) {
  const before = yield* countersOf(data.url)
  const run = Effect.gen(function*() {
    const started = yield* Effect.replicateEffect(start(data), processes)
    const [first] = started
    const atStart = first && Contender.usage(first)
    const warmed = yield* Effect.promise(() => warm(started))
    const cpu = () => started.reduce((sum, each) => sum + Contender.usage(each).cpu, 0)
    const [cpuBefore, serverBefore, startedAt] = [cpu(), serverCpu(data), performance.now()]
    const requests = yield* Effect.promise(() => send(started))
    return {
      started: [first?.startedIn ?? NaN, atStart?.megabytes ?? NaN, atStart?.cpu ?? NaN] as const,
      requests,
      all: requests + warmed,
      ms: (performance.now() - startedAt) / requests,
      cpu: (cpu() - cpuBefore) / requests * 1e6,
      serverCpu: (serverCpu(data) - serverBefore) / requests * 1e6
    }
  })
  const figures = yield* Effect.scoped(run)
  const after = yield* countersOf(data.url)
  const result: Figures = {
    ...figures,
    buffers: (after.buffers - before.buffers) / Math.max(1, figures.all),
    wal: (after.wal - before.wal) / Math.max(1, figures.all)
  }
  return result
})

const nothing = () => Promise.resolve(0)

/** Sends requests of an operation on pets to all processes. */
const loadPets = (data: Data, operation: Workload.Operation, ids: number, requests: number) => {
  const lines = Workload.requests(operation, ids)
  let next = Math.floor(Math.random() * lines.length)
  const request = () => {
    const [, method, path, body = ""] = /^(\S+) (\S+) ?(.*)$/.exec(lines[next++ % lines.length] ?? "") ?? []
    return `${method} ${path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n` +
      `Content-Length: ${body.length}\r\nAuthorization: Bearer ${data.keys[next % data.keys.length]}\r\n\r\n${body}`
  }
  return async (started: ReadonlyArray<Started>) => {
    const ports = started.map(({ address }) => Number(new URL(address).port))
    const { statuses } = await load({ ports, request, connections, requests: requests * ports.length })
    return statuses.values().reduce((sum, count) => sum + count, 0)
  }
}

const petOperations = ["list", "uniform page", "uniform get", "create"] as const
const petHeader = ["pets", "processes", "operation", "CPU µs", "database and Redis µs", "buffers", "WAL bytes"]

const measurePets = Effect.fnUntraced(function*(data: Data, ids: number, processes: number) {
  const start = yield* measure(data, processes, nothing, nothing)
  return yield* Effect.forEach(petOperations, (operation) =>
    Effect.map(
      measure(
        data,
        processes,
        loadPets(data, operation, ids, warmRequests),
        loadPets(data, operation, ids, measuredRequests)
      ),
      ({ all, buffers, cpu, serverCpu, wal }) => [
        formatRate(ids),
        String(processes),
        operation,
        cpu.toFixed(0),
        serverCpu.toFixed(0),
        Math.max(0, buffers - start.buffers / all).toFixed(1),
        operation === "create" ? wal.toFixed(0) : ""
      ]
    ))
})

/** Inserts keys whose limits have states, and which were used in this hour. */
const insertKeys = (url: string, count: number) =>
  on(url, (sql) =>
    Effect.forEach(
      [
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
      ],
      (statement) => sql.unsafe(statement),
      { discard: true }
    ))

const adminPaths = {
  "list of keys": () => "/admin/keys?limit=20",
  "search of a key": () => `/admin/keys?limit=20&search=customer%20${1 + Math.floor(Math.random() * 1_000)}`,
  "keys with most requests": () => "/admin/usage?window=hour&limit=20"
}

/** Sends requests of an operator, one after the other. */
const sendAdmin =
  (path: () => string, count: number, times: Array<number> = []) => async ([first]: ReadonlyArray<Started>) => {
    for (let i = 0; i < count; i++) {
      const startedAt = performance.now()
      const headers = { authorization: `Bearer ${Contender.adminToken}` }
      const response = await fetch(`${first?.management}${path()}`, { headers })
      if (response.status !== 200) throw new Error(`${path()}: ${response.status} ${await response.text()}`)
      await response.text()
      times.push(performance.now() - startedAt)
    }
    return count
  }

const measureKeys = Effect.fnUntraced(function*(keys: number) {
  const data = yield* Workload.database(0)
  yield* insertKeys(data.url, keys)
  const start = yield* measure(data, 1, nothing, nothing)
  const [ms, megabytes, cpu] = start.started
  const started = ["start", ms.toFixed(0), (cpu * 1e3).toFixed(0), "", start.buffers.toFixed(0), megabytes.toFixed(0)]
  const rows = yield* Effect.forEach(Object.entries(adminPaths), ([name, path]) => {
    const times = Array.empty<number>()
    const send = sendAdmin(path, adminRequests, times)
    return Effect.map(measure(data, 1, sendAdmin(path, adminRequests), send), (figures) => [
      name,
      median(times).toFixed(1),
      (figures.cpu / 1e3).toFixed(1),
      (figures.serverCpu / 1e3).toFixed(1),
      Math.max(0, figures.buffers - start.buffers / (2 * adminRequests)).toFixed(0),
      ""
    ])
  })
  return [started, ...rows].map((row) => [formatRate(keys), ...row])
}, Effect.scoped)

Effect.scoped(Effect.gen(function*() {
  const keyRows = yield* Effect.forEach(keyCounts, measureKeys)
  const keyHeader = ["keys", "", "ms", "CPU ms", "database ms", "buffers", "MB"]
  yield* Console.log(`${table([keyHeader, ...keyRows.flat()])}\n`)
  const onePets = yield* Effect.forEach(petCounts, (ids) =>
    Effect.scoped(Effect.gen(function*() {
      const data = yield* Workload.database(ids, 100)
      const one = yield* measurePets(data, ids, 1)
      if (ids !== petCounts[1]) return one
      const started = yield* Redis.runStarted()
      const redis = { url: started.url, title: `redis-server *:${started.port}` }
      const more = yield* Effect.forEach([1, ...processCounts], (processes) =>
        measurePets({ ...data, redis }, ids, processes))
      return [...one, ...more.flat().map(([pets = "", processes, ...rest]) => [pets, `${processes}, Redis`, ...rest])]
    })))
  yield* Console.log(table([petHeader, ...onePets.flat()]))
})).pipe(NodeRuntime.runMain)
