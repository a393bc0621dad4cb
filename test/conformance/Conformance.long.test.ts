/**
 * Tests the running service against its OpenAPI document, in the phases of Schemathesis: examples, boundaries, random
 * and stateful.
 *
 * `CONFORMANCE_REQUESTS` sets the minimum number of requests, `CONFORMANCE_SEED` the seed of their random values.
 */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import * as fc from "fast-check"
import { type ChildProcess, spawn } from "node:child_process"
import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { dataDirectory, temporaryDatabaseUrl, temporaryDirectory } from "../support/Harness.ts"
import * as PgBouncer from "../support/PgBouncer.ts"
import { start } from "../support/Process.ts"
import * as Redis from "../support/Redis.ts"
import { checksOf, curl } from "./Checks.ts"
import { type Json, type Request, requestsOf } from "./Requests.ts"

const requests = Number(process.env.CONFORMANCE_REQUESTS ?? 1_500)
const seed = Number(process.env.CONFORMANCE_SEED ?? Math.trunc(Math.random() * 2 ** 31))
/** The number of concurrent requests in one run of the random phase. */
const concurrency = 10

const ADMIN_TOKEN = "adm_test"

const deployments = [
  {
    name: "the embedded database",
    skip: false,
    env: Effect.map(dataDirectory, (DATA_DIR) => ({ DATA_DIR }))
  },
  {
    name: "PostgreSQL and Redis",
    skip: process.env.TEST_DATABASE_URL === undefined || Redis.missing !== undefined,
    env: Effect.gen(function*() {
      const redis = yield* Redis.run
      yield* redis.start
      return { DATABASE_URL: yield* temporaryDatabaseUrl, REDIS_URL: redis.url, DATA_DIR: yield* temporaryDirectory }
    })
  },
  ...PgBouncer.modes.map((mode) => ({
    name: `PostgreSQL behind PgBouncer in ${mode} mode`,
    skip: process.env.TEST_DATABASE_URL === undefined || PgBouncer.missing !== undefined,
    env: Effect.gen(function*() {
      const { url } = yield* PgBouncer.run(yield* temporaryDatabaseUrl, mode)
      return { DATABASE_URL: url, DATA_DIR: yield* temporaryDirectory }
    })
  }))
]

/** Starts the service, issues a key with very large limits, and reads the OpenAPI document of the service. */
const setup = Effect.fnUntraced(function*(env: Readonly<Record<string, string>>) {
  const { address, management } = yield* start({ ...env, ADMIN_TOKEN })
  return yield* Effect.promise(async () => {
    const limits = { perMinute: 900_000_000, perDay: 1_000_000_000 }
    const issued = await fetch(`${management}/admin/keys`, {
      method: "POST",
      headers: { "authorization": `Bearer ${ADMIN_TOKEN}`, "content-type": "application/json" },
      body: JSON.stringify({ name: "conformance", plan: "enterprise", limits })
    })
    const { key } = await issued.json() as Json
    const document = await (await fetch(`${address}/openapi.json`)).json() as Json
    const generated = requestsOf(document)
    const check = checksOf(document, generated.operations)
    let sent = 0
    const send = async (request: Request) => {
      sent++
      const response = await fetch(address + request.target, {
        method: request.method,
        headers: { ...request.headers, authorization: `Bearer ${key}` },
        ...request.body !== undefined && { body: request.body }
      })
      const received = { status: response.status, headers: response.headers, text: await response.text() }
      try {
        check(request, received)
      } catch (error) {
        throw new Error(
          `${error instanceof Error ? error.message : String(error)}\n${request.wrong ?? "valid"}\n` +
            `${curl(address, request)}\nreceived ${received.status} ${received.text}\nCONFORMANCE_SEED=${seed}`,
          { cause: error }
        )
      }
      return received
    }
    return { ...generated, address, key: String(key), document, send, sent: () => sent }
  })
})

for (const deployment of deployments) {
  describe.skipIf(deployment.skip)(`The service on ${deployment.name}`, () => {
    it.live(`conforms to its OpenAPI document in ${requests} requests`, () =>
      Effect.gen(function*() {
        const { address, boundaries, invalid, operations, send, sent, valid } = yield* setup(yield* deployment.env)
        yield* Effect.promise(async () => {
          // Examples: the simplest request of each operation that needs no body.
          const get = { method: "GET", headers: {}, body: undefined, wrong: undefined }
          await send({ ...get, operationId: "listPets", target: "/v1/pets" })
          await send({ ...get, operationId: "getPet", target: "/v1/pets/1" })
          assert.sameMembers(operations.map(({ operationId }) => operationId), ["listPets", "createPet", "getPet"])

          // Boundaries: one request for each possible error.
          assert.isAbove(boundaries.length, 60)
          for (const request of boundaries) await send(request)

          // Random: valid and invalid requests, `concurrency` of them at a time.
          const random = fc.asyncProperty(
            fc.array(fc.oneof(valid, invalid), { minLength: concurrency, maxLength: concurrency }),
            async (batch) => {
              await Promise.all(batch.map(send))
            }
          )
          const numRuns = Math.ceil(requests * 0.7 / concurrency)
          await fc.assert(random, { seed, numRuns })

          // Stateful: a created pet is at its Location, and exactly once in the pages of the list that Link connects.
          const creation = valid.filter(({ operationId, headers }) =>
            operationId === "createPet" && headers["Idempotency-Key"] === undefined
          )
          const stateful = fc.asyncProperty(fc.array(creation, { minLength: 1, maxLength: 5 }), async (creations) => {
            const replay = `${creations.map((request) => curl(address, request)).join("\n")}\nCONFORMANCE_SEED=${seed}`
            const created = []
            for (const request of creations) {
              const { headers, text } = await send(request)
              const { id } = /"id":(?<id>\d+)/.exec(text)?.groups ?? {}
              assert.strictEqual(headers.get("location"), `/v1/pets/${id}`, replay)
              const found = await send({ ...get, operationId: "getPet", target: `/v1/pets/${id}` })
              assert.strictEqual(found.text, text, replay)
              created.push({ id: Number(id), text })
            }
            const first = Math.min(...created.map(({ id }) => id))
            let target: string | undefined = `/v1/pets?limit=3&cursor=${
              Buffer.from(String(first - 1)).toString("base64url")
            }`
            let listed = ""
            while (target !== undefined) {
              const page = await send({ ...get, operationId: "listPets", target })
              listed += page.text.slice(1, -1) + ","
              target = /<(.+)>; rel="next"/.exec(page.headers.get("link") ?? "")?.[1]
            }
            for (const { text } of created) assert.strictEqual(listed.split(text).length, 2, replay)
          })
          for (let index = 0; sent() < requests; index++) await fc.assert(stateful, { seed: seed + index, numRuns: 5 })
        })
      }), 900_000)
  })
}

/** Starts Prism, a public validating proxy, between the test client and the service at `upstream`. */
const startPrism = Effect.fnUntraced(function*(document: Json, upstream: string) {
  const file = join(yield* temporaryDirectory, "openapi.json")
  writeFileSync(file, JSON.stringify(document))
  const command = ["proxy", file, upstream, "--port", "0", "--host", "127.0.0.1"]
  return yield* Effect.acquireRelease(
    Effect.promise(() =>
      new Promise<{ readonly process: ChildProcess; readonly address: string }>((resolve, reject) => {
        const child = spawn(process.execPath, ["node_modules/@stoplight/prism-cli/dist/index.js", ...command], {
          stdio: ["ignore", "pipe", "inherit"]
        })
        child.stdout.on("data", (chunk: Buffer) => {
          const [, address] = /listening on (http:\/\/[\d.:]+)/i.exec(chunk.toString()) ?? []
          if (address !== undefined) resolve({ process: child, address })
        })
        child.on("exit", () => reject(new Error("Prism ended")))
      })
    ),
    (running) => Effect.sync(() => running.process.kill())
  )
})

const isJson = (text: string): boolean => {
  try {
    JSON.parse(text)
    return true
  } catch {
    return false
  }
}

describe("Prism, a validating proxy between a client and the service,", () => {
  it.live(
    "reports no violation in any response, nor in any request that the tests consider valid",
    () =>
      Effect.gen(function*() {
        const DATA_DIR = yield* dataDirectory
        const { address, boundaries, document, key, valid } = yield* setup({ DATA_DIR })
        const proxy = yield* startPrism(document, `${address}/v1`)
        yield* Effect.promise(async () => {
          let reported = 0
          // Prism never responds to a body that is not JSON.
          const jsonBoundaries = boundaries.filter(({ body }) => body === undefined || isJson(body))
          for (const request of [...fc.sample(valid, { seed, numRuns: 100 }), ...jsonBoundaries]) {
            const { headers, status } = await fetch(proxy.address + request.target.replace("/v1", ""), {
              method: request.method,
              headers: { ...request.headers, authorization: `Bearer ${key}` },
              ...request.body !== undefined && { body: request.body }
            })
            const found: ReadonlyArray<Json> = JSON.parse(headers.get("sl-violations") ?? "[]")
            // Prism allows as int64 only integers that a double represents exactly.
            const violations = found.filter(({ message }) => !/ -?9007199254740991$/.test(message))
            const details = `${curl(address, request)}\nreceived ${status}\n${JSON.stringify(violations)}`
            assert.isEmpty(violations.filter(({ location }) => location[0] === "response"), details)
            if (request.wrong === undefined) assert.isEmpty(violations, details)
            else if (violations.length > 0) reported++
          }
          // Prism validates requests: it reports many of those that the service rejects.
          assert.isAbove(reported, jsonBoundaries.length / 3)
        })
      }),
    60_000
  )
})
