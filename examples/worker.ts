/**
 * A worker for Cloudflare and similar platforms, which serves the first pets for sale.
 *
 * Set `PETSTORE_URL` as a variable and `PETSTORE_API_KEY` as a secret of the worker. It needs no Node compatibility.
 */
import { Effect, Redacted } from "effect"
import { PetstoreClient } from "petstore-client/client"

interface Env {
  readonly PETSTORE_URL: string
  readonly PETSTORE_API_KEY: string
}

const pets = Effect.gen(function*() {
  const petstore = yield* PetstoreClient
  const page = yield* petstore.list({ status: "available", limit: 5 })
  // JSON has no `bigint`, so the ids are strings.
  return Response.json(page.pets.map(({ id, name }) => ({ id: String(id), name })))
}).pipe(
  Effect.catch((error) => {
    // The message of a `PetstoreClientError` has the URL of the service, and that of its reason has not.
    const { message } = error._tag === "PetstoreClientError" ? error.reason : error
    return Effect.succeed(Response.json({ error: error._tag, message }, { status: 502 }))
  })
)

export default {
  fetch(request: Request, env: Env): Promise<Response> {
    // A layer for each request: a worker must not use the connections of one request in another.
    const client = PetstoreClient.layer({
      baseUrl: env.PETSTORE_URL,
      apiKey: Redacted.make(env.PETSTORE_API_KEY),
      retry: { times: 2 },
      // The visitor waits at most this long.
      timeout: "5 seconds"
    })
    return Effect.runPromise(Effect.provide(pets, client), { signal: request.signal })
  }
}
