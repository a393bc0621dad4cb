import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { execFileSync } from "node:child_process"
import { randomInt } from "node:crypto"
import { once } from "node:events"
import { existsSync, readdirSync, statSync, unlinkSync } from "node:fs"
import { basename, join } from "node:path"
import { newestVersion } from "../../src/database/Database.ts"
import { dataDirectory, embeddedIn, temporaryDatabaseUrl } from "../support/Databases.ts"
import { codeBlocks, readPage, root } from "../support/Documents.ts"
import * as Load from "../support/Load.ts"
import * as Postgres from "../support/Postgres.ts"
import { firstKey, issue, metricsOf, portOf, send, start, stop, until, untilTrue } from "../support/Process.ts"
import * as Proxy from "../support/Proxy.ts"
import { sendBytes } from "../support/Sockets.ts"
import { temporaryDirectory } from "../support/Temporary.ts"

const linesOf = (log: string) => log.trim().split("\n").map((line) => JSON.parse(line))

/** Starts the service, which must log one line with each of these texts, and exit with 1. Returns its log. */
const assertNoStart = Effect.fnUntraced(function*(env: Parameters<typeof start>[0], ...texts: ReadonlyArray<string>) {
  const { code, stderr } = yield* Effect.flip(start(env))
  // A listener says that it listens only once the other one does too.
  assert.notMatch(stderr, /Listening on|Management API/)
  const lines = stderr.trim().split("\n").filter((line) => !line.includes(`"level":"INFO"`))
  assert.deepStrictEqual([code, lines.length], [1, texts.length], stderr)
  for (const text of texts) assert.include(lines.join("\n"), text)
  return stderr
})

describe("The service on the embedded database", () => {
  it.live("issues one key at the first start, and keeps pets and counts after kill -9", () =>
    Effect.gen(function*() {
      const DATA_DIR = yield* temporaryDirectory
      // An empty variable counts as not set, also under a mistyped name.
      const first = yield* start({ DATA_DIR, ADMIN_TOKEN: "", DATABASE_ULR: "", HOST: "0.0.0.0" })
      const key = yield* firstKey(first)
      const [, curl = ""] = /^ {2}(curl .*)$/m.exec(first.stdout()) ?? []
      const pasted = execFileSync("sh", ["-c", `${curl} -si`], { encoding: "utf8" })
      assert.match(pasted, /^HTTP\/1.1 200 OK\r\n[^]*\r\n\r\n\[\]$/)
      assert.strictEqual(statSync(join(DATA_DIR, "pgdata")).mode & 0o777, 0o700, "no other user may read it")
      yield* until(() => first.stderr().includes("Issue API keys"))
      const documented = codeBlocks(readPage("docs/install.md")).find(({ code }) => code.startsWith("Listening on"))
      const expected = documented?.code.replaceAll("8080", String(portOf(first)))
        .replace("http://127.0.0.1:9090", first.management)
        .replace("/srv/petstore/data/admin-token", join(DATA_DIR, "admin-token"))
        .replace("npm run", `MANAGEMENT_PORT=${new URL(first.management).port} DATA_DIR='${DATA_DIR}' npm run`)
      assert.includeMembers(linesOf(first.stderr()).map(({ message }) => message), expected?.trim().split("\n") ?? [""])

      yield* assertNoStart({ DATA_DIR }, `Another process is using the data directory \\"${DATA_DIR}\\"`)
      const own = { DATA_DIR: yield* dataDirectory, PORT: `${portOf(first)}` }
      yield* assertNoStart(own, `PORT: port ${own.PORT} on 127.0.0.1 is already in use`)
      const created = yield* send(`${first.address}/v1/pets`, key, "POST", { name: "kept", categoryId: 1 })
      // The counts of the last second can be lost: this waits for the write that follows the request.
      const writes = Effect.map(metricsOf(first), (text) => /write_duration_seconds_count\S* (\d+)/.exec(text)?.[1])
      const before = yield* writes
      yield* send(`${first.address}/v1/pets`, key)
      yield* untilTrue(Effect.map(writes, (count) => count !== before))
      yield* stop(first, "SIGKILL")
      const second = yield* start({ DATA_DIR })
      const { headers, text } = yield* send(`${second.address}/v1/pets`, key)
      assert.strictEqual(text, `[${created.text}]`)
      assert.isAtMost(Number(/"day";r=(\d+)/.exec(headers.get("ratelimit") ?? "")?.[1]), 998)
      assert.strictEqual(second.stdout(), "")
      yield* until(() => second.stderr().includes("Issue API keys with the same ADMIN_TOKEN and: "))
      assert.strictEqual(yield* stop(second, "SIGINT"), 0)
    }))

  it.live("exits with 1 when the lock file of its database is removed, and loses no acknowledged pet", () =>
    Effect.gen(function*() {
      const DATA_DIR = yield* dataDirectory
      const first = yield* start({ DATA_DIR })
      const { key } = yield* issue(first)
      const load = yield* Load.run(first.address, key, 8)
      yield* until(() => Load.acknowledged(load.outcomes).length >= 20)
      unlinkSync(join(DATA_DIR, "lock"))
      const faultAt = performance.now()
      const second = yield* start({ DATA_DIR })
      const later = yield* Effect.replicateEffect(Load.request(second.address, key), 40, { concurrency: 8 })
      Load.assertStatuses(later, 201)
      assert.strictEqual(yield* Effect.promise(() => first.exit), 1)
      yield* load.stop
      // A create that was sent after the process ended has the status 0. Reads may succeed, because pets are cached.
      Load.assertStatuses(load.outcomes.filter(({ method, sentAt }) => method === "POST" && sentAt > faultAt), 503, 0)
      const fatal = first.stderr().split("\n").filter((line) => /"level":"FATAL"/i.test(line))
      assert.lengthOf(fatal, 1, first.stderr())
      assert.include(fatal[0], "Never delete or replace a file in it")
      yield* stop(second, "SIGKILL")
      yield* Load.assertStored([...load.outcomes, ...later], embeddedIn(DATA_DIR))
    }))

  const kills = Number(process.env.KILLS ?? 2)
  it.live("stores each acknowledged pet once, killed KILLS times under load", () =>
    Effect.gen(function*() {
      const DATA_DIR = yield* dataDirectory
      const killUnderLoad = Effect.gen(function*() {
        const service = yield* start({ DATA_DIR })
        const { key } = yield* issue(service)
        const load = yield* Load.run(service.address, key, 8)
        yield* until(() => Load.acknowledged(load.outcomes).length > 0)
        yield* Effect.sleep(randomInt(400))
        yield* stop(service, "SIGKILL")
        yield* load.stop
        return load.outcomes
      })
      const outcomes = yield* Effect.replicateEffect(Effect.scoped(killUnderLoad), kills)
      yield* Load.assertStored(outcomes.flat(), embeddedIn(DATA_DIR))
    }), 60_000 + kills * 20_000)

  it.live("logs each request once, without its secret, up to the last before a shutdown", () =>
    Effect.gen(function*() {
      const service = yield* start({ DATA_DIR: yield* dataDirectory })
      const key = yield* firstKey(service)
      yield* send(`${service.address}/v1/pets`, key, "POST", { name: "logged", categoryId: 1 })
      yield* send(`${service.address}/v1/pets/99?key=${key}`, key)
      yield* send(`${service.address}/${key}`, key)
      yield* send(`${service.address}/v1/pets`, `${key}x`)
      yield* send(`${service.management}/healthz`, "")
      yield* sendBytes(portOf(service), "no request\r\n\r\n")
      assert.strictEqual(yield* stop(service, "SIGTERM"), 0)
      const requests = linesOf(service.stderr()).filter(({ message }) => message === "request")
        .map(({ annotations }) => annotations)
      assert.deepStrictEqual(requests.map(({ method, path, route, status }) => [method, route, path, status]), [
        ["POST", "/v1/pets", undefined, 201],
        ["GET", "/v1/pets/:petId", undefined, 404],
        ["GET", "none", "/psk_…", 404],
        ["GET", "/v1/pets", undefined, 401],
        ["none", "none", undefined, 400]
      ])
      assert.match(requests[0].keyId, /^key_[0-9A-Za-z]{16}$/)
      assert.notInclude(service.stderr(), key.slice(4, 36))
    }))

  it.live("serves requests and exits while nothing reads its log, and counts dropped lines", () =>
    Effect.gen(function*() {
      const service = yield* start({ DATA_DIR: yield* dataDirectory })
      const { key } = yield* issue(service)
      service.process.stderr?.pause()
      assert.strictEqual((yield* Load.list([service], key, 32, 20_000)).get(200), 20_000)
      const [, dropped] = /^petstore_log_lines_dropped_total(?:\{.*\})? (\d+)$/m.exec(yield* metricsOf(service)) ?? []
      const signalledAt = performance.now()
      service.process.kill("SIGTERM")
      assert.deepStrictEqual(yield* Effect.promise(() => once(service.process, "exit")), [0, null])
      assert.isBelow(performance.now() - signalledAt, 3_000)
      // What the pipe holds is still read. The lines that waited in the memory of the process are lost.
      service.process.stderr?.resume()
      yield* Effect.promise(() => service.exit)
      assert.isAbove(Number(dropped), 0)
      const logged = service.stderr().split("\n").filter((line) => line.includes(`"message":"request"`))
      // The process holds 4 MiB of lines, whose length differs.
      const mostLost = 4 * 1024 * 1024 / Math.min(...logged.map(({ length }) => length))
      assert.isBelow(logged.length + Number(dropped) + mostLost / 2, 20_000)
      assert.isAtLeast(logged.length + Number(dropped) + mostLost, 20_000)
    }))

  it.live("logs one line for each fault of its settings before it creates a file, and exits with 1", () =>
    Effect.gen(function*() {
      const DATA_DIR = `${yield* temporaryDirectory}/data`
      const invalid = {
        PORT: "65536",
        DATABASE_URL: "mysql://none:secret@127.0.0.1:1/none",
        REDIS_URL: "rediss://:secret@localhost?ssl_ca_certs=/none/redis.crt",
        ADMIN_TOKEN: "adm_ secret",
        LOG_FORMATT: "json",
        LOG_LEVEL: "loud"
      }
      const names = Object.keys(invalid).map((name) => `${name}: `)
      assert.notInclude(yield* assertNoStart({ DATA_DIR, ...invalid }, ...names), "secret")
      assert.isFalse(existsSync(DATA_DIR))

      const own = { DATA_DIR: yield* dataDirectory }
      yield* assertNoStart(
        { DATA_DIR: `${DATA_DIR}/nowhere`, ADMIN_TOKEN: "" },
        `DATA_DIR: \\"${DATA_DIR}\\" does not exist. Create it`
      )
      yield* assertNoStart({ ...own, MANAGEMENT_HOST: "192.0.2.1" }, `MANAGEMENT_HOST: this machine has no address`)
      yield* assertNoStart({ ...own, HOST: "192.0.2.1" }, `HOST: this machine has no address \\"192.0.2.1\\"`)
    }))
})

describe.skipIf(process.env.TEST_DATABASE_URL === undefined)("Processes on PostgreSQL", () => {
  it.live("migrate an empty database once when they start together, and reject a newer schema", () =>
    Effect.gen(function*() {
      const DATABASE_URL = yield* temporaryDatabaseUrl
      const services = yield* Effect.replicateEffect(start({ DATABASE_URL }), 3, { concurrency: "unbounded" })
      for (const service of services) {
        assert.strictEqual((yield* send(`${service.address}/v1/pets`, "none")).status, 401)
        assert.strictEqual(yield* stop(service, "SIGTERM"), 0)
        assert.strictEqual(service.stdout(), "", "no key is printed")
      }
      const query = Postgres.queryOn(DATABASE_URL)
      const applied = yield* query((sql) => sql`SELECT migration_id AS id FROM petstore_migrations`)
      assert.deepStrictEqual(applied, Array.from({ length: newestVersion }, (_, index) => ({ id: index + 1 })))
      const logs = services.map(({ stderr }) => stderr()).join("")
      const logged = logs.match(/Migrating the database: \w+/g)?.map((text) => text.split(": ")[1])
      const names = readdirSync(join(root, "src/database/migrations")).map((file) => basename(file, ".ts")).toSorted()
      assert.deepStrictEqual(logged, names)
      yield* query((sql) =>
        sql`INSERT INTO petstore_migrations (migration_id, name) VALUES (${newestVersion + 1}, 'later')`
      )
      const text = `schema version ${newestVersion + 1}, but this service supports only versions up to ${newestVersion}`
      yield* assertNoStart({ DATABASE_URL }, text)
      // The tables exist, so the first migration fails once it is logged.
      yield* query((sql) => sql`DELETE FROM petstore_migrations`)
      assert.include(yield* assertNoStart({ DATABASE_URL }, "already exists"), "Migrating the database: 0001_baseline")
    }))
})

it.live.skipIf(!Postgres.isInstalled)(
  "A start names DATABASE_URL for a wrong role or database, or a server without TLS",
  () =>
    Effect.gen(function*() {
      const { url } = yield* Postgres.run()
      const unusable = "DATABASE_URL: the database cannot be used"
      for (const wrong of [url.replace("postgres@", "nobody@"), url.replace(/\w+$/, "none")]) {
        yield* assertNoStart({ DATABASE_URL: wrong }, unusable)
      }
      const withTls = yield* assertNoStart({ DATABASE_URL: `${url}?sslmode=require` }, unusable)
      assert.include(withTls, "add sslmode=disable to connect without it")
    }),
  120_000
)

const title = "A process waits until its database is reachable and writable, logs one line, and then serves requests"
it.live.skipIf(!Postgres.isInstalled)(title, () =>
  Effect.gen(function*() {
    const primary = yield* Postgres.run()
    const standby = yield* Postgres.run({}, primary.port)
    const proxy = yield* Proxy.run(standby.port)
    proxy.setFault("refusing")
    const url = standby.url.replace(`${standby.port}`, `${proxy.port}`)
    const starting = yield* Effect.forkChild(start({ DATABASE_URL: url }))
    yield* until(() => proxy.refused() > 0)
    proxy.setFault(undefined)
    // An attempt opens one connection. The third one shows that two attempts have found the standby in recovery.
    yield* until(() => proxy.forwarded() > 2)
    yield* standby.promote
    const { address, stderr } = yield* Fiber.join(starting)
    const [waiting = "", ...others] = stderr().match(/Waiting for the database[^"]*/g) ?? []
    assert.match(waiting, /^Waiting for the database: DATABASE_URL: the database cannot be used/)
    assert.isEmpty(others)
    assert.strictEqual((yield* send(`${address}/v1/pets`, "none")).status, 401)
  }))
