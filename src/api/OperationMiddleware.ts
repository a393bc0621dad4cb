/** Declares the middleware of the operations under `/v1`. The service runs it, and a mock server replaces it. */
import { Context, Effect } from "effect"
import { HttpApiMiddleware, HttpApiSecurity, OpenApi } from "effect/http-api"
import * as Errors from "./Errors.ts"
import * as Issue from "./Issue.ts"
import type { Limits, Plan } from "./Plans.ts"

/** The API key of the current request: its id, its plan and its limits, but not its secret. */
export class CurrentKey extends Context.Service<CurrentKey, {
  readonly id: string
  readonly plan: Plan
  readonly limits: Limits
}>()("petstore/api/CurrentKey") {}

/**
 * Returns 401 for a request without a valid API key, sent as a bearer token (SPEC §5, RFC 6750). The scheme is no
 * `security` option, with which Effect runs a generator, copies the headers and makes a new `Redacted` for each
 * request: 3 of the 16 µs of a list without its socket.
 */
export class Auth extends HttpApiMiddleware.Service<Auth, { provides: CurrentKey }>()("petstore/api/Auth", {
  requiredForClient: true,
  error: [Errors.errorResponse(Errors.MissingApiKey, Errors.InvalidApiKey), Errors.serviceUnavailable]
}) {
  static readonly scheme = HttpApiSecurity.bearer.pipe(
    HttpApiSecurity.annotate(OpenApi.Description, "An API key: `psk_` and 38 letters and digits.")
  )
}

/** Returns 429 when the API key of the request exceeded one of its limits or is banned (SPEC §5.4, §8). */
export class RateLimit extends HttpApiMiddleware.Service<RateLimit, { requires: CurrentKey }>()(
  "petstore/api/RateLimit",
  { error: Errors.errorResponse(Errors.RateLimitExceeded, Errors.ApiKeyBanned) }
) {}

const places = { Params: "path", Headers: "header", Query: "query", Payload: "body" }

/** Returns 400, 413, 415 or 417 for an invalid request, and 503 while too many run. */
export class Validation extends HttpApiMiddleware.Service<Validation>()("petstore/api/Validation", {
  error: [
    Errors.errorResponse(Errors.InvalidRequest),
    Errors.errorResponse(Errors.PayloadTooLarge),
    Errors.errorResponse(Errors.UnsupportedMediaType),
    Errors.errorResponse(Errors.ExpectationFailed),
    Errors.serviceUnavailable
  ]
}) {
  /** Returns the 400 that names each invalid field of a request. A service can wrap it in further checks. */
  static readonly layer = HttpApiMiddleware.layerSchemaErrorTransform(Validation, (error) => {
    const { cause, kind } = error
    // A response that does not encode is a fault of the service.
    if (kind === "Body" || kind === "ResponseHeaders") return Effect.fail(error)
    const fields = Issue.describe(cause.issue, (path) => [places[kind], ...path].join("."))
    return Effect.fail(new Errors.InvalidRequest({ message: `Invalid request: ${fields}.` }))
  })
}

/** Returns 410 from the removal of a deprecated operation on (SPEC §9.3). */
export class Sunset extends HttpApiMiddleware.Service<Sunset>()("petstore/api/Sunset", {
  error: Errors.errorResponse(Errors.Gone)
}) {}

/** Headers by name. Every response to a request for the path of the annotated endpoint has them, with any status. */
export class PathHeaders extends Context.Service<PathHeaders, Readonly<Record<string, string>>>()(
  "petstore/api/PathHeaders"
) {}
