/**
 * Prints all pets, page by page, with `fetch` and without a client library.
 *
 * Run it with `PETSTORE_URL=… PETSTORE_API_KEY=psk_… node fetch.ts`.
 */
const { PETSTORE_API_KEY = "", PETSTORE_URL = "http://localhost:8080" } = process.env

let next: string | undefined = "/v1/pets?limit=100"
while (next !== undefined) {
  const response: Response = await fetch(new URL(next, PETSTORE_URL), {
    headers: { authorization: `Bearer ${PETSTORE_API_KEY}` }
  })
  if (response.status === 429) {
    // The service bans a client that does not wait before it retries.
    const seconds = Number(response.headers.get("retry-after")) || 60
    await new Promise((resolve) => setTimeout(resolve, seconds * 1000))
    continue
  }
  if (!response.ok) throw new Error(`${response.status} ${await response.text()}`)
  // The example prints the text of the response, because JSON.parse would round ids beyond 2^53.
  console.log(await response.text())
  next = /<([^>]+)>; rel="next"/.exec(response.headers.get("link") ?? "")?.[1]
}
