/**
 * Declares the middleware that a server of the API, such as this service or a mock, must have. `Validation.layer` and
 * `Sunset.layer` are for any server.
 */
import { Context, Effect, Layer } from "effect"
import { HttpServerRequest } from "effect/http"
import { type HttpApiEndpoint, HttpApiError, HttpApiMiddleware, OpenApi } from "effect/http-api"
import { describeIssue, describeUnknown, maxNamed, nearMissOf } from "./DescribeIssue.ts"
import * as Errors from "./Errors.ts"
import { errorResponse, requestTimeout, serviceUnavailable } from "./ErrorSchemas.ts"
import type { Limits, Plan } from "./Plans.ts"

/** The API key of the request, which `Auth` provides. */
export class CurrentKey extends Context.Service<CurrentKey, {
  /** The id, which is not secret. */
  readonly id: string
  /** The plan. */
  readonly plan: Plan
  /** The limits of the plan, or of the key on plan enterprise. */
  readonly limits: Limits
}>()("petstore/api/CurrentKey") {}

/**
 * Requires a valid API key as a bearer token. Fails with 401, or with 503 if the lookup of the key fails (SPEC §5). Hot
 * path: avoids Effect's `security` option, with which a get would run 18 % more Effect operations
 * (docs/performance.md).
 */
export class Auth extends HttpApiMiddleware.Service<Auth, { provides: CurrentKey }>()("petstore/api/Auth", {
  requiredForClient: true,
  error: [errorResponse(Errors.InvalidApiKey, Errors.MissingApiKey), serviceUnavailable]
}) {}

/**
 * Counts the request against the limits of the API key. Fails with 429 if the key exceeds a limit or is banned (SPEC
 * §5.4, §8), and with 503 if the key's counts cannot be loaded, or too many counts cannot be saved.
 */
export class RateLimit extends HttpApiMiddleware.Service<RateLimit, { requires: CurrentKey }>()(
  "petstore/api/RateLimit",
  { error: [errorResponse(Errors.RateLimitExceeded, Errors.ApiKeyBanned), serviceUnavailable] }
) {}

const places = { Params: "path", Headers: "header", Query: "query", Payload: "body" }

interface RequestFault extends HttpApiError.HttpApiSchemaError {
  readonly kind: keyof typeof places
}

/** False for a response that cannot be encoded: that is the fault of the service, and must not become a 400. */
const isRequestFault = <E>(error: E): error is E & RequestFault =>
  HttpApiError.HttpApiSchemaError.is(error) && error.kind in places

const invalidErrors = [
  errorResponse(Errors.InvalidRequest),
  errorResponse(Errors.ExpectationFailed)
] as const

/**
 * If `true`, the endpoints of a group ignore unknown query parameters, but reject near misses: names that equal a known
 * one apart from case, `_` and `-`. A 400 then reports no other names as unknown, nor in a body. If `false`, the parse
 * options of the API decide, and a 400 also reports the unknown names that they reject.
 */
export const IgnoresUnknownNames = Context.Reference<boolean>("petstore/api/IgnoresUnknownNames", {
  defaultValue: () => false
})

const invalid = (fields: string) =>
  new Errors.InvalidRequest({ message: `Invalid request: ${fields}${fields.endsWith("?") ? "" : "."}` })

/**
 * Returns a function that describes the near misses in a query. The parse options of the API cannot reject only near
 * misses: they reject all unknown names or none.
 */
const nearMissesIn = ({ query }: HttpApiEndpoint.Top) => {
  const known = query?.ast._tag === "Objects" ? query.ast.propertySignatures.map(({ name }) => String(name)) : []
  const names = new Set(known)
  return (sent: HttpServerRequest.ParsedSearchParams["Service"]): string =>
    Object.keys(sent)
      .filter((name) => !names.has(name) && nearMissOf(name, known) !== undefined)
      .map((name) => describeUnknown(`${places.Query}.${name}`, name, known)).slice(0, maxNamed).join("; ")
}

/** Rejects invalid requests with 400 or 417. */
export class Validation extends HttpApiMiddleware.Service<Validation>()("petstore/api/Validation", {
  error: invalidErrors
}) {
  /** An implementation for any server of the API. Fails with 400 and the same messages as the service. */
  static readonly layer = Layer.succeed(Validation, (httpEffect, { endpoint, group }) => {
    const ignoresUnknown = Context.get(group.annotations, IgnoresUnknownNames)
    const validated = Effect.catchIf(httpEffect, isRequestFault, ({ cause, kind }) => {
      const nameOf = (path: ReadonlyArray<string>) => [places[kind], ...path].join(".")
      return Effect.fail(invalid(describeIssue(cause.issue, nameOf, { onlyNearMisses: ignoresUnknown })))
    })
    if (!ignoresUnknown || endpoint.query === undefined) return validated
    const findNearMisses = nearMissesIn(endpoint)
    return HttpServerRequest.ParsedSearchParams.use((sent): typeof validated => {
      const nearMisses = findNearMisses(sent)
      return nearMisses === "" ? validated : Effect.fail(invalid(nearMisses))
    })
  })
}

/**
 * Reads the body before `Validation`. Fails with 408 if the body arrives too slowly, 413 if it is too large, arrives in
 * too many pieces or has too long chunk extensions, 415 if the headers do not declare it as uncompressed UTF-8 JSON,
 * 400 if it is malformed, and 417 if `Expect` has an unknown value.
 */
export class RequestBody extends HttpApiMiddleware.Service<RequestBody>()("petstore/api/RequestBody", {
  error: [
    ...invalidErrors,
    requestTimeout,
    errorResponse(Errors.PayloadTooLarge),
    errorResponse(Errors.UnsupportedMediaType)
  ]
}) {}

/** Bounds how many operations run at once. Fails with 503 if an operation waits too long for a slot. */
export class ConcurrencyLimit extends HttpApiMiddleware.Service<ConcurrencyLimit>()("petstore/api/ConcurrencyLimit", {
  error: serviceUnavailable
}) {}

/** Fails with 410 from the sunset date of a deprecated operation on. */
export class Sunset extends HttpApiMiddleware.Service<Sunset>()("petstore/api/Sunset", {
  error: errorResponse(Errors.Gone)
}) {
  /** An implementation for any server of the API. Fails with 410 and the same message as the service. */
  static readonly layer = Layer.succeed(Sunset, (httpEffect, { endpoint }) => {
    type Handled = Effect.Effect<Effect.Success<typeof httpEffect>, Errors.Gone | Effect.Error<typeof httpEffect>>
    const deprecation = Context.getOrUndefined(endpoint.annotations, Deprecation)
    if (deprecation === undefined) return httpEffect
    const { successor, sunset } = deprecation
    const removed = Effect.fail(new Errors.Gone({ message: `This operation was removed. Use GET ${successor}.` }))
    return Effect.clockWith((clock): Handled =>
      clock.currentTimeMillisUnsafe() < sunset.getTime() ? httpEffect : removed
    )
  })
}

/**
 * The middleware of an operation without a body, in the order in which it runs. Before it run `Auth` and `RateLimit`
 * (under `/v1`) or `AdminAuth` (under `/admin`).
 */
export const operationSteps = [ConcurrencyLimit, Validation] as const

/** As `operationSteps`, for an operation with a body. Reads the body first, so that a slow body holds no slot. */
export const bodySteps = [RequestBody, ...operationSteps] as const

/** All middleware that operations under `/v1` declare. `inOrder` and `inOrderForAll` set its order, not this list. */
export const operationMiddleware = [Auth, RateLimit, RequestBody, ConcurrencyLimit, Validation, Sunset] as const

/** Marks a deprecated endpoint. `headers` are for the responses to its requests. */
export class Deprecation extends Context.Service<Deprecation, {
  readonly sunset: Date
  readonly successor: string
  readonly headers: Readonly<Record<"deprecation" | "sunset" | "link", string>>
}>()("petstore/api/Deprecation") {}

/**
 * Deprecates an endpoint (SPEC §9.3, RFC 9745, RFC 8594). For a 410 from `sunset` on, add the `Sunset` middleware.
 * `policy` is the path of the page that explains the deprecation and the sunset.
 */
export const deprecate = (since: Date, sunset: Date, successor: string, policy: string) => {
  const explained = ["deprecation", "sunset"].map((rel) => `<${policy}>; rel="${rel}"; type="text/html"`)
  const link = [`<${successor}>; rel="successor-version"`, ...explained].join(", ")
  const headers = { deprecation: `@${since.getTime() / 1_000}`, sunset: sunset.toUTCString(), link }
  return Context.add(OpenApi.annotations({ deprecated: true }), Deprecation, { sunset, successor, headers })
}
