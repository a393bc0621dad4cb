/** Runs the files of `deploy/ha` on this machine, with its ports in place of their hosts. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import * as Balancer from "../support/Balancer.ts"
import { clientOn } from "../support/Databases.ts"
import { readPage } from "../support/Documents.ts"
import * as Load from "../support/Load.ts"
import * as Postgres from "../support/Postgres.ts"
import { adminToken, issue, sendAdmin, start, stop, untilCounting } from "../support/Process.ts"
import * as Redis from "../support/Redis.ts"
import { haproxy } from "../support/setup.ts"
import { freePort } from "../support/Temporary.ts"

const read = (file: string): string => readPage(`deploy/ha/${file}`)

const settingsIn = (text: string): Readonly<Record<string, string>> =>
  Object.fromEntries([...text.matchAll(/^(\w+)\s*=\s*'?(.*?)'?$/gm)].map(([, name, value]) => [name, value]))

const startPostgres = Effect.gen(function*() {
  const { listen_addresses: _, ...settings } = settingsIn(read("postgresql.conf"))
  const run = (name: string, primaryPort?: number) => Postgres.run({ ...settings, cluster_name: name }, primaryPort)
  const primary = yield* run("postgres-1")
  const roles = ["haproxy", "petstore"].map((role) => `CREATE ROLE ${role} LOGIN`)
  const statements = ["SET synchronous_commit = local", ...roles, "CREATE DATABASE petstore OWNER petstore"]
  yield* primary.admin((sql) => Effect.forEach(statements, (statement) => sql.unsafe(statement)))
  return [primary, yield* run("postgres-2", primary.port), yield* run("postgres-3", primary.port)] as const
})

const startRedis = Effect.gen(function*() {
  const [master, ...replicas] = [yield* Redis.runStarted(), yield* Redis.runStarted(), yield* Redis.runStarted()]
  for (const { port } of replicas) yield* Redis.command(port, "REPLICAOF", "127.0.0.1", String(master.port))
  const config = read("sentinel.conf").replace("port 26379", "").replace("redis-1 6379", `127.0.0.1 ${master.port}`)
  return { master, sentinels: yield* Effect.replicateEffect(Redis.startSentinel(config), 3) }
})

const deploy = Effect.gen(function*() {
  const [primary, ...standbys] = yield* startPostgres
  const { master, sentinels } = yield* startRedis
  const primaryPort = yield* freePort
  const ports = { postgres: [primary, ...standbys].map(({ port }) => port), sentinel: sentinels }
  const place = (text: string): string =>
    text.replaceAll(
      /(postgres|sentinel)-(\d):\d+/g,
      (_, name: keyof typeof ports, number: string) => `127.0.0.1:${ports[name][Number(number) - 1]}`
    ).replace("balancer:5432", `127.0.0.1:${primaryPort}`).replace("bind :5432", `bind 127.0.0.1:${primaryPort}`)
  const { address, servers } = yield* Balancer.run(place(read("haproxy.cfg")))
  const env = { ...settingsIn(place(read("petstore.env"))), MANAGEMENT_HOST: "127.0.0.1", ADMIN_TOKEN: adminToken }
  const services = [yield* start({ ...env, ...servers[0] }), yield* start({ ...env, ...servers[1] })] as const
  return { primary, standbys, master, services, address }
})

const skip = !Postgres.isInstalled || !Redis.isInstalled || haproxy === undefined

describe.skipIf(skip)("With the files in deploy/ha, no pet, id or revocation is lost", () => {
  const title = "when the primary %s, then Redis's master and a process"
  it.live.each(["is killed", "hangs"])(title, (loss) =>
    Effect.gen(function*() {
      const { address, master, primary, services, standbys } = yield* deploy
      yield* untilCounting("shared", ...services)
      const { key } = yield* issue(services[0])
      const load = yield* Load.run(address, key, 8)
      yield* load.untilCreated
      const revoked = yield* issue(services[0])
      const list = Load.request(address, revoked.key, "/v1/pets?limit=1")
      assert.strictEqual((yield* list).status, 200)
      yield* sendAdmin(services[0], "DELETE", `/keys/${revoked.id}`)

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
      yield* untilCounting("fallback", ...services)
      yield* load.untilCreated
      yield* untilCounting("shared", ...services)
      assert.isTrue(services.every(({ process }) => process.exitCode === null))

      yield* stop(services[0], "SIGKILL")
      yield* load.untilCreated
      yield* load.stop
      // Requests that the killed process was serving have no response: the connection closes, or haproxy sends 502.
      Load.assertStatuses(load.outcomes, 200, 201, 404, 503, 502, 0)
      assert.isAtMost(load.outcomes.filter(({ status }) => status === 502 || status === 0).length, 8)
      yield* Load.assertStored(load.outcomes, clientOn(promoted.url.replace(/\w+$/, "petstore")))
      const ids = load.outcomes.filter(({ status }) => status === 201).map(({ body }) => JSON.parse(body).id)
      assert.strictEqual(new Set(ids).size, ids.length)
    }))
})
