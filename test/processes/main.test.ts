/** Tests the service as a process: starts, requests, stops and kills. */
import { PgClient } from "@effect/sql-pg"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { execFile } from "node:child_process"
import { once } from "node:events"
import { existsSync, readFileSync, statSync } from "node:fs"
import { connect, createServer, type Socket } from "node:net"
import { join } from "node:path"
import { promisify } from "node:util"
import { ApiKeys } from "../../src/api-keys/ApiKeys.ts"
import * as SqlApiKeys from "../../src/api-keys/SqlApiKeys.ts"
import { codeBlocks, readPage } from "../support/Documents.ts"
import { random, temporaryDatabaseUrl, temporaryDirectory } from "../support/Harness.ts"
import { type Running, start, until } from "../support/Process.ts"

/** A port of 127.0.0.1 that a server of the test uses. */
const takenPort = Effect.map(
  Effect.acquireRelease(
    Effect.promise(async () => {
      const server = createServer().listen(0, "127.0.0.1")
      await once(server, "listening")
      return server
    }),
    (server) => Effect.sync(() => server.close())
  ),
  (server) => {
    const address = server.address()
    return String(typeof address === "object" && address !== null ? address.port : 0)
  }
)

const keyIn = (text: string): string => /psk_[0-9A-Za-z]{38}/.exec(text)?.[0] ?? ""

const firstKey = (service: Running) =>
  Effect.map(until(() => service.stdout().includes("curl")), () => keyIn(service.stdout()))

const call = (service: Running, key: string, path: string, options: RequestInit = {}) =>
  Effect.promise(async () => {
    const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" }
    const response = await fetch(service.address + path, { ...options, headers })
    return { status: response.status, headers: response.headers, text: await response.text() }
  })

const create = (service: Running, key: string, name: string) =>
  call(service, key, "/v1/pets", { method: "POST", body: JSON.stringify({ name, categoryId: 1 }) })

const stop = (service: Running, signal: NodeJS.Signals) =>
  Effect.promise(() => {
    service.process.kill(signal)
    return service.exit
  })

describe("The service on the embedded database", () => {
  it.live("prints one Free key with a working curl line at the first start, and none at the next", () =>
    Effect.gen(function*() {
      const DATA_DIR = yield* temporaryDirectory
      const first = yield* start({ DATA_DIR })
      const key = yield* firstKey(first)
      const [, command = ""] = /^ {2}(curl .*)$/m.exec(first.stdout()) ?? []
      const pasted = yield* Effect.promise(() => promisify(execFile)("sh", ["-c", `${command} -si`]))
      assert.include(pasted.stdout, "HTTP/1.1 200 OK")
      assert.include(pasted.stdout.toLowerCase(), "x-ratelimit-limit: 60")
      assert.isTrue(pasted.stdout.endsWith("\r\n\r\n[]"))
      yield* stop(first, "SIGTERM")

      assert.strictEqual(statSync(join(DATA_DIR, "pgdata")).mode & 0o777, 0o700, "no other user may read it")

      const second = yield* start({ DATA_DIR })
      assert.strictEqual((yield* call(second, key, "/v1/pets")).status, 200)
      assert.strictEqual(second.stdout(), "")
    }))

  it.live(
    "logs at each start the lines of docs/install.md: the addresses, the admin token, and the command for keys",
    () =>
      Effect.gen(function*() {
        const DATA_DIR = yield* temporaryDirectory
        const documented = codeBlocks(readPage("docs/install.md")).find(({ code }) => code.startsWith("Listening on"))
        const starts = [
          { env: {}, place: join(DATA_DIR, "admin-token") },
          { env: { ADMIN_TOKEN: "adm_test" }, place: "ADMIN_TOKEN" }
        ]
        for (const { env, place } of starts) {
          const service = yield* start({ DATA_DIR, HOST: "0.0.0.0", ...env })
          yield* until(() => service.stderr().includes("Issue API keys"))
          const messages = service.stderr().trim().split("\n").map((line) => JSON.parse(line).message)
          const { port } = new URL(service.address)
          const expected = documented?.code.replaceAll("8080", port)
            .replace("http://127.0.0.1:9090", service.management)
            .replace("/srv/petstore/data/admin-token", place)
          assert.includeMembers(messages, expected?.trim().split("\n") ?? ["documented lines"])
          assert.strictEqual((yield* Effect.promise(() => fetch(`http://localhost:${port}/docs`))).status, 200)
          yield* stop(service, "SIGTERM")
        }
      }),
    120_000
  )

  it.live("exits with 0 on SIGTERM and SIGINT after it has responded to the requests in flight", () =>
    Effect.gen(function*() {
      const DATA_DIR = yield* temporaryDirectory
      const first = yield* start({ DATA_DIR })
      const key = yield* firstKey(first)
      const body = `{"name":"last","categoryId":1}`
      const socket = connect(Number(new URL(first.address).port), "127.0.0.1")
      let received = ""
      socket.on("data", (chunk: Buffer) => {
        received += chunk.toString()
      })
      socket.write(
        `POST /v1/pets HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${key}\r\n` +
          `Content-Type: application/json\r\nContent-Length: ${body.length}\r\nExpect: 100-continue\r\n\r\n`
      )
      yield* until(() => received.includes("100 Continue"))
      first.process.kill("SIGTERM")
      yield* Effect.sleep("200 millis")
      socket.write(body)
      yield* Effect.promise(() => once(socket, "close"))
      assert.include(received, "HTTP/1.1 201 Created")
      assert.strictEqual(yield* Effect.promise(() => first.exit), 0)

      const second = yield* start({ DATA_DIR })
      assert.include((yield* call(second, key, "/v1/pets")).text, `"name":"last"`)
      assert.strictEqual(yield* stop(second, "SIGINT"), 0)
    }))

  it.live("survives clients that disconnect in the middle of their responses", () =>
    Effect.gen(function*() {
      const service = yield* start({ DATA_DIR: yield* temporaryDirectory, LOG_LEVEL: "info" })
      const key = yield* firstKey(service)
      const port = Number(new URL(service.address).port)
      const head = `HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${key}\r\n`
      const body = `{"name":"disconnected","categoryId":1}`
      const post =
        `POST /v1/pets ${head}Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`
      // The responses to the last two wait for the response to the first.
      const reads = [`GET /v1/pets?cursor=MQ`, "HEAD /v1/pets/999", "GET /docs"].map((target) =>
        `${target} ${head}\r\n`
      )
        .join("")
      for (let round = 0; round < 20; round++) {
        const sockets = Array.from({ length: 50 }, (_, index) => {
          const socket = connect(port, "127.0.0.1").on("error", () => {})
          socket.write(index % 2 === 0 ? post : reads)
          return socket
        })
        for (const socket of sockets) {
          yield* Effect.promise(() => new Promise((resolve) => setImmediate(resolve)))
          socket.resetAndDestroy()
        }
      }
      assert.strictEqual((yield* call(service, key, "/openapi.json")).status, 200)
      assert.strictEqual(yield* stop(service, "SIGTERM"), 0)
    }))

  it.live(
    "disconnects clients that send requests and never read, and frees their memory",
    () =>
      Effect.gen(function*() {
        const ADMIN_TOKEN = "adm_test"
        const service = yield* start({ DATA_DIR: yield* temporaryDirectory, ADMIN_TOKEN })
        const issued = yield* Effect.promise(() =>
          fetch(`${service.management}/admin/keys`, {
            method: "POST",
            headers: { authorization: `Bearer ${ADMIN_TOKEN}`, "content-type": "application/json" },
            body: JSON.stringify({ name: "flood", plan: "enterprise", limits: { perMinute: 1e6, perDay: 1e6 } })
          })
        )
        const key = keyIn(yield* Effect.promise(() => issued.text()))
        const get = (path: string, header = "") =>
          `GET ${path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${key}\r\n${header}\r\n`
        const flood = (bytes: string, callers: number, isCut = true) =>
          Effect.gen(function*() {
            const readers = Array.from({ length: callers }, () => {
              const reader = { closed: false }
              const socket = connect(Number(new URL(service.address).port), "127.0.0.1")
              socket.on("error", () => {}).on("close", () => {
                reader.closed = true
              }).pause().write(bytes)
              return { reader, socket }
            })
            yield* Effect.sleep("2 seconds")
            for (const { socket } of readers) {
              if (isCut) socket.resume()
              else socket.destroy()
            }
            yield* until(() => readers.every(({ reader }) => reader.closed))
          })
        yield* flood(get("/v1/pets").repeat(10_000), 20)
        yield* flood(get("/v1/pets", "Expect: 100-continue\r\n").repeat(10_000), 20)

        const megabytes = () =>
          Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${service.process.pid}/status`, "utf8"))?.[1]) / 1024
        // Later clients reuse the memory of the first ones. Growth would mean that it is never freed.
        const initial = megabytes()
        yield* Effect.replicateEffect(flood(get("/v1/pets").repeat(10_000), 20), 4, { discard: true })
        assert.isBelow(megabytes() - initial, 400)

        // A page has 1.8 MB, and the clients request 1.6 GB. A page is rendered in its turn, so no client is disconnected.
        yield* Effect.forEach(Array(30).keys(), () => create(service, key, "x".repeat(60_000)))
        for (const header of ["", "Expect: 100-continue\r\n"]) {
          const before = megabytes()
          yield* flood(get("/v1/pets", header).repeat(450), 2, false)
          assert.isBelow(megabytes() - before, 400)
        }
        assert.strictEqual((yield* call(service, key, "/v1/pets")).status, 200)
      }),
    60_000
  )

  it.live("responds to 500 pipelined requests three times on one connection", () =>
    Effect.gen(function*() {
      const service = yield* start({ DATA_DIR: yield* temporaryDirectory })
      const key = yield* firstKey(service)
      let received = ""
      const socket = connect(Number(new URL(service.address).port), "127.0.0.1").setEncoding("latin1")
      socket.on("data", (text: string) => {
        received += text
      })
      const burst = `GET /v1/pets/1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${key}\r\n\r\n`.repeat(500)
      for (const total of [500, 1_000, 1_500]) {
        socket.write(burst)
        yield* until(() => received.split("\"code\"").length === total + 1)
      }
      socket.destroy()
    }))

  it.live("exits with 1 if another process uses the data directory, and does not disturb it", () =>
    Effect.gen(function*() {
      const DATA_DIR = yield* temporaryDirectory
      const owner = yield* start({ DATA_DIR })
      const key = yield* firstKey(owner)
      yield* create(owner, key, "before")
      const { code, stderr } = yield* Effect.flip(start({ DATA_DIR }))
      assert.strictEqual(code, 1)
      assert.include(stderr, `Another process uses the data directory \\"${DATA_DIR}\\"`)
      assert.lengthOf(stderr.trim().split("\n"), 1)
      yield* create(owner, key, "after")
      assert.deepStrictEqual(
        JSON.parse((yield* call(owner, key, "/v1/pets")).text).map((pet: { name: string }) => pet.name),
        ["before", "after"]
      )
    }))

  it.live("starts on the data directory of a killed process, with every acknowledged pet", () =>
    Effect.gen(function*() {
      const DATA_DIR = yield* temporaryDirectory
      let key = ""
      const acknowledged: Array<string> = []
      const statuses = new Set<number>()
      for (let round = 0; round < 3; round++) {
        const service = yield* start({ DATA_DIR })
        key = key === "" ? yield* firstKey(service) : key
        const write = (i: number) =>
          create(service, key, `${round}-${i}`).pipe(Effect.map(({ status, text }) => {
            statuses.add(status)
            acknowledged.push(text)
          }))
        // The process is killed once one create is acknowledged, with others in flight.
        const writes = Array.from({ length: 8 }, (_, i) => Effect.exit(write(i)))
        yield* Effect.all([
          Effect.all(writes, { concurrency: "unbounded" }),
          Effect.andThen(until(() => acknowledged.length > round), stop(service, "SIGKILL"))
        ], { concurrency: "unbounded" })
      }
      const service = yield* start({ DATA_DIR })
      const { text } = yield* call(service, key, "/v1/pets?limit=100")
      assert.isAtLeast(acknowledged.length, 3)
      assert.deepStrictEqual([...statuses], [201])
      for (const pet of acknowledged) assert.lengthOf(text.split(pet), 2)
    }))

  it.live("restores the usage of a key that was counted a second before kill -9", () =>
    Effect.gen(function*() {
      const DATA_DIR = yield* temporaryDirectory
      const first = yield* start({ DATA_DIR })
      const key = yield* firstKey(first)
      for (let i = 0; i < 10; i++) yield* call(first, key, "/v1/pets")
      yield* Effect.sleep("1 second")
      yield* stop(first, "SIGKILL")
      const second = yield* start({ DATA_DIR })
      const { headers } = yield* call(second, key, "/v1/pets")
      assert.include(headers.get("ratelimit"), `"minute";r=49;`)
      assert.include(headers.get("ratelimit"), `"day";r=989;`)
    }))

  it.live("logs one line for each request, without the key", () =>
    Effect.gen(function*() {
      const service = yield* start({ DATA_DIR: yield* temporaryDirectory })
      const key = yield* firstKey(service)
      yield* create(service, key, "logged")
      yield* call(service, key, `/v1/pets/99?key=${key}`)
      yield* call(service, key, `/${key}`)
      yield* call(service, `${key}x`, "/v1/pets")
      yield* Effect.promise(() =>
        new Promise((resolve) => {
          const socket = connect(Number(new URL(service.address).port), "127.0.0.1")
          socket.on("close", resolve).resume().write("no request\r\n\r\n")
        })
      )
      yield* stop(service, "SIGTERM")
      const lines = service.stderr().trim().split("\n").map((line) => JSON.parse(line))
      const requests = lines.filter(({ message }) => message === "request").map(({ annotations }) => annotations)
      assert.deepStrictEqual(
        requests.map(({ method, path, route, status }) => [method, route, path, status]),
        [
          ["POST", "/v1/pets", undefined, 201],
          ["GET", "/v1/pets/:petId", undefined, 404],
          ["GET", "none", "/psk_…", 404],
          ["GET", "/v1/pets", undefined, 401],
          ["none", "none", undefined, 400]
        ]
      )
      for (const { path: _, ...request } of requests) {
        assert.hasAllKeys(request, ["method", "route", "status", "durationMs", "keyId", "requestId"])
        assert.isAbove(request.durationMs, 0)
        assert.match(request.requestId, /^[0-9a-f-]{36}$/)
      }
      assert.match(requests[0].keyId, /^key_[0-9A-Za-z]{16}$/)
      assert.strictEqual(requests[3].keyId, "none")
      assert.notInclude(service.stderr(), key.slice(4, 36))
    }))

  it.live("logs one line for each request with LOG_FORMAT=pretty", () =>
    Effect.gen(function*() {
      const service = yield* start({ DATA_DIR: yield* temporaryDirectory, LOG_FORMAT: "pretty" })
      const key = yield* firstKey(service)
      yield* create(service, key, "logged")
      yield* call(service, key, "/nowhere")
      yield* stop(service, "SIGTERM")
      const requests = service.stderr().trim().split("\n").filter((line) => line.includes(" request "))
      assert.lengthOf(requests, 2)
      assert.match(requests[0] ?? "", /^[\d:.]+Z INFO  request method=POST route=\/v1\/pets status=201 durationMs=/)
      assert.match(
        requests[1] ?? "",
        / request method=GET route=none path=\/nowhere status=404 .* requestId=[\w-]{36}$/
      )
    }), 60_000)

  it.live("reports an invalid setting before it creates anything, and exits with 1", () =>
    Effect.gen(function*() {
      const DATA_DIR = `${yield* temporaryDirectory}/data`
      const invalid = {
        PORT: ["http", "65536"],
        MANAGEMENT_PORT: ["1.5"],
        MANAGEMENT_ALLOWED_HOSTS: ["http://petstore"],
        ADMIN_TOKEN: ["adm_ secret"],
        DATABASE_URL: ["mysql://none:secret@127.0.0.1:1/none", "secret"],
        REDIS_URL: ["http://secret@127.0.0.1"],
        DRAIN_SECONDS: ["99"],
        CORS_ORIGINS: ["nowhere"],
        TRUSTED_PROXIES: ["nowhere"],
        LOG_LEVEL: ["loud"]
      }
      const cases = Object.entries(invalid).flatMap(([name, texts]) => texts.map((text) => ({ name, text })))
      yield* Effect.forEach(
        cases,
        Effect.fnUntraced(function*({ name, text }) {
          const { code, stderr } = yield* Effect.flip(start({ DATA_DIR, [name]: text }))
          assert.strictEqual(code, 1)
          assert.match(stderr, new RegExp(`^.*${name}: .*\n$`))
          assert.notInclude(stderr, "secret")
          assert.isFalse(existsSync(DATA_DIR), name)
        }),
        { concurrency: 4 }
      )
      const { stderr } = yield* Effect.flip(start({ DATA_DIR, PORT: "http", LOG_FORMAT: "text", REDIS_URL: "secret" }))
      assert.deepStrictEqual(stderr.split("\n").map((line) => line.split(":")[0]), [
        "PORT",
        "REDIS_URL",
        "LOG_FORMAT",
        ""
      ])
    }), 60_000)

  it.live("logs one line if it cannot start, and exits with 1", () =>
    Effect.gen(function*() {
      const DATA_DIR = yield* temporaryDirectory
      const taken = yield* takenPort
      const inUse = `port ${taken} of 127.0.0.1 is in use`
      const invalid = [
        [{ DATA_DIR: `${import.meta.filename}/nowhere` }, "main.test.ts/nowhere"],
        [{ DATA_DIR, HOST: "192.0.2.1" }, `HOST: this machine has no address \\"192.0.2.1\\"`],
        [{ DATA_DIR, PORT: taken }, `PORT: ${inUse}`],
        [{ DATA_DIR, MANAGEMENT_PORT: taken }, `MANAGEMENT_PORT: ${inUse}`]
      ] as const
      for (const [env, names] of invalid) {
        const { code, stderr } = yield* Effect.flip(start(env))
        assert.strictEqual(code, 1)
        // The other listener may have started already.
        const lines = stderr.trim().split("\n").filter((line) =>
          !/Listening on|Management on|Issue API keys/.test(line)
        )
        assert.lengthOf(lines, 1, stderr)
        assert.include(lines[0], names)
      }
    }), 120_000)
})

describe.skipIf(process.env.TEST_DATABASE_URL === undefined)("The service on PostgreSQL", () => {
  it.live("migrates nothing when its data directory is unusable", () =>
    Effect.gen(function*() {
      const DATABASE_URL = yield* temporaryDatabaseUrl
      const { code } = yield* Effect.flip(start({ DATABASE_URL, DATA_DIR: `${import.meta.filename}/nowhere` }))
      assert.strictEqual(code, 1)
      const tables = yield* Effect.flatMap(SqlClient.SqlClient, (sql) =>
        sql`SELECT FROM pg_tables WHERE schemaname = 'public'`).pipe(
          Effect.provide(PgClient.layer({ url: Redacted.make(DATABASE_URL) }))
        )
      assert.lengthOf(tables, 0)
    }))

  it.live("starts three times at once on an empty database, and prints no key", () =>
    Effect.gen(function*() {
      const DATABASE_URL = yield* temporaryDatabaseUrl
      const services = yield* Effect.all([start({ DATABASE_URL }), start({ DATABASE_URL }), start({ DATABASE_URL })], {
        concurrency: "unbounded"
      })
      for (const service of services) {
        assert.strictEqual((yield* call(service, "none", "/v1/pets")).status, 401)
        assert.strictEqual(service.stdout(), "")
        assert.strictEqual(yield* stop(service, "SIGTERM"), 0)
      }
    }))

  it.live("returns 503 with Retry-After during an outage of the database, and 200 after it", () =>
    Effect.gen(function*() {
      const url = new URL(yield* temporaryDatabaseUrl)
      const proxy = yield* openProxy(Number(url.port), url.hostname)
      url.host = `127.0.0.1:${proxy.port}`
      const service = yield* start({ DATABASE_URL: url.href })
      const { key } = yield* Effect.flatMap(ApiKeys, (keys) => keys.issue({ name: "test", plan: "free" })).pipe(
        Effect.provide(
          Layer.provide(SqlApiKeys.layer, Layer.merge(PgClient.layer({ url: Redacted.make(url.href) }), random))
        )
      )
      const list = call(service, Redacted.value(key), "/v1/pets")
      assert.strictEqual((yield* list).status, 200)
      proxy.cut()
      for (let i = 0; i < 3; i++) {
        const { headers, status, text } = yield* list
        assert.strictEqual(status, 503)
        assert.strictEqual(headers.get("retry-after"), "1")
        assert.strictEqual(JSON.parse(text).code, "service_unavailable")
        assert.notInclude(text, "Pg")
      }
      yield* proxy.restore
      assert.strictEqual((yield* list).status, 200)
      assert.notInclude(service.stderr(), Redacted.value(key).slice(4, 36))
    }))
})

/** Starts a proxy in front of a server. The test can cut and restore the connection. */
const openProxy = (targetPort: number, targetHost: string) =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      const sockets = new Set<Socket>()
      const server = createServer((client) => {
        const upstream = connect(targetPort, targetHost)
        client.pipe(upstream)
        upstream.pipe(client)
        for (const socket of [client, upstream]) {
          sockets.add(socket)
          socket.on("error", () => socket.destroy())
          socket.on("close", () => sockets.delete(socket))
        }
      })
      const listen = (port: number) => once(server.listen(port, "127.0.0.1"), "listening")
      await listen(0)
      const address = server.address()
      const port = typeof address === "object" && address !== null ? address.port : 0
      return {
        port,
        cut: () => {
          server.close()
          for (const socket of sockets) socket.destroy()
        },
        restore: Effect.promise(() => listen(port))
      }
    }),
    ({ cut }) => Effect.sync(cut)
  )
