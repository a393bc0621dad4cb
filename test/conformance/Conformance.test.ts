/**
 * The running service against its own OpenAPI document, in the phases of Schemathesis: examples, boundaries, random and
 * stateful. `CONFORMANCE_REQUESTS` says how many, `CONFORMANCE_SEED` with which seed.
 */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import * as fc from "fast-check"
import { type ChildProcess, spawn } from "node:child_process"
import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { temporaryDatabaseUrl, temporaryDirectory } from "../support/Harness.ts"
import { start } from "../support/Process.ts"
import * as Redis from "../support/Redis.ts"
import { checksOf, curl } from "./Checks.ts"
import { type Json, type Request, requestsOf } from "./Requests.ts"

const requests = Number(process.env.CONFORMANCE_REQUESTS ?? 1_500)
const seed = Number(process.env.CONFORMANCE_SEED ?? Math.trunc(Math.random() * 2 ** 31))
/** Requests of one example of a property. */
const atOnce = 10

const ADMIN_TOKEN = "adm_test"

const deployments = [
  {
    name: "the embedded database",
    skip: false,
    env: Effect.map(temporaryDirectory, (DATA_DIR) => ({ DATA_DIR }))
  },
  {
    name: "PostgreSQL and Redis",
    skip: process.env.TEST_DATABASE_URL === undefined || Redis.missing !== undefined,
    env: Effect.gen(function*() {
      const redis = yield* Redis.run
      yield* redis.start
      return { DATABASE_URL: yield* temporaryDatabaseUrl, REDIS_URL: redis.url, DATA_DIR: yield* temporaryDirectory }
    })
  }
]

/** The service, a key that has no end, and its document. */
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
    const made = requestsOf(document)
    const check = checksOf(document, made.operations)
    let sent = 0
    const send = async (request: Request) => {
      sent++
      const response = await fetch(address + request.target, {
        method: request.method,
        headers: { ...request.headers, authorization: `Bearer ${key}` },
        ...request.body !== undefined && { body: request.body }
      })
      const answer = { status: response.status, headers: response.headers, text: await response.text() }
      try {
        check(request, answer)
      } catch (error) {
        throw new Error(
          `${error instanceof Error ? error.message : String(error)}\n${request.wrong ?? "valid"}\n` +
            `${curl(address, request)}\nanswered ${answer.status} ${answer.text}\nCONFORMANCE_SEED=${seed}`,
          { cause: error }
        )
      }
      return answer
    }
    return { ...made, address, key: String(key), document, send, sent: () => sent }
  })
})

for (const deployment of deployments) {
  describe.skipIf(deployment.skip)(`The service on ${deployment.name} conforms to its document`, () => {
    it.live(`in ${requests} requests`, () =>
      Effect.gen(function*() {
        const { address, boundaries, invalid, operations, send, sent, valid } = yield* setup(yield* deployment.env)
        yield* Effect.promise(async () => {
          // Examples: of each header that a request may carry, and of the plainest requests.
          const plain = { method: "GET", headers: {}, body: undefined, wrong: undefined }
          await send({ ...plain, operationId: "listPets", target: "/v1/pets" })
          await send({ ...plain, operationId: "getPet", target: "/v1/pets/1" })
          assert.sameMembers(operations.map(({ operationId }) => operationId), ["listPets", "createPet", "getPet"])

          // Boundaries: each way to break a request, once.
          assert.isAbove(boundaries.length, 60)
          for (const request of boundaries) await send(request)

          // Random: valid and invalid requests, many at once.
          const random = fc.asyncProperty(
            fc.array(fc.oneof(valid, invalid), { minLength: atOnce, maxLength: atOnce }),
            async (batch) => {
              await Promise.all(batch.map(send))
            }
          )
          const numRuns = Math.ceil(requests * 0.7 / atOnce)
          await fc.assert(random, { seed, numRuns })

          // Stateful: what is added is where Location says, and in the list that Link leads through, exactly once.
          const added = valid.filter(({ operationId, headers }) =>
            operationId === "createPet" && headers["Idempotency-Key"] === undefined
          )
          const stateful = fc.asyncProperty(fc.array(added, { minLength: 1, maxLength: 5 }), async (additions) => {
            const replay = `${
              additions.map((addition) => curl(address, addition)).join("\n")
            }\nCONFORMANCE_SEED=${seed}`
            const created = []
            for (const addition of additions) {
              const { headers, text } = await send(addition)
              const { id } = /"id":(?<id>\d+)/.exec(text)?.groups ?? {}
              assert.strictEqual(headers.get("location"), `/v1/pets/${id}`, replay)
              const found = await send({ ...plain, operationId: "getPet", target: `/v1/pets/${id}` })
              assert.strictEqual(found.text, text, replay)
              created.push({ id: Number(id), text })
            }
            const first = Math.min(...created.map(({ id }) => id))
            let target: string | undefined = `/v1/pets?limit=3&cursor=${
              Buffer.from(String(first - 1)).toString("base64url")
            }`
            let walked = ""
            while (target !== undefined) {
              const page = await send({ ...plain, operationId: "listPets", target })
              walked += page.text.slice(1, -1) + ","
              target = /<(.+)>; rel="next"/.exec(page.headers.get("link") ?? "")?.[1]
            }
            for (const { text } of created) assert.strictEqual(walked.split(text).length, 2, replay)
          })
          for (let nth = 0; sent() < requests; nth++) await fc.assert(stateful, { seed: seed + nth, numRuns: 5 })
        })
      }), 900_000)
  })
}

/** Prism, a validating proxy of others, between us and the service. */
const prism = Effect.fnUntraced(function*(document: Json, upstream: string) {
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

describe("Prism, validating what passes between a client and the service,", () => {
  it.live(
    "finds nothing to say of any answer, nor of any request that we hold for valid",
    () =>
      Effect.gen(function*() {
        const DATA_DIR = yield* temporaryDirectory
        const { address, boundaries, document, key, valid } = yield* setup({ DATA_DIR })
        const proxy = yield* prism(document, `${address}/v1`)
        yield* Effect.promise(async () => {
          let refused = 0
          // It never answers a body that is no JSON.
          const readable = boundaries.filter(({ body }) => body === undefined || isJson(body))
          for (const request of [...fc.sample(valid, { seed, numRuns: 100 }), ...readable]) {
            const { headers, status } = await fetch(proxy.address + request.target.replace("/v1", ""), {
              method: request.method,
              headers: { ...request.headers, authorization: `Bearer ${key}` },
              ...request.body !== undefined && { body: request.body }
            })
            const found: ReadonlyArray<Json> = JSON.parse(headers.get("sl-violations") ?? "[]")
            // It takes an int64 for what a double holds exactly.
            const violations = found.filter(({ message }) => !/ -?9007199254740991$/.test(message))
            const told = `${curl(address, request)}\nanswered ${status}\n${JSON.stringify(violations)}`
            assert.isEmpty(violations.filter(({ location }) => location[0] === "response"), told)
            if (request.wrong === undefined) assert.isEmpty(violations, told)
            else if (violations.length > 0) refused++
          }
          // It does look: it refuses much of what we refuse.
          assert.isAbove(refused, readable.length / 3)
        })
      }),
    60_000
  )
})
