/** Checks a response against the OpenAPI document and against SPEC §2 and §8. */
import { assert } from "@effect/vitest"
import { Ajv2020 } from "ajv/dist/2020.js"
import type { ReceivedResponse } from "../support/Harness.ts"
import type { Json, Operation, Request } from "./Requests.ts"

/** Returns a function that throws if a response to a request does not conform to the OpenAPI `document`. */
export const checksOf = (document: Json, operations: ReadonlyArray<Operation>) => {
  const ajv = new Ajv2020({ strict: false, validateFormats: false })
  ajv.addSchema({ $id: "https://petstore/", ...document })
  const validators = new Map<string, ReturnType<typeof ajv.compile>>()
  const assertConforms = (schema: Json, value: unknown): void => {
    const key = JSON.stringify(schema)
    const validate = validators.get(key) ??
      ajv.compile({ ...schema, ...schema.$ref && { $ref: `https://petstore/${schema.$ref}` } })
    validators.set(key, validate)
    assert.isTrue(validate(value), ajv.errorsText(validate.errors))
  }

  return (request: Request, { headers, status, text }: ReceivedResponse, sentAt: number): void => {
    const { headers: sent, operationId, wrong } = request
    const response: Json | undefined = operations.find((one) => one.operationId === operationId)?.responses[status]
    assert.isDefined(response, `status ${status} is documented`)
    // A random id can have no pet (404), and a random Idempotency-Key can repeat with another pet (422).
    const expected = operationId === "getPet" ? [200, 404] : sent["Idempotency-Key"] ? [201, 422] : [200, 201]
    assert.include(wrong === undefined ? expected : [400], status)

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
    checkRateLimitHeaders(headers, sentAt)
  }
}

/**
 * Checks that the three headers of SPEC §8 agree with `RateLimit` and `RateLimit-Policy`.
 *
 * `RateLimit` has the windows minute and day. The headers of SPEC §8 have the more restrictive of the two.
 */
const checkRateLimitHeaders = (headers: Headers, sentAt: number): void => {
  const windows = [...(headers.get("ratelimit-policy") ?? "").matchAll(/"(\w+)";q=(\d+);w=(\d+)/g)]
  const remainders = [...(headers.get("ratelimit") ?? "").matchAll(/"(\w+)";r=(\d+);t=(\d+)/g)]
  assert.deepStrictEqual(windows.map(([, name]) => name), ["minute", "day"])
  assert.deepStrictEqual(remainders.map(([, name]) => name), ["minute", "day"])
  const [limit, remaining, reset] = ["limit", "remaining", "reset"].map((name) =>
    Number(headers.get(`x-ratelimit-${name}`))
  )
  for (const [index, [, , quota, seconds]] of windows.entries()) {
    assert.isAtMost(Number(remainders[index]?.[2]), Number(quota))
    assert.isAtMost(Number(remainders[index]?.[3]), Number(seconds))
  }
  const index = windows.findIndex(([, , quota]) => Number(quota) === limit)
  assert.strictEqual(Number(remainders[index]?.[2]), remaining)
  // The window was read between the request and now. Seconds are rounded.
  const readAt = (reset ?? NaN) - Number(remainders[index]?.[3])
  assert.isAtLeast(readAt, sentAt / 1000 - 1)
  assert.isAtMost(readAt, Date.now() / 1000 + 1)
  assert.strictEqual(remaining, Math.min(...remainders.map(([, , r]) => Number(r))))
}
