import { assert, describe, it, layer } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import * as Contender from "../../bench/Contender.ts"
import * as Workload from "../../bench/Workload.ts"
import { run } from "../support/NpmPrograms.ts"
import { send, until } from "../support/Process.ts"
import { freePort, temporaryDirectory } from "../support/Temporary.ts"

/** The service on a database of 95 pets with ids up to 100, and a key without limits. */
const startPetstore = Effect.gen(function*() {
  const { key, url } = yield* Workload.database(100)
  const port = String(yield* freePort)
  const service = yield* Contender.start("Petstore", { DATABASE_URL: url, MANAGEMENT_PORT: port })
  return { service, databaseUrl: url, management: `http://127.0.0.1:${port}`, key }
})

const Petstore = Context.Service<Effect.Success<typeof startPetstore>>("test/processes/Petstore")

type Row = readonly [status: number, request: string, body?: object, isIdempotent?: true]

const pet = JSON.parse(Workload.newPet)
const after50 = `cursor=${Buffer.from("50").toString("base64url")}`

/** Requests, in order, with the status of every server's response. The idempotent ones have the same key. */
const rows: Readonly<Record<string, Row>> = {
  "a first page with a gap": [200, "GET /v1/pets"],
  "a page after a cursor": [200, `GET /v1/pets?limit=7&${after50}`],
  "a page of all pets": [200, "GET /v1/pets?limit=100"],
  "a limit over 100": [400, "GET /v1/pets?limit=101"],
  "a pet": [200, "GET /v1/pets/1"],
  "a pet in a gap": [404, "GET /v1/pets/7"],
  "a create": [201, "POST /v1/pets", pet],
  "an idempotent create": [201, "POST /v1/pets", pet, true],
  "its replay": [201, "POST /v1/pets", pet, true],
  "the same idempotency key with another pet": [422, "POST /v1/pets", { ...pet, name: "Max" }, true],
  "a create without a category": [400, "POST /v1/pets", { name: "Rex" }],
  "a create with an unknown status": [400, "POST /v1/pets", { ...pet, status: "lost" }]
}

/** Sends a request. Returns what all contenders have in common in the response, and in the line of the log. */
const exchange = Effect.fnUntraced(function*(server: Contender.Contender, key: string, row: Row, idempotencyKey = "") {
  const [{ address, latestOutput }, [, request, body, isIdempotent]] = [server, row]
  const [method = "", path = ""] = request.split(" ")
  const own = isIdempotent === undefined ? {} : { "idempotency-key": idempotencyKey }
  const { body: value, headers, status, text } = yield* send(address + path, key, method, body, own)
  const requestId = headers.get("x-request-id")
  const line = () => latestOutput().split("\n").find((each) => each.includes(`"requestId":"${requestId}"`)) ?? ""
  const fields = () => line().match(/"(?:message|method|route|status|keyId)":[^,}]*/g)?.toSorted()
  return {
    status,
    // Each server has its own messages, and each create its own id.
    text: status < 400 ? text.replace(method === "POST" ? /"id":\d+,/ : "", "") : value.code,
    type: headers.get("content-type")?.replace(/; ?charset=utf-8$/i, ""),
    hasLocation: headers.get("location") === `/v1/pets/${value.id}`,
    isReplay: headers.get("idempotent-replayed"),
    // The service repeats fewer parameters in the link, so only the cursor is compared.
    next: new URL(/<(.*)>/.exec(headers.get("link") ?? "")?.[1] ?? "", address).searchParams.get("cursor"),
    // The peers do not limit addresses.
    limit: status === 401 ? undefined : headers.get("x-ratelimit-limit"),
    hasRetryAfter: headers.has("retry-after"),
    logged: Effect.map(until(() => line() !== ""), fields)
  }
})

describe.skipIf(process.env.TEST_DATABASE_URL === undefined)("The servers that the benchmark compares", () => {
  layer(Layer.effect(Petstore, startPetstore), { excludeTestServices: true })((it) => {
    for (const peer of Contender.peers) {
      it.effect(`${peer} sends the service's responses, counts both windows and logs requests`, (context) =>
        Effect.gen(function*() {
          const { databaseUrl, key, management, service } = yield* Petstore
          const other = yield* Contender.start(peer, { DATABASE_URL: databaseUrl }).pipe(
            Effect.catchTag("Unavailable", ({ message }) => Effect.sync((): never => context.skip(message)))
          )
          const compare = Effect.fnUntraced(function*(title: string, key: string, row: Row) {
            const { logged: expectedLine, ...expected } = yield* exchange(service, key, row, `like-${peer}`)
            const { logged, ...response } = yield* exchange(other, key, row, peer)
            assert.strictEqual(expected.status, row[0], title)
            assert.deepStrictEqual(response, expected, title)
            // The peers log a request that its key does not allow before they know the route.
            if (![401, 429].includes(row[0])) assert.deepStrictEqual(yield* logged, yield* expectedLine, title)
          })
          for (const [title, row] of Object.entries(rows)) yield* compare(title, key, row)
          yield* compare("an unknown key", "psk_unknown", [401, "GET /v1/pets/1"])
          for (const perDay of [1_000, 2]) {
            const options = { name: "a", plan: "enterprise", limits: { perMinute: 2, perDay } }
            const limited = yield* Workload.issueKey(management, options)
            for (const status of [200, 200, 429]) yield* compare(`${perDay} a day`, limited, [status, "GET /v1/pets/1"])
          }
        }))
    }

    it.effect("include a baseline that repeats the service's responses byte for byte", () =>
      Effect.gen(function*() {
        const { key, service } = yield* Petstore
        const floor = yield* Contender.start("node:http", { SERVICE: service.address, KEY: key })
        for (const request of ["GET /v1/pets", "GET /v1/pets/1"]) {
          const { logged: _, ...expected } = yield* exchange(service, key, [200, request])
          const { logged: __, ...response } = yield* exchange(floor, key, [200, request])
          assert.deepStrictEqual(response, expected)
        }
        assert.strictEqual((yield* send(`${floor.address}/v1/pets`, key, "POST", {})).status, 201)
      }))
  })

  it.live("bench:compare starts both trees and the control anew in each round", () =>
    Effect.gen(function*() {
      const directory = yield* temporaryDirectory
      // In place of wrk, so that a load takes no time. It notes the addresses that it should load.
      const wrk = `#!/bin/sh\necho "$6" >> ${directory}/addresses\n` +
        `echo '{"requestsPerSecond":1,"p99":1,"requests":1,"failed":0}'\n`
      writeFileSync(join(directory, "wrk"), wrk, { mode: 0o755 })
      const BENCH = { BENCH_ROUNDS: "2", BENCH_PETS: "100", BENCH_KEYS: "1", BENCH_OPERATIONS: "list" }
      const env = { ...BENCH, PATH: `${directory}:${process.env.PATH}` }
      const stdout = yield* run(Contender.repository, process.execPath, ["bench/compare.ts", "."], env)
      for (const side of ["this tree", "control", "."]) assert.include(stdout, `\n| ${side} | 1 | 1.0 |`)
      const addresses = readFileSync(join(directory, "addresses"), "utf8").trim().split("\n")
      assert.strictEqual(addresses.length, 12, "each process is loaded to warm it, and then to measure it")
      assert.strictEqual(new Set(addresses).size, 6, stdout)
    }), 60_000)
})
