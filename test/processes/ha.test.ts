/** Runs the files of `deploy/ha` as processes on this machine, with its ports in place of their hosts. */
import { PgClient } from "@effect/sql-pg"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { spawn } from "node:child_process"
import { once } from "node:events"
import { readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { freePort, issueKey, temporaryDirectory } from "../support/Harness.ts"
import * as Load from "../support/Load.ts"
import * as Postgres from "../support/Postgres.ts"
import { type Running, start } from "../support/Process.ts"
import * as Redis from "../support/Redis.ts"
import { haproxy } from "../support/setup.ts"

const read = (file: string): string => readFileSync(new URL(`../../deploy/ha/${file}`, import.meta.url), "utf8")

/** The lines of a file that are no comments, each split into a name and a value. */
const settingsOf = (file: string): Readonly<Record<string, string>> =>
  Object.fromEntries(
    read(file).split("\n").filter((line) => /^[^#]/.test(line)).map((line) => {
      const [, name = "", value = ""] = /^(\w+)\s*=\s*(.*)$/.exec(line) ?? []
      return [name, value.replaceAll(/^'|'$/g, "")]
    })
  )

/** Runs a program. The scope kills it. */
const run = (program: string, args: ReadonlyArray<string>) =>
  Effect.acquireRelease(
    Effect.sync(() => spawn(program, args, { stdio: "ignore" })),
    (child) =>
      Effect.promise(async () => {
        child.kill("SIGKILL")
        if (child.exitCode === null && child.signalCode === null) await once(child, "exit")
      })
  )

/** The names of hosts in the files, with the address on this machine that takes the place of each. */
type Hosts = ReadonlyMap<string, string>

const place = (text: string, hosts: Hosts): string =>
  [...hosts].reduce((replaced, [name, address]) => replaced.replaceAll(new RegExp(`\\b${name}\\b`, "g"), address), text)

/** Three PostgreSQL servers with the settings of `postgresql.conf`. The first is the primary. */
const postgresServers = Effect.gen(function*() {
  const { listen_addresses: _, ...settings } = settingsOf("postgresql.conf")
  const named = (name: string) => ({ ...settings, cluster_name: name })
  const primary = yield* Postgres.run(named("postgres-1"))
  yield* primary.admin((sql) =>
    Effect.all([
      sql`SET synchronous_commit = local`,
      sql`CREATE ROLE haproxy LOGIN`,
      sql`CREATE ROLE petstore LOGIN`,
      sql`CREATE DATABASE petstore OWNER petstore`
    ])
  )
  const standbys = [
    yield* Postgres.run(named("postgres-2"), primary.port),
    yield* Postgres.run(named("postgres-3"), primary.port)
  ] as const
  return { primary, standbys }
})

/** A Redis master with two replicas, and three sentinels with the settings of `sentinel.conf`. */
const redisServers = Effect.gen(function*() {
  const [master, ...replicas] = [yield* Redis.run, yield* Redis.run, yield* Redis.run]
  yield* master.start
  for (const replica of replicas) {
    yield* replica.start
    yield* replica.type(`REPLICAOF 127.0.0.1 ${master.port}`)
  }
  const sentinels = yield* Effect.replicateEffect(
    Effect.gen(function*() {
      const port = yield* freePort
      const file = join(yield* temporaryDirectory, "sentinel.conf")
      const text = read("sentinel.conf").replace("port 26379", `port ${port}`).replace(
        "redis-1 6379",
        `127.0.0.1 ${master.port}`
      )
      assert.include(text, `127.0.0.1 ${master.port} 2`)
      writeFileSync(file, text)
      yield* run("redis-sentinel", [file])
      return port
    }),
    3
  )
  return { master, sentinels }
})

/** Starts haproxy with `haproxy.cfg`, and returns its addresses for the service and for the primary of PostgreSQL. */
const balancer = Effect.fnUntraced(function*(hosts: Hosts, managements: ReadonlyMap<string, string>) {
  const [port, primaryPort] = [yield* freePort, yield* freePort]
  const file = join(yield* temporaryDirectory, "haproxy.cfg")
  const lines = read("haproxy.cfg")
    .replace("bind :8080", `bind 127.0.0.1:${port}`)
    .replace("bind :5432", `bind 127.0.0.1:${primaryPort}`)
    .split("\n")
    .map((line) => {
      const [, name = ""] = /^\s*server (\S+)/.exec(line) ?? []
      return line.replace("check port 9090", `check port ${managements.get(name) ?? "9090"}`).replace(
        /^(\s*server \S+) (\S+)/,
        (_, start: string, address: string) => `${start} ${place(address, hosts)}`
      )
    })
  writeFileSync(file, lines.join("\n"))
  yield* run(haproxy ?? "", ["-db", "-f", file])
  return { address: `http://127.0.0.1:${port}`, primaryUrl: `postgres://postgres@127.0.0.1:${primaryPort}/petstore` }
})

const deploy = Effect.gen(function*() {
  const { primary, standbys } = yield* postgresServers
  const redis = yield* redisServers
  const hosts = new Map([
    ...[primary, ...standbys].map(({ port }, index) => [`postgres-${index + 1}:5432`, `127.0.0.1:${port}`] as const),
    ...redis.sentinels.map((port, index) => [`sentinel-${index + 1}:26379`, `127.0.0.1:${port}`] as const)
  ])
  const startWith = (file: string) =>
    start({
      ...Object.fromEntries(Object.entries(settingsOf(file)).map(([name, value]) => [name, place(value, hosts)])),
      MANAGEMENT_HOST: "127.0.0.1",
      ADMIN_TOKEN: "adm_0123456789abcdef"
    })
  const services = {
    "petstore-1": yield* startWith("petstore.env"),
    "petstore-2": yield* startWith("petstore.env"),
    "petstore-reader-1": yield* startWith("petstore-reader.env")
  }
  const { address, primaryUrl } = yield* balancer(
    new Map([
      ...hosts,
      ...Object.entries(services).map(([name, service]) => [`${name}:8080`, new URL(service.address).host] as const)
    ]),
    new Map(Object.entries(services).map(([name, service]) => [name, new URL(service.management).port]))
  )
  const key = yield* issueKey(PgClient.layer({ url: Redacted.make(primary.url.replace(/\w+$/, "petstore")) }))
  return { primary, standbys, redis, services, address, primaryUrl, key }
})

const text = (url: string) => Effect.promise(() => fetch(url).then((response) => response.text(), () => ""))

/** The requests of a method that a process has served. */
const servedBy = ({ management }: Running, method: string) =>
  Effect.map(text(`${management}/metrics`), (metrics) => {
    let total = 0
    for (const line of metrics.split("\n")) {
      if (/^petstore_http_server_request_duration_seconds_count\b/.test(line) && line.includes(`="${method}"`)) {
        total += Number(line.split(" ").at(-1))
      }
    }
    return total
  })

const isShared = (services: ReadonlyArray<Running>) =>
  Effect.map(
    Effect.forEach(services, ({ management }) => text(`${management}/readyz`)),
    (bodies) => bodies.every((body) => body.includes("shared"))
  )

/** Waits until `condition` holds, and returns the milliseconds that it took. */
const waitFor = Effect.fnUntraced(function*(condition: Effect.Effect<boolean>) {
  const startedAt = performance.now()
  while (!(yield* condition)) yield* Effect.sleep("50 millis")
  return performance.now() - startedAt
})

describe.skipIf(Postgres.missing !== undefined || Redis.missing !== undefined || haproxy === undefined)(
  "The files in deploy/ha",
  () => {
    it.live(
      "serve through the loss of PostgreSQL's primary, Redis's master and a process, and lose no acknowledged pet",
      () =>
        Effect.gen(function*() {
          const { address, key, primary, primaryUrl, redis, services, standbys } = yield* deploy
          const all = Object.values(services)
          yield* waitFor(Effect.map(Load.request(address, key), ({ status }) => status === 201))
          yield* waitFor(isShared(all))
          const load = yield* Load.run({ address: () => address, key, callers: 8 })
          const nextCreate = Effect.suspend(() => {
            const from = performance.now()
            return waitFor(
              Effect.sync(() => load.outcomes.some(({ sentAt, status }) => sentAt > from && status === 201))
            )
          })
          yield* Effect.sleep("2 seconds")
          // Reads go to the process that reads from a standby, and nothing else does.
          assert.isAbove(yield* servedBy(services["petstore-reader-1"], "GET"), 50)
          assert.strictEqual(yield* servedBy(services["petstore-reader-1"], "POST"), 0)
          assert.strictEqual(yield* servedBy(services["petstore-1"], "GET"), 0)

          yield* primary.kill
          yield* Postgres.failOver(standbys)
          const afterPromotion = yield* nextCreate
          assert.isBelow(afterPromotion, 5_000)

          yield* redis.master.kill
          yield* Effect.sleep("500 millis")
          const afterRedis = yield* waitFor(isShared(all))
          assert.isBelow(afterRedis, 20_000)

          services["petstore-1"].process.kill("SIGKILL")
          const afterProcess = yield* nextCreate
          assert.isBelow(afterProcess, 2_000)
          yield* Effect.sleep("1 second")
          yield* load.stop
          console.log(
            `Creates succeed again ${Math.round(afterPromotion)} ms after the promotion. Limits are shared again ` +
              `${Math.round(afterRedis + 500)} ms after the loss of Redis's master. Creates succeed again ` +
              `${Math.round(afterProcess)} ms after the loss of a process.`
          )

          // Requests that the killed process was serving have no response: the connection closes, or haproxy sends 502.
          const lost = load.outcomes.filter(({ status }) => ![200, 201, 404, 503].includes(status))
          assert.isAtMost(lost.length, 8)
          assert.deepStrictEqual(lost.filter(({ status }) => status !== 502 && status !== 0), [])
          // Through haproxy, which finds the primary.
          const stored = yield* Effect.gen(function*() {
            const sql = yield* PgClient.PgClient
            return yield* sql<{ readonly name: string }>`SELECT name FROM pets`
          }).pipe(Effect.provide(PgClient.layer({ url: Redacted.make(primaryUrl), maxConnections: 1 })))
          const names = new Set(stored.map(({ name }) => name))
          assert.strictEqual(names.size, stored.length)
          assert.deepStrictEqual(Load.acknowledged(load.outcomes).filter((name) => !names.has(name)), [])
        }),
      120_000
    )
  }
)
