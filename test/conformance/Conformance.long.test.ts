/**
 * Tests the running service against its OpenAPI document, in the phases of Schemathesis: examples, boundaries, random
 * and stateful.
 *
 * `CONFORMANCE_REQUESTS` sets the minimum number of requests, `CONFORMANCE_SEED` the seed of their random values.
 */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import * as fc from "fast-check"
import { dataDirectory, temporaryDatabaseUrl, temporaryDirectory } from "../support/Harness.ts"
import { start } from "../support/Process.ts"
import * as Redis from "../support/Redis.ts"
import { checksOf } from "./Checks.ts"
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
  }
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
      const { status, ...response } = await fetch(address + request.target, {
        method: request.method,
        headers: { ...request.headers, authorization: `Bearer ${key}` },
        ...request.body !== undefined && { body: request.body }
      }).then(async (response) => ({ status: response.status, headers: response.headers, text: await response.text() }))
      try {
        check(request, { status, ...response })
      } catch (cause) {
        const details = JSON.stringify({ request, status, text: response.text, CONFORMANCE_SEED: seed })
        throw new Error(`${String(cause)}\n${details}`, { cause })
      }
      return response
    }
    return { ...generated, send, sent: () => sent }
  })
})

describe.each(deployments)("The service on $name", ({ env, skip }) => {
  it.live.skipIf(skip)(`conforms to its OpenAPI document in ${requests} requests`, () =>
    Effect.gen(function*() {
      const { boundaries, invalid, operations, send, sent, valid } = yield* setup(yield* env)
      yield* Effect.promise(async () => {
        // Examples: the simplest request of each operation that needs no body.
        const get = { method: "GET", headers: {}, body: undefined, wrong: undefined }
        const list = (target: string) => send({ ...get, operationId: "listPets", target })
        const find = (target: string) => send({ ...get, operationId: "getPet", target })
        await list("/v1/pets")
        await find("/v1/pets/1")
        assert.sameMembers(operations.map(({ operationId }) => operationId), ["listPets", "createPet", "getPet"])

        // Boundaries: one request for each possible error.
        assert.isAbove(boundaries.length, 60)
        for (const request of boundaries) await send(request)

        // Random: valid and invalid requests, `concurrency` of them at a time.
        const batches = fc.array(fc.oneof(valid, invalid), { minLength: concurrency, maxLength: concurrency })
        const random = fc.asyncProperty(batches, async (batch) => {
          await Promise.all(batch.map(send))
        })
        await fc.assert(random, { seed, numRuns: Math.ceil(requests * 0.7 / concurrency) })

        // Stateful: a created pet is at its Location, and exactly once in the pages of the list that Link connects.
        const creation = valid.filter(({ operationId, headers }) =>
          operationId === "createPet" && headers["Idempotency-Key"] === undefined
        )
        const stateful = fc.asyncProperty(fc.array(creation, { minLength: 1, maxLength: 5 }), async (creations) => {
          const created = []
          for (const request of creations) {
            const { headers, text } = await send(request)
            const { id } = /"id":(?<id>\d+)/.exec(text)?.groups ?? {}
            assert.strictEqual(headers.get("location"), `/v1/pets/${id}`)
            assert.strictEqual((await find(`/v1/pets/${id}`)).text, text)
            created.push({ id: Number(id), text })
          }
          const before = String(Math.min(...created.map(({ id }) => id)) - 1)
          let target: string | undefined = `/v1/pets?limit=3&cursor=${Buffer.from(before).toString("base64url")}`
          let listed = ""
          while (target !== undefined) {
            const page = await list(target)
            listed += page.text.slice(1, -1) + ","
            target = /<(.+)>; rel="next"/.exec(page.headers.get("link") ?? "")?.[1]
          }
          for (const { text } of created) assert.lengthOf(listed.split(text), 2)
        })
        for (let index = 0; sent() < requests; index++) await fc.assert(stateful, { seed: seed + index, numRuns: 5 })
      })
    }), 900_000)
})
