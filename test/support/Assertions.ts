/** Assertions on responses of the API port. */
import { assert } from "@effect/vitest"
import type { ReceivedResponse } from "./Sockets.ts"

const challenge = /^Bearer realm="petstore"(?:, error="invalid_token")?$/

/** Checks the headers that every response of the API port carries. */
export const assertCommonHeaders = ({ headers, status }: ReceivedResponse): void => {
  for (const name of ["limit", "remaining", "reset"]) assert.match(headers.get(`x-ratelimit-${name}`) ?? "", /^\d+$/)
  assert.strictEqual(headers.get("ratelimit-policy"), `"minute";q=60;w=60, "day";q=1000;w=86400`)
  assert.match(headers.get("ratelimit") ?? "", /^"minute";r=\d+;t=\d+, "day";r=\d+;t=\d+$/)
  assert.match(headers.get("x-ratelimit-scope") ?? "", /^(?:key|address)$/)
  assert.match(headers.get("x-request-id") ?? "", /^[0-9a-f-]{36}$/)
  // Only documents, which have an ETag, may be stored.
  assert.strictEqual(headers.get("cache-control"), headers.has("etag") ? "private, no-cache" : "no-store")
  assert.strictEqual(headers.get("x-content-type-options"), "nosniff")
  assert.strictEqual(headers.get("content-security-policy"), "default-src 'none'; frame-ancestors 'none'")
  assert.match(headers.get("www-authenticate") ?? "", status === 401 ? challenge : /^$/)
  assert.isNotNull(headers.get("date"))
}

/** Checks a response with a body in JSON, and its common headers. */
export const assertSuccess = (response: ReceivedResponse, status: number, text: string): void => {
  assert.strictEqual(response.text, text)
  assert.strictEqual(response.status, status)
  assert.strictEqual(response.headers.get("content-type"), "application/json")
  assertCommonHeaders(response)
}

/** Checks the Error body, of which the message includes `message`. */
export const assertErrorBody = (response: ReceivedResponse, status: number, code: string, message = ""): void => {
  assert.strictEqual(response.status, status, response.text)
  assert.strictEqual(response.headers.get("content-type"), "application/json")
  const body = JSON.parse(response.text)
  assert.deepStrictEqual(Object.entries({ ...body, message: "" }), Object.entries({ code, message: "", status }))
  assert.isNotEmpty(body.message)
  assert.include(body.message, message)
}

/** Checks the Error body, and the common headers. */
export const assertError = (response: ReceivedResponse, status: number, code: string, message = ""): void => {
  assertErrorBody(response, status, code, message)
  assertCommonHeaders(response)
}
