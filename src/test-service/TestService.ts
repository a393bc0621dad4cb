/** The controls of the service in memory: they provoke faults, and report the requests that its client has sent. */
import { Context, Duration, Effect, Layer, type Redacted, References } from "effect"
import { Headers, HttpClient, HttpClientError } from "effect/http"
import { ApiKeys } from "../api-keys/ApiKeys.ts"
import { KeyVerifier } from "../api-keys/KeyVerifier.ts"
import { ServiceUnavailable } from "../api/Errors.ts"
import type { NewPet, Pet } from "../api/Pets.ts"
import { PetRepository } from "../pets/PetRepository.ts"
import { RateLimiter } from "../rate-limit/RateLimiter.ts"

/** A request that the client has sent, and the status of its response. */
export interface SentRequest {
  readonly method: string
  /** The path with the query: `/v1/pets?limit=5`. */
  readonly path: string
  /** The headers, without `authorization`. */
  readonly headers: Readonly<Record<string, string>>
  /** The text of the body. Empty without a body. */
  readonly body: string
  /** The status of the response. `undefined` until the service responds, and if the response was lost. */
  status: number | undefined
}

/** Provokes what a test of an application needs to see, and reports the requests that the client has sent. */
export class TestService extends Context.Service<TestService, {
  /** Stores pets, in this order. */
  insertPets(...pets: ReadonlyArray<NewPet>): Effect.Effect<ReadonlyArray<Pet>>

  /**
   * Uses up the key's limit per minute: the next request gets 429 `rate_limit_exceeded` until the window ends. It
   * charges one request at a time, so a limit of a million takes about a second.
   */
  readonly exhaustLimit: Effect.Effect<void>

  /** Bans the key for a minute, and longer each further time: the next request gets 429 `api_key_banned`. */
  readonly banKey: Effect.Effect<void>

  /** Revokes the key: the next request gets 401 `invalid_api_key`. */
  readonly revokeKey: Effect.Effect<void>

  /** Makes the pets unavailable: requests get 503 `service_unavailable` until `recover`. */
  readonly becomeUnavailable: Effect.Effect<void>

  /** Delays each request by `delay`, by the `Clock`, until `recover`. */
  becomeSlow(delay: Duration.Input): Effect.Effect<void>

  /** Serves the next `count` requests and loses their responses: the client gets a transport error. */
  loseResponses(count: number): Effect.Effect<void>

  /** Ends unavailability, delays and the loss of responses. Limits, bans and a revocation stay. */
  readonly recover: Effect.Effect<void>

  /** The requests that the client has sent, oldest first. */
  readonly sentRequests: Effect.Effect<ReadonlyArray<Readonly<SentRequest>>>
}>()("petstore/testing/TestService") {}

/** The faults of a service in memory, and the requests that its client has sent. */
export class Faults extends Context.Service<Faults, {
  isUnavailable: boolean
  delay: Duration.Duration
  lostResponses: number
  readonly sent: Array<SentRequest>
}>()("petstore/testing/Faults") {
  static readonly layer = Layer.sync(
    Faults,
    () => ({ isUnavailable: false, delay: Duration.zero, lostResponses: 0, sent: [] })
  )
}

/** Logs only warnings and errors: the access log and the audit log would clutter the output of tests. */
export const withoutInfoLogs = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.provideService(effect, References.MinimumLogLevel, "Warn")

/** The pets of the context, which fail as a database that cannot be reached while the service is unavailable. */
export const layerFaultyPets = Layer.effect(
  PetRepository,
  Effect.gen(function*() {
    const faults = yield* Faults
    const pets = yield* PetRepository
    const ifAvailable = <A, E>(effect: Effect.Effect<A, E>): Effect.Effect<A, E> =>
      Effect.suspend(() => faults.isUnavailable ? Effect.die(new ServiceUnavailable()) : effect)
    return PetRepository.of({
      list: (selection) => ifAvailable(pets.list(selection)),
      create: (pet, idempotency) => ifAvailable(pets.create(pet, idempotency)),
      find: (id) => ifAvailable(pets.find(id))
    })
  })
)

/** The client of the context, which delays requests, loses responses, and reports the requests. */
export const layerFaultyClient = Layer.effect(
  HttpClient.HttpClient,
  Effect.gen(function*() {
    const faults = yield* Faults
    const client = yield* HttpClient.HttpClient
    return HttpClient.make(Effect.fnUntraced(function*(request, { pathname, search }) {
      const { body, headers, method } = request
      const sent: SentRequest = {
        method,
        path: pathname + search,
        headers: Headers.remove(headers, "authorization"),
        body: body._tag === "Uint8Array" ? new TextDecoder().decode(body.body) : "",
        status: undefined
      }
      faults.sent.push(sent)
      yield* Effect.sleep(faults.delay)
      const response = yield* client.execute(request)
      if (faults.lostResponses > 0) {
        faults.lostResponses--
        return yield* new HttpClientError.HttpClientError({
          reason: new HttpClientError.TransportError({ request, description: "The response was lost" })
        })
      }
      sent.status = response.status
      return response
    }))
  })
)

/** Makes the `TestService` of the client that uses `secret`. */
export const makeTestService = Effect.fnUntraced(function*(secret: Redacted.Redacted) {
  const faults = yield* Faults
  const [apiKeys, limiter, pets] = [yield* ApiKeys, yield* RateLimiter, yield* PetRepository]
  const key = Effect.orDie((yield* KeyVerifier).verify(secret))
  const charge = Effect.flatMap(key, ({ id, limits }) => limiter.charge(`key:${id}`, limits))
  return TestService.of({
    insertPets: (...newPets) =>
      Effect.orDie(Effect.forEach(newPets, (newPet) => Effect.map(pets.create(newPet), ({ pet }) => pet))),
    exhaustLimit: Effect.gen(function*() {
      const { id, limits } = yield* key
      const { windows } = yield* limiter.peek(`key:${id}`, limits)
      const remaining = Math.min(...windows.map((window) => window.remaining))
      for (let i = 0; i < remaining; i++) yield* limiter.charge(`key:${id}`, limits)
    }),
    banKey: Effect.asVoid(Effect.repeat(charge, { until: ({ bannedUntil }) => bannedUntil !== undefined })),
    revokeKey: Effect.flatMap(key, ({ id }) => withoutInfoLogs(Effect.orDie(apiKeys.revoke(id)))),
    becomeUnavailable: Effect.sync(() => {
      faults.isUnavailable = true
    }),
    becomeSlow: (delay) =>
      Effect.sync(() => {
        faults.delay = Duration.fromInputUnsafe(delay)
      }),
    loseResponses: (count) =>
      Effect.sync(() => {
        faults.lostResponses = count
      }),
    recover: Effect.sync(() => {
      Object.assign(faults, { isUnavailable: false, delay: Duration.zero, lostResponses: 0 })
    }),
    sentRequests: Effect.sync(() => [...faults.sent])
  })
})
