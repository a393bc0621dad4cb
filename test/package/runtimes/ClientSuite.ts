/** The suite of the client against a live service. It uses only the package and `effect`, so any runtime can run it. */
import { Cause, Duration, Effect, Exit, Option, Redacted, Stream } from "effect"
import type { NewPet } from "petstore-client/api"
import { PetstoreClient } from "petstore-client/client"

export interface Settings {
  readonly baseUrl: string
  /** A URL where no server listens. */
  readonly closedUrl: string
  /** A key that no other run uses. */
  readonly apiKey: string
  /** A key of 3 requests a minute that no other run uses. */
  readonly limitedKey: string
  /** A word for the names of pets that no other run uses. */
  readonly name: string
}

const largest = 9223372036854775807n

const assert = (condition: boolean, actual: unknown): void => {
  if (!condition) throw new Error(`Unexpected: ${String(actual)}`)
}

const client = (
  baseUrl: string,
  apiKey: string,
  options: { readonly times?: number; readonly maxWait?: number } = {}
) =>
  Effect.provide(
    PetstoreClient.layer({ baseUrl, apiKey: Redacted.make(apiKey), retry: options })
  )

/** Each guarantee that the suite tests, by its title. */
const tests: Readonly<Record<string, (settings: Settings) => Effect.Effect<void, unknown, PetstoreClient>>> = {
  "creates and gets a pet with the largest 64-bit integer": ({ name }: Settings) =>
    Effect.gen(function*() {
      const petstore = yield* PetstoreClient
      const created = yield* petstore.create({ name, categoryId: largest, status: "available" })
      assert(created.categoryId === largest && created.name === name, created.categoryId)
      const found = yield* petstore.get(created.id)
      assert(found.id === created.id && found.categoryId === largest, found.categoryId)
    }),

  "lists pages that continue each other": ({ name }: Settings) =>
    Effect.gen(function*() {
      const petstore = yield* PetstoreClient
      const pet: NewPet = { name, categoryId: 1n, status: "sold" }
      yield* Effect.forEach([1, 2, 3], () => petstore.create(pet), { concurrency: 3 })
      const first = yield* petstore.list({ limit: 2, status: "sold" })
      assert(first.pets.length === 2 && first.next !== undefined, first.pets.length)
      const second = yield* petstore.list(first.next)
      const ids = [...first.pets, ...second.pets].map(({ id }) => id)
      assert(ids.every((id, index) => index === 0 || id > (ids[index - 1] ?? id)), ids)
    }),

  "streams all pets of a status": ({ name }: Settings) =>
    Effect.gen(function*() {
      const petstore = yield* PetstoreClient
      const created = yield* Effect.forEach(
        [1n, 2n, 3n, 4n, 5n],
        (categoryId) => petstore.create({ name: `${name} streamed`, categoryId, status: "pending" })
      )
      const streamed = yield* Stream.runCollect(petstore.all({ status: "pending", pageSize: 2 }))
      const ids = streamed.filter((pet) => pet.name === `${name} streamed`).map(({ id }) => id)
      assert(ids.join() === created.map(({ id }) => id).join(), ids)
    }),

  "tells errors apart by their tag": ({ apiKey, baseUrl, closedUrl, name }: Settings) =>
    Effect.gen(function*() {
      const petstore = yield* PetstoreClient
      const notFound = yield* Effect.flip(petstore.get(largest))
      assert(notFound._tag === "NotFound" && notFound.status === 404, notFound)
      assert(notFound._tag === "NotFound" && notFound.requestId !== undefined, "no request id")
      const long = yield* Effect.flip(petstore.create({ name: "x".repeat(1_001), categoryId: 1n }))
      assert(long._tag === "PetstoreClientError" && long.reason._tag === "InvalidInput", long)
      const invalid = yield* Effect.flip(petstore.create({ name, categoryId: largest + 1n }))
      assert(invalid._tag === "PetstoreClientError" && invalid.reason._tag === "InvalidInput", invalid)

      const list = Effect.flatMap(PetstoreClient, (other) => Effect.flip(other.list()))
      const unknownKey = yield* list.pipe(client(baseUrl, "psk_unknown"))
      assert(unknownKey._tag === "InvalidApiKey", unknownKey)
      const closed = yield* list.pipe(client(closedUrl, apiKey, { times: 1 }))
      assert(closed._tag === "PetstoreClientError" && closed.reason._tag === "Unreachable", closed)
    }),

  "creates one pet for one idempotency key": ({ name }: Settings) =>
    Effect.gen(function*() {
      const petstore = yield* PetstoreClient
      const options = { idempotencyKey: name }
      const [one, other] = yield* Effect.all([
        petstore.create({ name, categoryId: largest }, options),
        petstore.create({ name, categoryId: largest }, options)
      ], { concurrency: 2 })
      assert(one.id === other.id, [one.id, other.id])
      const reused = yield* Effect.flip(petstore.create({ name: "other", categoryId: 1n }, options))
      assert(reused._tag === "IdempotencyKeyReused", reused)
    }),

  "reads the limits of each response, and reports a used up limit": ({ baseUrl, limitedKey }: Settings) =>
    Effect.gen(function*() {
      const petstore = yield* PetstoreClient
      yield* petstore.list({ limit: 1 })
      const limits = Option.getOrThrow(yield* petstore.rateLimit)
      assert(limits.limit === 3 && limits.remaining === 2, limits.remaining)
      // The client does not know of these requests, so it gets a 429.
      const headers = { authorization: `Bearer ${limitedKey}` }
      for (let i = 0; i < 2; i++) yield* Effect.promise(() => fetch(`${baseUrl}/v1/pets?limit=1`, { headers }))
      const limited = yield* Effect.flip(petstore.list({ limit: 1 }))
      assert(limited._tag === "RateLimitExceeded", limited)
      const seconds = limited._tag === "RateLimitExceeded" ? Duration.toSeconds(limited.retryAfter ?? 0) : 0
      assert(seconds > 1 && seconds <= 60, seconds)
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
