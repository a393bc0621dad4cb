/** Checks a response against the OpenAPI document. */
import { assert } from "@effect/vitest"
import { Ajv2020 } from "ajv/dist/2020.js"
import type { ReceivedResponse } from "../support/Sockets.ts"
import type { Json, Request } from "./Requests.ts"

/** Returns a function that throws if a response does not conform to `document`, which has `responses` by operation. */
export const checksOf = (document: Json, responses: Json) => {
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
  }
}
