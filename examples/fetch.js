/**
 * Creates a pet and prints all pets, page by page, with `fetch` and without a library. All integers are exact.
 *
 * Run it with `PETSTORE_URL=… PETSTORE_API_KEY=psk_… node fetch.js`.
 */
import { randomUUID } from "node:crypto"

const { PETSTORE_API_KEY = "", PETSTORE_URL = "http://localhost:8080" } = process.env

/** Reads ids as `bigint` from their digits, because numbers beyond 2^53 lose digits. */
const parse = (text) =>
  JSON.parse(text, (name, value, { source }) => name === "id" || name === "categoryId" ? BigInt(source) : value)

/** Writes each `bigint` as a JSON number. */
const stringify = (pet) =>
  JSON.stringify(pet, (_name, value) => typeof value === "bigint" ? JSON.rawJSON(String(value)) : value)

/** The statuses that a retry can help, as docs/errors-and-limits.md lists them. */
const temporary = new Set([408, 429, 500, 502, 503, 504])

/** Sends a request, and retries it up to five times. A POST needs an `Idempotency-Key`, as below. */
const send = async (path, { headers, ...init } = {}) => {
  for (let attempt = 0;; attempt++) {
    const response = await fetch(new URL(path, PETSTORE_URL), {
      ...init,
      headers: { ...headers, authorization: `Bearer ${PETSTORE_API_KEY}` },
      signal: AbortSignal.timeout(30_000)
    }).catch((error) => {
      if (attempt === 5) throw error
    })
    if (response?.ok) return response
    const seconds = Number(response?.headers.get("retry-after") ?? 0)
    const mayHelp = response === undefined || temporary.has(response.status)
    // At the limit of the day, Retry-After can be 24 hours.
    if (!mayHelp || attempt === 5 || seconds > 300) {
      const requestId = response.headers.get("x-request-id")
      throw new Error(`${response.status} ${await response.text()}, X-Request-Id: ${requestId}`)
    }
    const backoff = 200 * 2 ** attempt * (1 + Math.random() / 4)
    await new Promise((resolve) => setTimeout(resolve, Math.max(seconds * 1000, backoff)))
  }
}

await send("/v1/pets", {
  method: "POST",
  // With the same idempotency key, a second request creates no second pet.
  headers: { "content-type": "application/json", "idempotency-key": randomUUID() },
  body: stringify({ name: "Tom", categoryId: 9223372036854775807n, status: "sold" })
})

let next = "/v1/pets?limit=100"
while (next !== undefined) {
  const response = await send(next)
  for (const { categoryId, id, name } of parse(await response.text())) console.log(id, name, categoryId)
  next = /<([^>]+)>; rel="next"/.exec(response.headers.get("link") ?? "")?.[1]
}
