/**
 * Tests the running service against its OpenAPI document, with boundary and random requests.
 *
 * `CONFORMANCE_REQUESTS` sets the minimum number of requests, `CONFORMANCE_SEED` the seed of their random values.
 */
import { assert, it } from "@effect/vitest"
import { Ajv2020 } from "ajv/dist/2020.js"
import { Effect } from "effect"
import * as fc from "fast-check"
import { dataDirectory } from "../support/Databases.ts"
import { issue, send, start } from "../support/Process.ts"
import type { ReceivedResponse } from "../support/Sockets.ts"
import { type Json, type Request, requestsOf } from "./Requests.ts"

const requests = Number(process.env.CONFORMANCE_REQUESTS ?? 1_500)
const seed = Number(process.env.CONFORMANCE_SEED ?? Math.trunc(Math.random() * 2 ** 31))

/** Returns a function that throws if a response does not conform to `document`, which has `responses` by operation. */
const checksOf = (document: Json, responses: Json) => {
  const ajv = new Ajv2020({ strict: false, validateFormats: false })
  ajv.addSchema({ $id: "https://petstore/", ...document })
  const assertConforms = (schema: Json, value: unknown): void => {
    const validate = schema.$ref ? ajv.getSchema(`https://petstore/${schema.$ref}`) : ajv.compile(schema)
    assert.isTrue(validate?.(value), ajv.errorsText(validate?.errors))
  }

  return ({ headers: sent, operationId, wrong }: Request, { headers, status, text }: ReceivedResponse): void => {
    const response: Json | undefined = responses[operationId][status]
    assert.isDefined(response, `status ${status} is documented`)
    // A random id can have no pet (404), and a random Idempotency-Key can repeat with another pet (422).
    assert.match(String(status), wrong !== undefined ? /400/ : sent["Idempotency-Key"] ? /2..|404|422/ : /2..|404/)

    const [[type, content]] = Object.entries<Json>(response?.content) as [[string, Json]]
    assert.strictEqual(headers.get("content-type"), type)
    const body = JSON.parse(text)
    assertConforms(content.schema, body)
    if (status >= 400) {
      assert.deepStrictEqual(Object.keys(body), ["code", "message", "status"])
      assert.strictEqual(body.status, status)
      assert.include(Object.keys(content.examples), body.code)
    }

    for (const [name, declared] of Object.entries<Json>(response?.headers)) {
      // Responses share headers by reference.
      const header = declared.$ref ? document.components.headers[declared.$ref.split("/").at(-1)] : declared
      const value = headers.get(name)
      if (value === null) assert.isFalse(header.required, `${name} is present`)
      else assertConforms(header.schema, header.schema.type === "integer" ? Number(value) : value)
    }
  }
}

it.live(`The service conforms to its OpenAPI document in ${requests} requests`, () =>
  Effect.gen(function*() {
    const service = yield* start({ DATA_DIR: yield* dataDirectory })
    const { key } = yield* issue(service)
    const { body: document } = yield* send(`${service.address}/openapi.json`, "")
    const { boundaries, invalid, responses, valid } = requestsOf(document)
    const assertConforms = checksOf(document, responses)
    const check = async (request: Request): Promise<number> => {
      const { body = null, method, target } = request
      const headers = { ...request.headers, authorization: `Bearer ${key}` }
      const response = await fetch(service.address + target, { method, headers, body })
      const received = { status: response.status, headers: response.headers, text: await response.text() }
      try {
        assertConforms(request, received)
      } catch (cause) {
        const details = JSON.stringify({ request, ...received, CONFORMANCE_SEED: seed })
        throw new Error(`${String(cause)}\n${details}`, { cause })
      }
      return response.status
    }
    yield* Effect.promise(async () => {
      assert.isAbove(boundaries.length, 40)
      assert.sameMembers([...new Set(boundaries.map(({ operationId }) => operationId))], Object.keys(responses))
      for (const request of boundaries) await check(request)

      const batches = fc.array(fc.oneof(valid, invalid), { minLength: 10, maxLength: 10 })
      const random = fc.asyncProperty(batches, async (batch) => {
        await Promise.all(batch.map(check))
      })
      await fc.assert(random, { seed, numRuns: Math.ceil((requests - boundaries.length) / 10) })

      // Examples: a page that has a next one, and a pet, which random requests do not find.
      const get = { method: "GET", headers: {}, body: undefined, wrong: undefined }
      await check({ ...get, operationId: "listPets", target: "/v1/pets?limit=1" })
      assert.strictEqual(await check({ ...get, operationId: "getPet", target: "/v1/pets/1" }), 200)
    })
  }), 900_000)
