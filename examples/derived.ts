/**
 * Shows how to derive a client from the contract instead of using `PetstoreClient`. The derived client does not retry.
 *
 * Run it with `PETSTORE_URL=http://localhost:8080 PETSTORE_API_KEY=psk_… node derived.ts`.
 */
import { Console, Effect, Layer } from "effect"
import { FetchHttpClient, HttpClientRequest } from "effect/http"
import { HttpApiClient, HttpApiMiddleware } from "effect/http-api"
import { Auth, PetstoreApi } from "petstore-client/api"

const { PETSTORE_API_KEY = "", PETSTORE_URL = "http://localhost:8080" } = process.env

const program = Effect.gen(function*() {
  const petstore = yield* HttpApiClient.make(PetstoreApi, { baseUrl: PETSTORE_URL })
  const page = yield* petstore.listPets({ query: { limit: 5 } })
  yield* Console.log(page.pets.length)
})

const authorized = HttpApiMiddleware.layerClient(
  Auth,
  ({ next, request }) => next(HttpClientRequest.bearerToken(request, PETSTORE_API_KEY))
)

await Effect.runPromise(Effect.provide(program, Layer.merge(authorized, FetchHttpClient.layer)))
