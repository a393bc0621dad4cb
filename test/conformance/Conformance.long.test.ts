/**
 * Tests the running service against its OpenAPI document, with boundary and random requests.
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
  { name: "the embedded database", skip: false, env: Effect.map(dataDirectory, (DATA_DIR) => ({ DATA_DIR })) },
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
    const send = async (request: Request): Promise<number> => {
      const response = await fetch(address + request.target, {
        method: request.method,
        headers: { ...request.headers, authorization: `Bearer ${key}` },
        ...request.body !== undefined && { body: request.body }
      })
      const { headers, status } = response
      const text = await response.text()
      try {
        check(request, { status, headers, text })
      } catch (cause) {
        const details = JSON.stringify({ request, status, text, CONFORMANCE_SEED: seed })
        throw new Error(`${String(cause)}\n${details}`, { cause })
      }
      return status
    }
    return { ...generated, send }
  })
})

describe.each(deployments)("The service on $name", ({ env, skip }) => {
  it.live.skipIf(skip)(`conforms to its OpenAPI document in ${requests} requests`, () =>
    Effect.gen(function*() {
      const { boundaries, invalid, operations, send, valid } = yield* setup(yield* env)
      yield* Effect.promise(async () => {
        assert.sameMembers(operations.map(({ operationId }) => operationId), ["listPets", "createPet", "getPet"])

        // Boundaries: one request for each possible error.
        assert.isAbove(boundaries.length, 40)
        for (const request of boundaries) await send(request)

        // Random: valid and invalid requests, `concurrency` of them at a time.
        const batches = fc.array(fc.oneof(valid, invalid), { minLength: concurrency, maxLength: concurrency })
        const random = fc.asyncProperty(batches, async (batch) => {
          await Promise.all(batch.map(send))
        })
        await fc.assert(random, { seed, numRuns: Math.ceil((requests - boundaries.length) / concurrency) })

        // Examples: a page that has a next one, and a pet, which random requests do not find.
        const get = { method: "GET", headers: {}, body: undefined, wrong: undefined }
        await send({ ...get, operationId: "listPets", target: "/v1/pets?limit=1" })
        assert.strictEqual(await send({ ...get, operationId: "getPet", target: "/v1/pets/1" }), 200)
      })
    }), 900_000)
})
