/** The suite of the client against a live service. It uses only the package and `effect`, so any runtime can run it. */
import { Cause, Duration, Effect, Exit, Option, Redacted, Stream } from "effect"
import { PetstoreClient } from "petstore-client/client"

export interface Settings {
  readonly baseUrl: string
  /** A URL where no server listens. */
  readonly closedUrl: string
  /** A key, and one of 3 requests a minute, that no other run uses. */
  readonly apiKey: string
  readonly limitedKey: string
  /** A word for the names of pets that no other run uses. */
  readonly name: string
}

const largest = 9223372036854775807n

const assert = (condition: boolean, actual: unknown): void => {
  if (!condition) throw new Error(`Unexpected: ${String(actual)}`)
}

const client = (baseUrl: string, apiKey: string, retry: { readonly times?: number; readonly maxWait?: number } = {}) =>
  Effect.provide(PetstoreClient.layer({ baseUrl, apiKey: Redacted.make(apiKey), retry }))

/** Each guarantee that the suite tests, by its title. */
const tests: Readonly<Record<string, (settings: Settings) => Effect.Effect<void, unknown, PetstoreClient>>> = {
  "creates one pet with the largest 64-bit integer for one idempotency key": ({ name }) =>
    Effect.gen(function*() {
      const petstore = yield* PetstoreClient
      const create = petstore.create({ name, categoryId: largest, status: "sold" }, { idempotencyKey: name })
      const [one, other] = yield* Effect.all([create, create], { concurrency: 2 })
      assert(one.id === other.id, [one.id, other.id])
      const found = yield* petstore.get(one.id)
      assert(found.categoryId === largest && found.name === name, found.categoryId)
    }),

  "streams all pets of a status in pages that continue each other": ({ name }) =>
    Effect.gen(function*() {
      const petstore = yield* PetstoreClient
      const created = yield* Effect.forEach(
        [1n, 2n, 3n, 4n, 5n],
        (categoryId) => petstore.create({ name, categoryId, status: "pending" })
      )
      const streamed = yield* Stream.runCollect(petstore.all({ status: "pending", pageSize: 2 }))
      const ids = streamed.filter((pet) => pet.name === name).map(({ id }) => id)
      assert(ids.join() === created.map(({ id }) => id).join(), ids)
    }),

  "tells errors apart by their tag": ({ apiKey, baseUrl, closedUrl, name }) =>
    Effect.gen(function*() {
      const petstore = yield* PetstoreClient
      const notFound = yield* Effect.flip(petstore.get(largest))
      assert(notFound._tag === "NotFound" && notFound.requestId !== undefined, notFound)
      const invalid = yield* Effect.flip(petstore.create({ name, categoryId: largest + 1n }))
      assert(invalid._tag === "PetstoreClientError" && invalid.reason._tag === "InvalidInput", invalid)
      const list = Effect.flatMap(PetstoreClient, (other) => Effect.flip(other.list()))
      const unknownKey = yield* list.pipe(client(baseUrl, "psk_unknown"))
      assert(unknownKey._tag === "InvalidApiKey", unknownKey)
      const closed = yield* list.pipe(client(closedUrl, apiKey, { times: 1 }))
      assert(closed._tag === "PetstoreClientError" && closed.reason._tag === "Unreachable", closed)
    }),

  "reads the limits of each response, and reports a used up limit": ({ baseUrl, limitedKey }) =>
    Effect.gen(function*() {
      const petstore = yield* PetstoreClient
      yield* petstore.list({ limit: 1 })
      const limits = Option.getOrThrow(yield* petstore.rateLimit)
      assert(limits.limit === 3 && limits.remaining === 2, limits.remaining)
      // The client does not know of these requests, so it gets a 429.
      const headers = { authorization: `Bearer ${limitedKey}` }
      for (let i = 0; i < 2; i++) yield* Effect.promise(() => fetch(`${baseUrl}/v1/pets?limit=1`, { headers }))
      const limited = yield* Effect.flip(petstore.list({ limit: 1 }))
      const seconds = limited._tag === "RateLimitExceeded" ? Duration.toSeconds(limited.retryAfter ?? 0) : 0
      assert(seconds >= 1 && seconds <= 60, limited)
    }).pipe(client(baseUrl, limitedKey, { times: 0, maxWait: 0 }))
}

/** Runs all tests. Returns the title and the outcome of each: `passed`, or the failure. */
export const runSuite = (settings: Settings): Promise<Readonly<Record<string, string>>> =>
  Effect.forEach(Object.entries(tests), ([title, test]) =>
    Effect.map(
      Effect.exit(test(settings)),
      (exit) => [title, Exit.isSuccess(exit) ? "passed" : Cause.pretty(exit.cause)]
    )).pipe(
      Effect.map((outcomes) => Object.fromEntries(outcomes)),
      client(settings.baseUrl, settings.apiKey),
      Effect.runPromise
    )
