/**
 * Runs the files of `deploy/ha` as processes on this machine, with its ports in place of their hosts, and loses a part
 * at a time under load.
 */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { clientOn } from "../support/Databases.ts"
import { readPage } from "../support/Documents.ts"
import * as Load from "../support/Load.ts"
import * as Postgres from "../support/Postgres.ts"
import {
  adminToken,
  issue,
  type Running,
  runProgram,
  send,
  sendAdmin,
  start,
  stop,
  untilTrue
} from "../support/Process.ts"
import * as Redis from "../support/Redis.ts"
import { haproxy } from "../support/setup.ts"
import { freePort, temporaryDirectory } from "../support/Temporary.ts"

const read = (file: string): string => readPage(`deploy/ha/${file}`)

/** The settings of a file, without its comments. */
const settingsOf = (file: string): Readonly<Record<string, string>> =>
  Object.fromEntries([...read(file).matchAll(/^(\w+)\s*=\s*'?(.*?)'?$/gm)].map(([, name, value]) => [name, value]))

/** A primary and two standbys with the settings of `postgresql.conf`. */
const startPostgres = Effect.gen(function*() {
  const { listen_addresses: _, ...settings } = settingsOf("postgresql.conf")
  const named = (cluster_name: string) => ({ ...settings, cluster_name })
  const primary = yield* Postgres.run(named("postgres-1"))
  yield* primary.admin((sql) =>
    Effect.all([
      sql`SET synchronous_commit = local`,
      sql`CREATE ROLE haproxy LOGIN`,
      sql`CREATE ROLE petstore LOGIN`,
      sql`CREATE DATABASE petstore OWNER petstore`
    ])
  )
  const runStandby = (name: string) => Postgres.run(named(name), primary.port)
  return { primary, standbys: [yield* runStandby("postgres-2"), yield* runStandby("postgres-3")] as const }
})

/** A Redis master with two replicas, and three sentinels with the settings of `sentinel.conf`. */
const startRedis = Effect.gen(function*() {
  const [master, ...replicas] = [yield* Redis.run, yield* Redis.run, yield* Redis.run]
  yield* master.start
  for (const { port, start } of replicas) {
    yield* start
    yield* Redis.command(port, "REPLICAOF", "127.0.0.1", String(master.port))
  }
  const config = read("sentinel.conf").replace("port 26379", "").replace("redis-1 6379", `127.0.0.1 ${master.port}`)
  return { master, sentinels: yield* Effect.replicateEffect(Redis.startSentinel(config), 3) }
})

const deploy = Effect.gen(function*() {
  const { primary, standbys } = yield* startPostgres
  const { master, sentinels } = yield* startRedis
  const [apiPort, primaryPort, metricsPort] = [yield* freePort, yield* freePort, yield* freePort]
  const processes = yield* Effect.replicateEffect(Effect.all({ port: freePort, management: freePort }), 2)
  const ports = {
    postgres: [primary, ...standbys].map(({ port }) => `${port}`),
    sentinel: sentinels.map(String),
    petstore: processes.map(({ management, port }) => `${port} check port ${management}`)
  }
  /** Puts the addresses on this machine in place of those in a file. */
  const place = (text: string): string =>
    text.replaceAll(
      /(postgres|sentinel|petstore)-(\d):\d+( check port 9090)?/g,
      (_, name: keyof typeof ports, number: string) => `127.0.0.1:${ports[name][Number(number) - 1]}`
    ).replace("balancer:5432", `127.0.0.1:${primaryPort}`)
      .replace("bind :8080", `bind 127.0.0.1:${apiPort}`)
      .replace("bind :5432", `bind 127.0.0.1:${primaryPort}`)
      .replace("bind 127.0.0.1:8405", `bind 127.0.0.1:${metricsPort}`)
  const file = join(yield* temporaryDirectory, "haproxy.cfg")
  writeFileSync(file, place(read("haproxy.cfg")))
  yield* runProgram(haproxy ?? "", ["-db", "-f", file])
  const settings = Object.entries(settingsOf("petstore.env")).map(([name, value]) => [name, place(value)] as const)
  const env = { ...Object.fromEntries(settings), MANAGEMENT_HOST: "127.0.0.1", ADMIN_TOKEN: adminToken }
  const services = yield* Effect.forEach(
    processes,
    ({ management, port }) => start({ ...env, PORT: String(port), MANAGEMENT_PORT: String(management) })
  )
  return { primary, standbys, master, services, address: `http://127.0.0.1:${apiPort}` }
})

/** Waits until both processes count in Redis, or until one does not. */
const untilShared = (services: ReadonlyArray<Running>, expected: boolean) => {
  const limits = Effect.forEach(services, ({ management }) => send(`${management}/readyz`, ""))
  return untilTrue(Effect.map(limits, (each) => each.every(({ body }) => body?.limits === "shared") === expected))
}

const missing = Postgres.missing ?? Redis.missing ?? (haproxy === undefined ? "there is no haproxy" : undefined)

describe.skipIf(missing !== undefined)("With the files in deploy/ha", () => {
  it.live.each(["is killed", "hangs"])(
    "no pet, id or revocation is lost when the primary %s, then Redis's master and a process",
    (loss) =>
      Effect.gen(function*() {
        const { address, master, primary, services, standbys } = yield* deploy
        const service = services[0] ?? assert.fail("there is no process")
        yield* untilShared(services, true)
        const { key } = yield* issue(service)
        const load = yield* Load.run({ address: () => address, key, callers: 8 })
        yield* load.untilCreated
        const revoked = yield* issue(service)
        const list = Load.request(address, revoked.key, "/v1/pets?limit=1")
        assert.strictEqual((yield* list).status, 200)
        yield* sendAdmin(service, "DELETE", `/keys/${revoked.id}`)

        yield* loss === "hangs" ? Effect.andThen(primary.freeze, Effect.sleep("4 seconds")) : primary.kill
        const promoted = yield* Postgres.failOver(standbys)
        yield* load.untilCreated
        yield* primary.thaw
        for (let rejections = 0; rejections < 4;) {
          const { status } = yield* Effect.delay(list, "250 millis")
          if (status === 401) rejections++
          else assert.strictEqual(status, 503)
        }

        yield* master.kill
        yield* untilShared(services, false)
        yield* load.untilCreated
        yield* untilShared(services, true)
        assert.isTrue(services.every(({ process }) => process.exitCode === null))

        yield* stop(service, "SIGKILL")
        yield* load.untilCreated
        yield* load.stop
        // Requests that the killed process was serving have no response: the connection closes, or haproxy sends 502.
        const lost = load.outcomes.filter(({ status }) => ![200, 201, 404, 503].includes(status))
        assert.isAtMost(lost.length, 8)
        assert.isTrue(lost.every(({ status }) => status === 502 || status === 0))
        yield* Load.assertStored(load.outcomes, clientOn(promoted.url.replace(/\w+$/, "petstore")))
        const ids = load.outcomes.filter(({ status }) => status === 201).map(({ body }) => JSON.parse(body).id)
        assert.strictEqual(new Set(ids).size, ids.length)
      })
  )
})
