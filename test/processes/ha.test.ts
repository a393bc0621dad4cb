/**
 * Runs the files of `deploy/ha` as processes on this machine, with its ports in place of their hosts, and loses a part
 * at a time under load. `FAILOVERS` says how often PostgreSQL fails over, each time in a new deployment.
 */
import { PgClient } from "@effect/sql-pg"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Redacted, Schema } from "effect"
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

const failovers = Number(process.env.FAILOVERS ?? 1)
const ADMIN_TOKEN = "adm_0123456789abcdef"

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

const deploy = Effect.gen(function*() {
  const { primary, standbys } = yield* postgresServers
  const redis = yield* redisServers
  const [apiPort, primaryPort] = [yield* freePort, yield* freePort]
  const processes = yield* Effect.replicateEffect(Effect.all({ api: freePort, management: freePort }), 2)
  // The addresses on this machine that take the place of those in the files.
  const addresses = new Map([
    ["balancer:5432", `127.0.0.1:${primaryPort}`],
    ...[primary, ...standbys].map(({ port }, index) => [`postgres-${index + 1}:5432`, `127.0.0.1:${port}`] as const),
    ...redis.sentinels.map((port, index) => [`sentinel-${index + 1}:26379`, `127.0.0.1:${port}`] as const),
    ...processes.map(({ api }, index) => [`petstore-${index + 1}:8080`, `127.0.0.1:${api}`] as const)
  ])
  const place = (text: string): string =>
    [...addresses].reduce((placed, [name, address]) => placed.replaceAll(name, address), text)
  const file = join(yield* temporaryDirectory, "haproxy.cfg")
  writeFileSync(
    file,
    place(read("haproxy.cfg"))
      .replace("bind :8080", `bind 127.0.0.1:${apiPort}`)
      .replace("bind :5432", `bind 127.0.0.1:${primaryPort}`)
      .replaceAll(
        /(server petstore-(\d) .* port) 9090/g,
        (_, line: string, index: string) => `${line} ${processes[Number(index) - 1]?.management}`
      )
  )
  yield* run(haproxy ?? "", ["-db", "-f", file])
  const settings = Object.entries(settingsOf("petstore.env")).map(([name, value]) => [name, place(value)] as const)
  const services = yield* Effect.forEach(processes, ({ api, management }) =>
    start({
      ...Object.fromEntries(settings),
      PORT: String(api),
      MANAGEMENT_PORT: String(management),
      MANAGEMENT_HOST: "127.0.0.1",
      ADMIN_TOKEN
    }))
  const key = yield* issueKey(PgClient.layer({ url: Redacted.make(primary.url.replace(/\w+$/, "petstore")) }))
  return { primary, standbys, redis, services, address: `http://127.0.0.1:${apiPort}`, key }
})

const Issued = Schema.fromJsonString(Schema.Struct({ id: Schema.String, key: Schema.String }))
const Pet = Schema.fromJsonString(Schema.Struct({ id: Schema.Int }))

const admin = ({ management }: Running, method: string, path: string, body: unknown) =>
  Effect.promise(async () => {
    const headers = { authorization: `Bearer ${ADMIN_TOKEN}`, "content-type": "application/json" }
    return (await fetch(management + path, { method, headers, body: JSON.stringify(body) })).text()
  })

/** Waits until `condition` holds, and returns the milliseconds that it took. */
const waitFor = Effect.fnUntraced(function*(condition: Effect.Effect<boolean>) {
  const startedAt = performance.now()
  while (!(yield* condition)) yield* Effect.sleep("20 millis")
  return performance.now() - startedAt
})

const isShared = (services: ReadonlyArray<Running>) =>
  Effect.map(
    Effect.forEach(services, ({ management }) =>
      Effect.promise(() =>
        fetch(`${management}/readyz`).then((response) => response.text(), () => "")
      )),
    (bodies) => bodies.every((body) => body.includes("shared"))
  )

/** Creates pets through the balancer, and waits for the next create that succeeds. */
const runLoad = Effect.fnUntraced(function*({ address, key }: Effect.Success<typeof deploy>) {
  const load = yield* Load.run({ address: () => address, key, callers: 8 })
  const nextCreate = Effect.suspend(() => {
    const from = performance.now()
    return waitFor(Effect.sync(() => load.outcomes.some(({ sentAt, status }) => sentAt > from && status === 201)))
  })
  yield* nextCreate
  return { ...load, nextCreate }
})

/** Each acknowledged pet is stored once, under an id of its own. */
const assertNothingLost = Effect.fnUntraced(function*(
  outcomes: ReadonlyArray<Load.Outcome>,
  primary: Effect.Success<ReturnType<typeof Postgres.run>>
) {
  const database = PgClient.layer({ url: Redacted.make(primary.url.replace(/\w+$/, "petstore")), maxConnections: 1 })
  const stored = yield* Effect.flatMap(
    PgClient.PgClient,
    (sql) => sql<{ readonly name: string }>`SELECT name FROM pets`
  ).pipe(Effect.provide(database))
  const names = new Set(stored.map(({ name }) => name))
  assert.strictEqual(names.size, stored.length)
  assert.deepStrictEqual(Load.acknowledged(outcomes).filter((name) => !names.has(name)), [])
  const created = outcomes.filter(({ status }) => status === 201)
  const ids = yield* Effect.forEach(created, ({ body }) => Schema.decodeEffect(Pet)(body))
  assert.strictEqual(new Set(ids.map(({ id }) => id)).size, ids.length)
})

const missing = Postgres.missing ?? Redis.missing ?? (haproxy === undefined ? "there is no haproxy" : undefined)

describe.skipIf(missing !== undefined)("With the files in deploy/ha", () => {
  it.live.each(Array.from({ length: failovers }, (_, index) => index % 2 === 0 ? "is killed" : "hangs"))(
    "no pet, id or revocation is lost when the primary %s, then Redis's master and a process",
    (loss) =>
      Effect.gen(function*() {
        const deployment = yield* deploy
        const { primary, redis, services, standbys } = deployment
        const service = services[0] ?? assert.fail("there is no process")
        yield* waitFor(isShared(services))
        const load = yield* runLoad(deployment)
        const issued = yield* admin(service, "POST", "/admin/keys", { name: "revoked", plan: "free" })
        const revoked = yield* Schema.decodeEffect(Issued)(issued)
        assert.strictEqual((yield* Load.request(deployment.address, revoked.key, "/v1/pets?limit=1")).status, 200)
        yield* admin(service, "DELETE", `/admin/keys/${revoked.id}`, undefined)

        yield* loss === "hangs" ? Effect.andThen(primary.freeze, Effect.sleep("4 seconds")) : primary.kill
        const promoted = yield* Postgres.failOver(standbys)
        const afterPromotion = yield* load.nextCreate
        assert.isBelow(afterPromotion, 5_000)
        if (loss === "hangs") yield* primary.thaw
        const statuses = yield* Effect.replicateEffect(
          Effect.delay(Load.request(deployment.address, revoked.key, "/v1/pets?limit=1"), "250 millis"),
          4
        )
        assert.isTrue(statuses.every(({ status }) => status === 401 || status === 503))

        yield* redis.master.kill
        yield* waitFor(Effect.map(isShared(services), (shared) => !shared))
        assert.isBelow(yield* load.nextCreate, 2_000)
        const afterRedis = yield* waitFor(isShared(services))
        assert.isTrue(services.every(({ process }) => process.exitCode === null))

        service.process.kill("SIGKILL")
        const afterProcess = yield* load.nextCreate
        assert.isBelow(afterProcess, 2_000)
        yield* load.stop
        // Requests that the killed process was serving have no response: the connection closes, or haproxy sends 502.
        const lost = load.outcomes.filter(({ status }) => ![200, 201, 404, 503].includes(status))
        assert.isAtMost(lost.length, 8)
        assert.deepStrictEqual(lost.filter(({ status }) => status !== 502 && status !== 0), [])
        yield* assertNothingLost(load.outcomes, promoted)
        console.log(
          `${load.outcomes.length} requests. Creates succeeded again ${Math.round(afterPromotion)} ms after the ` +
            `promotion, and ${Math.round(afterProcess)} ms after the loss of a process. Limits were shared again ` +
            `${Math.round(afterRedis)} ms after the loss of Redis's master was noticed.`
        )
      })
  )
})
