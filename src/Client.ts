/** Typed clients, derived from the contract. They run wherever `fetch` does. */
import { Config, Context, Data, Duration, Effect, Layer, Option, type Redacted, Schema, Stream } from "effect"
import { SecureRandom } from "effect/crypto"
import { FetchHttpClient, HttpClient, HttpClientError, HttpClientRequest, type HttpClientResponse } from "effect/http"
import { HttpApiClient, HttpApiMiddleware } from "effect/http-api"
import { AdminApi, AdminAuth } from "./api/AdminApi.ts"
import { Auth } from "./api/Auth.ts"
import type * as Errors from "./api/Errors.ts"
import type { NewPet, Pet, PetsPage, PetStatus } from "./api/Pets.ts"
import { PetstoreApi } from "./api/PetstoreApi.ts"
import { defaultPolicy, retrying, type RetryPolicy } from "./client/Retry.ts"

/** There is no answer of the service, or none that it would give. The message says what happened. */
export class PetstoreClientError extends Data.TaggedError("PetstoreClientError")<{
  /** Nobody answers; something else than the service answers; or what was given to the client cannot be sent. */
  readonly reason: "unreachable" | "unexpected_answer" | "invalid_input"
  readonly message: string
  readonly cause: unknown
}> {}

/** What any call may fail with: told apart by `_tag`, or on the wire by `code`. */
export type AnyError =
  | PetstoreClientError
  | Errors.InvalidRequest
  | Errors.MissingApiKey
  | Errors.InvalidApiKey
  | Errors.PayloadTooLarge
  | Errors.UnsupportedMediaType
  | Errors.ExpectationFailed
  | Errors.RequestTimeout
  | Errors.RateLimitExceeded
  | Errors.ApiKeyBanned
  | Errors.HeaderFieldsTooLarge
  | Errors.InternalError
  | Errors.ServiceUnavailable

/** What the last answer said of the limits (SPEC §8): requests, and when the window ends, in Unix seconds. */
export interface RateLimitState {
  readonly limit: number
  readonly remaining: number
  readonly resetAt: number
}

export interface Options {
  /** Where the service is, without `/v1`: `https://petstore.example`. */
  readonly baseUrl: string
  readonly apiKey: Redacted.Redacted
  readonly retry?: Partial<RetryPolicy> | undefined
  /** How long one answer may take: 30 seconds unless told. */
  readonly timeout?: Duration.Input | undefined
}

/**
 * The Petstore service. What comes back as 429 or 503 is sent again when `Retry-After` says so, what gets no answer is
 * sent again where that does no harm; additions are named by an `Idempotency-Key`, so that it does none there.
 */
export class PetstoreClient extends Context.Service<PetstoreClient, {
  /** One page (SPEC §4.1): `next` is the query of the page after it. */
  list(query?: {
    readonly limit?: number
    readonly status?: PetStatus
    readonly cursor?: bigint
  }): Effect.Effect<PetsPage, AnyError>

  /** All animals by ascending id, page after page, as they are asked for. */
  all(options?: { readonly status?: PetStatus; readonly pageSize?: number }): Stream.Stream<Pet, AnyError>

  /**
   * Adds an animal once (SPEC §4.2), however often it has to be sent. Whoever runs the effect again adds another, unless
   * it is given an `idempotencyKey` of theirs.
   */
  create(
    pet: NewPet,
    options?: { readonly idempotencyKey?: string }
  ): Effect.Effect<Pet, AnyError | Errors.IdempotencyKeyReused>

  /** @deprecated It goes on 5 December 2030 (SPEC §4.3). Use `list` or `all` with a status. */
  get(id: bigint): Effect.Effect<Pet, AnyError | Errors.NotFound | Errors.Gone>

  /** What the last answer said of the limits; nothing before the first. */
  readonly rateLimit: Effect.Effect<Option.Option<RateLimitState>>
}>()("petstore/PetstoreClient") {
  /** Over `fetch`. */
  static readonly layer = (options: Options): Layer.Layer<PetstoreClient> =>
    PetstoreClient.layerHttp(options).pipe(Layer.provide(FetchHttpClient.layer))

  /** Over `fetch`, from `PETSTORE_URL` and `PETSTORE_API_KEY` unless `config` says otherwise. */
  static readonly layerConfig = (
    config: Config.Wrap<Options> = {
      baseUrl: Config.String("PETSTORE_URL"),
      apiKey: Config.Redacted("PETSTORE_API_KEY")
    }
  ): Layer.Layer<PetstoreClient, Config.ConfigError> =>
    Layer.unwrap(Effect.map(Config.unwrap(config), PetstoreClient.layer))

  /** Over the `HttpClient` that is there. */
  static readonly layerHttp = (options: Options): Layer.Layer<PetstoreClient, never, HttpClient.HttpClient> =>
    Layer.effect(PetstoreClient, make(options)).pipe(
      Layer.provide(HttpApiMiddleware.layerClient(
        Auth,
        ({ next, request }) => next(HttpClientRequest.bearerToken(request, options.apiKey))
      )),
      Layer.provide(SecureRandom.layerWebCrypto)
    )
}

const make = Effect.fnUntraced(function*({ baseUrl, retry, timeout = "30 seconds" }: Options) {
  const random = yield* SecureRandom.SecureRandom
  let state: RateLimitState | undefined

  const transformClient = (client: HttpClient.HttpClient): HttpClient.HttpClient =>
    client.pipe(
      HttpClient.transform((answer, request) =>
        Effect.gen(function*() {
          const call = yield* CurrentCall
          call.response = undefined
          const response = yield* answer
          // An answer is there when all of it is.
          yield* Effect.mapError(response.text, (cause) => failed(request, "The answer broke off", cause))
          call.response = response
          state = rateLimitOf(response.headers) ?? state
          return response
        })
      ),
      HttpClient.transform((answer, request) =>
        Effect.timeoutOrElse(answer, {
          duration: timeout,
          orElse: () =>
            Effect.fail(failed(request, `No answer within ${Duration.format(Duration.fromInputUnsafe(timeout))}`))
        })
      ),
      retrying({ ...defaultPolicy, ...retry })
    )
  const api = yield* HttpApiClient.make(PetstoreApi, { baseUrl, transformClient })

  const list: PetstoreClient["Service"]["list"] = (query = {}) => told(api.listPets({ query }))

  return PetstoreClient.of({
    list,
    all: ({ pageSize, status } = {}) =>
      Stream.paginate(
        { ...pageSize !== undefined && { limit: pageSize }, ...status && { status } },
        (query) => Effect.map(list(query), ({ next, pets }) => [pets, Option.fromUndefinedOr(next)] as const)
      ),
    create: (pet, { idempotencyKey } = {}) =>
      Effect.flatMap(
        idempotencyKey === undefined ? random.uuidV7() : Effect.succeed(idempotencyKey),
        (key) => told(api.createPet({ payload: pet, headers: { "idempotency-key": key } }))
      ),
    get: (petId) => told(api.getPet({ params: { petId } })),
    rateLimit: Effect.sync(() => Option.fromUndefinedOr(state))
  })
})

const failed = (request: HttpClientRequest.HttpClientRequest, description: string, cause?: unknown) =>
  new HttpClientError.HttpClientError({
    reason: new HttpClientError.TransportError({ request, description, cause })
  })

const rateLimitOf = (headers: Readonly<Record<string, string | undefined>>): RateLimitState | undefined => {
  const [limit = NaN, remaining = NaN, resetAt = NaN] = ["limit", "remaining", "reset"].map((name) =>
    Number(headers[`x-ratelimit-${name}`] ?? NaN)
  )
  return Number.isNaN(limit + remaining + resetAt) ? undefined : { limit, remaining, resetAt }
}

/** The last answer to the call in progress. */
const CurrentCall = Context.Reference<{ response: HttpClientResponse.HttpClientResponse | undefined }>(
  "petstore/Client/CurrentCall",
  { defaultValue: () => ({ response: undefined }) }
)

type Unanswered = HttpClientError.HttpClientError | Schema.SchemaError

const isUnanswered = (error: unknown): error is Unanswered =>
  Schema.isSchemaError(error) || HttpClientError.isHttpClientError(error)

/** Says of what is no error of the API what happened. */
const told = <A, E extends Errors.ApiError>(
  request: Effect.Effect<A, E | Unanswered>
): Effect.Effect<A, E | PetstoreClientError> =>
  Effect.suspend(() => {
    const call: typeof CurrentCall.Service = { response: undefined }
    return request.pipe(
      Effect.provideService(CurrentCall, call),
      Effect.mapError((error) => isUnanswered(error) ? explain(error, call.response) : error)
    )
  })

const explain = (
  cause: Unanswered,
  response: HttpClientResponse.HttpClientResponse | undefined
): PetstoreClientError => {
  if (response !== undefined) {
    const { headers, request: { method, url }, status } = response
    const message = `${method} ${url} answered ${status} with ${headers["content-type"] ?? "no type"}, ` +
      "which is no answer of the Petstore service. Is the address right?"
    return new PetstoreClientError({ reason: "unexpected_answer", message, cause })
  }
  return HttpClientError.isHttpClientError(cause)
    ? new PetstoreClientError({
      reason: "unreachable",
      message: `${cause.request.method} ${cause.request.url}: ${reasonOf(cause)}`,
      cause
    })
    : new PetstoreClientError({ reason: "invalid_input", message: `This cannot be sent: ${cause.message}`, cause })
}

/** The innermost cause that says something. */
const reasonOf = ({ reason }: HttpClientError.HttpClientError): string => {
  let text = "no answer"
  for (let cause: unknown = reason; cause instanceof Error; cause = cause.cause) text = cause.message || text
  return text
}

/** The management API of a running service. */
// @effect-diagnostics-next-line leakingRequirements:off -- the derived client asks for nothing, behind a conditional type
export class AdminClient
  extends Context.Service<AdminClient, HttpApiClient.ForApi<typeof AdminApi>>()("petstore/AdminClient")
{
  /** From `PETSTORE_ADMIN_URL` and `ADMIN_TOKEN`. */
  static readonly layerConfig = Layer.unwrap(Effect.map(
    Config.all({ baseUrl: Config.String("PETSTORE_ADMIN_URL"), token: Config.Redacted("ADMIN_TOKEN") }),
    (options) => AdminClient.layer(options)
  ))

  /** `baseUrl` is the address of the management port, `token` the service's `ADMIN_TOKEN`. */
  static readonly layer = (options: { readonly baseUrl: string; readonly token: Redacted.Redacted }) =>
    Layer.effect(AdminClient, HttpApiClient.make(AdminApi, { baseUrl: options.baseUrl })).pipe(
      Layer.provide(HttpApiMiddleware.layerClient(
        AdminAuth,
        ({ next, request }) => next(HttpClientRequest.bearerToken(request, options.token))
      )),
      Layer.provide(FetchHttpClient.layer)
    )
}
