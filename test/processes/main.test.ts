/** Tests the service as a process: first and later starts, kills, the access log, and starts that fail. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { execFile } from "node:child_process"
import { once } from "node:events"
import { existsSync, statSync } from "node:fs"
import { connect, createServer } from "node:net"
import { join } from "node:path"
import { promisify } from "node:util"
import { codeBlocks, readPage } from "../support/Documents.ts"
import { dataDirectory, temporaryDirectory } from "../support/Harness.ts"
import { type Running, start, until } from "../support/Process.ts"

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

/** The messages in the log of a service, without the lines of requests. */
const messages = (service: Running): ReadonlyArray<string> =>
  service.stderr().trim().split("\n").map((line) => JSON.parse(line).message)

describe("The service on the embedded database", () => {
  it.live(
    "issues one key at the first start, and keeps acknowledged pets and counts after kill -9",
    () =>
      Effect.gen(function*() {
        const DATA_DIR = yield* temporaryDirectory
        const first = yield* start({ DATA_DIR, HOST: "0.0.0.0" })
        yield* until(() => first.stdout().includes("curl"))
        const [key = ""] = /psk_[0-9A-Za-z]{38}/.exec(first.stdout()) ?? []
        const [, command = ""] = /^ {2}(curl .*)$/m.exec(first.stdout()) ?? []
        const pasted = yield* Effect.promise(() => promisify(execFile)("sh", ["-c", `${command} -si`]))
        assert.include(pasted.stdout, "HTTP/1.1 200 OK")
        assert.isTrue(pasted.stdout.endsWith("\r\n\r\n[]"))
        assert.strictEqual(statSync(join(DATA_DIR, "pgdata")).mode & 0o777, 0o700, "no other user may read it")
        yield* until(() => first.stderr().includes("Issue API keys"))
        const documented = codeBlocks(readPage("docs/install.md")).find(({ code }) => code.startsWith("Listening on"))
        const expected = documented?.code.replaceAll("8080", new URL(first.address).port)
          .replace("http://127.0.0.1:9090", first.management)
          .replace("/srv/petstore/data/admin-token", join(DATA_DIR, "admin-token"))
        assert.includeMembers([...messages(first)], expected?.trim().split("\n") ?? ["documented lines"])

        const other = yield* Effect.flip(start({ DATA_DIR }))
        assert.strictEqual(other.code, 1)
        assert.include(other.stderr, `Another process uses the data directory \\"${DATA_DIR}\\"`)
        assert.lengthOf(other.stderr.trim().split("\n"), 1)

        // The counts of the last second can be lost.
        yield* Effect.sleep("1 second")
        const acknowledged: Array<string> = []
        const write = Effect.map(create(first, key, "kept"), ({ text }) => acknowledged.push(text))
        yield* Effect.all([
          Effect.all(Array.from({ length: 8 }, () => Effect.exit(write)), { concurrency: "unbounded" }),
          Effect.andThen(until(() => acknowledged.length > 0), stop(first, "SIGKILL"))
        ], { concurrency: "unbounded" })
        const second = yield* start({ DATA_DIR, ADMIN_TOKEN: "adm_test" })
        const { headers, text } = yield* call(second, key, "/v1/pets?limit=100")
        for (const pet of acknowledged) assert.lengthOf(text.split(pet), 2)
        assert.isAtMost(Number(headers.get("x-ratelimit-remaining")), 58)
        assert.strictEqual(second.stdout(), "")
        assert.strictEqual(yield* stop(second, "SIGINT"), 0)
      }),
    180_000
  )

  it.live("logs one line for each request, without the key", () =>
    Effect.gen(function*() {
      const service = yield* start({ DATA_DIR: yield* dataDirectory })
      yield* until(() => service.stdout().includes("curl"))
      const [key = ""] = /psk_[0-9A-Za-z]{38}/.exec(service.stdout()) ?? []
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
      assert.strictEqual(yield* stop(service, "SIGTERM"), 0)
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
        assert.match(request.requestId, /^[0-9a-f-]{36}$/)
      }
      assert.match(requests[0].keyId, /^key_[0-9A-Za-z]{16}$/)
      assert.strictEqual(requests[3].keyId, "none")
      assert.notInclude(service.stderr(), key.slice(4, 36))
    }), 120_000)

  it.live("reports invalid settings before it creates anything, and exits with 1", () =>
    Effect.gen(function*() {
      const DATA_DIR = `${yield* temporaryDirectory}/data`
      const invalid = {
        DATA_DIR,
        PORT: "65536",
        DATABASE_URL: "mysql://none:secret@127.0.0.1:1/none",
        REDIS_URL: "rediss://:secret@localhost?ssl_ca_certs=/none/redis.crt",
        ADMIN_TOKEN: "adm_ secret",
        LOG_LEVEL: "loud"
      }
      const { code, stderr } = yield* Effect.flip(start(invalid))
      assert.strictEqual(code, 1)
      assert.sameMembers(stderr.trim().split("\n").map((line) => line.split(":")[0]), [
        "PORT",
        "DATABASE_URL",
        "REDIS_URL",
        "ADMIN_TOKEN",
        "LOG_LEVEL"
      ])
      assert.include(
        stderr,
        "with a usable file in ssl_ca_certs, not /none/redis.crt (ENOENT: no such file or directory"
      )
      assert.notInclude(stderr, "secret")
      assert.isFalse(existsSync(DATA_DIR))
    }), 60_000)

  it.live("logs one line if it cannot start, and exits with 1", () =>
    Effect.gen(function*() {
      const DATA_DIR = yield* dataDirectory
      const server = yield* Effect.acquireRelease(
        Effect.promise(async () => {
          const listening = createServer().listen(0, "127.0.0.1")
          await once(listening, "listening")
          return listening
        }),
        (listening) => Effect.sync(() => listening.close())
      )
      const address = server.address()
      const taken = String(typeof address === "object" && address !== null ? address.port : 0)
      const faults = [
        [{ DATA_DIR: `${import.meta.filename}/nowhere` }, "main.test.ts/nowhere"],
        [{ DATA_DIR, HOST: "192.0.2.1" }, `HOST: this machine has no address \\"192.0.2.1\\"`],
        [{ DATA_DIR, PORT: taken }, `PORT: port ${taken} of 127.0.0.1 is in use`]
      ] as const
      for (const [env, names] of faults) {
        const { code, stderr } = yield* Effect.flip(start(env))
        assert.strictEqual(code, 1)
        // The other listener may have started already.
        const lines = stderr.trim().split("\n").filter((line) =>
          !/Listening on|Management on|Issue API keys/.test(line)
        )
        assert.lengthOf(lines, 1, stderr)
        assert.include(lines[0], names)
      }
    }), 180_000)
})
