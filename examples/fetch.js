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

/** Sends a request, and waits as a 429 demands. The service bans a client that does not wait. */
const send = async (path, { headers, ...init } = {}) => {
  for (let attempt = 0; attempt < 5; attempt++) {
    const response = await fetch(new URL(path, PETSTORE_URL), {
      ...init,
      headers: { ...headers, authorization: `Bearer ${PETSTORE_API_KEY}` }
    })
    if (response.status !== 429) {
      if (!response.ok) throw new Error(`${response.status} ${await response.text()}`)
      return response
    }
    const seconds = Number(response.headers.get("retry-after")) || 60
    await new Promise((resolve) => setTimeout(resolve, seconds * 1000))
  }
  throw new Error("The limit is used up.")
}

await send("/v1/pets", {
  method: "POST",
  // With the same key, a second request creates no second pet.
  headers: { "content-type": "application/json", "idempotency-key": randomUUID() },
  body: stringify({ name: "Tom", categoryId: 9223372036854775807n, status: "sold" })
})

let next = "/v1/pets?limit=100"
while (next !== undefined) {
  const response = await send(next)
  for (const { categoryId, id, name } of parse(await response.text())) console.log(id, name, categoryId)
  next = /<([^>]+)>; rel="next"/.exec(response.headers.get("link") ?? "")?.[1]
}
