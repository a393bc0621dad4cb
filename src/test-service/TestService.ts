import { Context, Duration, Effect, Layer, Option, Queue, Ref, References, Schema } from "effect"
import { Headers, HttpClient, HttpClientError, type HttpClientRequest, HttpServerResponse } from "effect/http"
import { ApiKeys } from "../api-keys/ApiKeys.ts"
import { KeyVerifier } from "../api-keys/KeyVerifier.ts"
import { type ApiError, ServiceUnavailable } from "../api/Errors.ts"
import { RetryAfter } from "../api/ErrorSchemas.ts"
import type { NewPet, Pet } from "../api/Pets.ts"
import type { PetstoreClientError } from "../client/ClientError.ts"
import type { Secret } from "../client/Transport.ts"
import { layerMemory, type MakeStore } from "../collection/Collection.ts"
import { PetRepository } from "../pets/PetRepository.ts"
import { RateLimiter } from "../rate-limit/RateLimiter.ts"

/** A request that a client sent. */
export interface SentRequest {
  /** The method, such as `GET`. */
  readonly method: string
  /** The path with the query, such as `/v1/pets?limit=5`. */
  readonly path: string
  /** The headers without `authorization`. Their names are in lower case. */
  readonly headers: Readonly<Record<string, string>>
  /** The text of the body, or an empty string. */
  readonly body: string
  /** The status of the response, or `undefined` if the client got none. */
  readonly status: number | undefined
}

/** Controls the in-memory service: injects faults, and records the requests that clients send. */
export class TestService extends Context.Service<TestService, {
  /** Stores pets, and returns them with their ids. Dies between `becomeUnavailable` and `recover`. */
  insertPets(...pets: ReadonlyArray<NewPet>): Effect.Effect<ReadonlyArray<Pet>>
  /**
   * Uses up a rate limit of the API key. Until the limit resets, requests get 429 `rate_limit_exceeded`, or
   * `api_key_banned` once too many of them were rejected within a minute.
   */
  readonly exhaustLimit: Effect.Effect<void>
  /** Bans the API key, for one minute the first time. Requests get 429 `api_key_banned`. */
  readonly banKey: Effect.Effect<void>
  /** Revokes the API key. Requests get 401 `invalid_api_key`. */
  readonly revokeKey: Effect.Effect<void>
  /**
   * Until `recover` runs, the stores of pets and other resources fail. Requests that use them get 503
   * `service_unavailable`.
   */
  readonly becomeUnavailable: Effect.Effect<void>
  /**
   * Makes the next request fail with `error`, or with a transport error if `error` has no status, such as
   * `Unreachable`. Each call affects one more request.
   */
  failNext(error: ApiError | PetstoreClientError): Effect.Effect<void>
  /** Until `recover` runs, delays requests by `delay`. Uses Effect's `Clock`, so `TestClock` can skip the delay. */
  becomeSlow(delay: Duration.Input): Effect.Effect<void>
  /** Loses the next `count` responses: the service processes the requests, but the client gets a transport error. */
  loseResponses(count: number): Effect.Effect<void>
  /** Ends the injected faults. Used-up limits, bans and the revocation of the API key remain. */
  readonly recover: Effect.Effect<void>
  /** The requests that clients have sent, oldest first. */
  readonly sentRequests: Effect.Effect<ReadonlyArray<SentRequest>>
}>()("petstore/testing/TestService") {}

type Outcome = ApiError | PetstoreClientError | "lost"

const makeFaults = Effect.all({
  isUnavailable: Ref.make(false),
  delay: Ref.make(Duration.zero),
  outcomes: Queue.unbounded<Outcome>(),
  /** The requests by number. Mutable: copying a growing map for each request would take quadratic time. */
  sent: Effect.sync(() => new Map<number, SentRequest>())
})

export class Faults extends Context.Service<Faults, Effect.Success<typeof makeFaults>>()("petstore/testing/Faults") {
  static readonly layer = Layer.effect(Faults, makeFaults)
}

export const withoutInfoLogs = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.provideService(effect, References.MinimumLogLevel, "Warn")

/** Makes stores that fail after `becomeUnavailable`. Each wraps the store in `given`, or else a store in memory. */
export const faultyStores = (given: Context.Context<never>): MakeStore<never, Faults> => (service, table) =>
  Layer.effect(
    service,
    Effect.gen(function*() {
      const { isUnavailable } = yield* Faults
      const store = yield* service
      const failIfUnavailable = Effect.when(Effect.fail(new ServiceUnavailable()), Ref.get(isUnavailable))
      return new Proxy(store, {
        get: (_, name) => {
          const run: unknown = Reflect.get(store, name)
          if (typeof run !== "function") return run
          return (...args: ReadonlyArray<unknown>) =>
            Effect.andThen(failIfUnavailable, Effect.suspend(() => Reflect.apply(run, store, args)))
        }
      })
    })
  ).pipe(Layer.provide(Option.match(Context.getOption(given, service), {
    onNone: () => layerMemory(service, table),
    onSome: (store) => Layer.succeed(service, store)
  })))

const failWith = (error: ApiError | PetstoreClientError, request: HttpClientRequest.HttpClientRequest) => {
  const shown = error._tag === "PetstoreClientError" ? error.reason : error
  if (!("status" in shown)) return noResponse(request, shown.message)
  const { message, status } = shown
  const headers = {
    ..."requestId" in error && { "x-request-id": error.requestId },
    ..."retryAfter" in error && error.retryAfter && { "retry-after": encodeRetryAfter(error.retryAfter) }
  }
  const body = { ..."code" in shown && { code: shown.code }, message, status }
  return Effect.succeed(
    HttpServerResponse.toClientResponse(HttpServerResponse.jsonUnsafe(body, { status, headers }), { request })
  )
}
const encodeRetryAfter = Schema.encodeSync(RetryAfter)

const noResponse = (request: HttpClientRequest.HttpClientRequest, description: string) =>
  Effect.fail(
    new HttpClientError.HttpClientError({ reason: new HttpClientError.TransportError({ request, description }) })
  )

export const layerFaultyClient = Layer.effect(
  HttpClient.HttpClient,
  Effect.gen(function*() {
    const { delay, outcomes, sent } = yield* Faults
    const client = yield* HttpClient.HttpClient
    // `HttpClient.make` below already creates a span for each request, so disable the inner client's span.
    const execute = (request: HttpClientRequest.HttpClientRequest) =>
      Effect.provideService(client.execute(request), HttpClient.TracerDisabledWhen, () => true)
    return HttpClient.make(Effect.fnUntraced(function*(request, { pathname, search }) {
      const { body, headers, method } = request
      const sentRequest: SentRequest = {
        method,
        path: pathname + search,
        headers: Headers.remove(headers, "authorization"),
        body: body._tag === "Uint8Array" ? new TextDecoder().decode(body.body) : "",
        status: undefined
      }
      const number = sent.size
      sent.set(number, sentRequest)
      yield* Effect.sleep(yield* Ref.get(delay))
      const outcome = Option.getOrUndefined(yield* Queue.poll(outcomes))
      const response = yield* outcome === undefined || outcome === "lost"
        ? execute(request)
        : failWith(outcome, request)
      if (outcome === "lost") return yield* noResponse(request, "The response was lost")
      sent.set(number, { ...sentRequest, status: response.status })
      return response
    }))
  })
)

export const makeTestService = Effect.fnUntraced(function*(secret: Secret) {
  const { delay, isUnavailable, outcomes, sent } = yield* Faults
  const [apiKeys, limiter, pets] = [yield* ApiKeys, yield* RateLimiter, yield* PetRepository]
  const { verify } = yield* KeyVerifier
  const key = Effect.orDie(Effect.flatMap(Effect.isEffect(secret) ? secret : Effect.succeed(secret), verify))
  const charge = Effect.flatMap(key, ({ id, limits }) => Effect.orDie(limiter.charge(`key:${id}`, limits)))
  return TestService.of({
    insertPets: (...newPets) =>
      Effect.orDie(Effect.forEach(newPets, (newPet) => Effect.map(pets.create(newPet), ({ item }) => item))),
    exhaustLimit: Effect.gen(function*() {
      const { id, limits } = yield* key
      const { windows } = yield* limiter.peek(`key:${id}`, limits)
      const remaining = Math.min(...windows.map((window) => window.remaining))
      for (let i = 0; i < remaining; i++) yield* limiter.charge(`key:${id}`, limits)
    }).pipe(Effect.orDie),
    banKey: Effect.asVoid(Effect.repeat(charge, { until: ({ bannedUntil }) => bannedUntil !== undefined })),
    revokeKey: Effect.flatMap(key, ({ id }) => withoutInfoLogs(Effect.orDie(apiKeys.revoke(id)))),
    becomeUnavailable: Ref.set(isUnavailable, true),
    failNext: (error) => Queue.offer(outcomes, error),
    becomeSlow: (duration) => Ref.set(delay, Duration.fromInputUnsafe(duration)),
    loseResponses: (count) => Queue.offerAll(outcomes, Array<Outcome>(count).fill("lost")),
    recover: Effect.all([Ref.set(isUnavailable, false), Ref.set(delay, Duration.zero), Queue.clear(outcomes)]),
    sentRequests: Effect.sync(() => [...sent.values()])
  })
})
