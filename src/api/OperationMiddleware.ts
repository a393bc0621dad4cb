/** The middleware of the operations under `/v1`. The service or a mock server implements it. */
import { Context, Effect } from "effect"
import { HttpApiMiddleware, HttpApiSecurity, OpenApi } from "effect/http-api"
import * as Errors from "./Errors.ts"
import type { Limits, Plan } from "./Plans.ts"
import { describeIssue } from "./Text.ts"

export class CurrentKey extends Context.Service<CurrentKey, {
  readonly id: string
  readonly plan: Plan
  readonly limits: Limits
}>()("petstore/api/CurrentKey") {}

/**
 * Requires an API key as a bearer token (SPEC §5, RFC 6750). Fails with 401 without a valid one. Hot path: avoids
 * Effect's `security` option, which runs a generator and copies the headers (measured: docs/performance.md).
 */
export class Auth extends HttpApiMiddleware.Service<Auth, { provides: CurrentKey }>()("petstore/api/Auth", {
  requiredForClient: true,
  error: [Errors.errorResponse(Errors.MissingApiKey, Errors.InvalidApiKey), Errors.serviceUnavailable]
}) {
  static readonly scheme = HttpApiSecurity.bearer.pipe(
    HttpApiSecurity.annotate(OpenApi.Description, "An API key: `psk_` and 38 letters and digits.")
  )
}

/** Charges the request to its API key. Fails with 429 if the key is banned or over a limit (SPEC §5.4, §8). */
export class RateLimit extends HttpApiMiddleware.Service<RateLimit, { requires: CurrentKey }>()(
  "petstore/api/RateLimit",
  { error: Errors.errorResponse(Errors.RateLimitExceeded, Errors.ApiKeyBanned) }
) {}

const places = { Params: "path", Headers: "header", Query: "query", Payload: "body" }

/** Validates requests (400, 413, 415, 417). Fails with 503 above the limit of concurrent requests. */
export class Validation extends HttpApiMiddleware.Service<Validation>()("petstore/api/Validation", {
  error: [
    Errors.errorResponse(Errors.InvalidRequest),
    Errors.errorResponse(Errors.PayloadTooLarge),
    Errors.errorResponse(Errors.UnsupportedMediaType),
    Errors.errorResponse(Errors.ExpectationFailed),
    Errors.serviceUnavailable
  ]
}) {
  /** Fails with a 400 that names each invalid field. */
  static readonly layer = HttpApiMiddleware.layerSchemaErrorTransform(Validation, (error) => {
    const { cause, kind } = error
    // The response does not encode: a fault of the service, not of the request.
    if (kind === "Body" || kind === "ResponseHeaders") return Effect.fail(error)
    const fields = describeIssue(cause.issue, (path) => [places[kind], ...path].join("."))
    return Effect.fail(new Errors.InvalidRequest({ message: `Invalid request: ${fields}.` }))
  })
}

/** Fails with 410 after the sunset of a deprecated operation (SPEC §9.3). */
export class Sunset extends HttpApiMiddleware.Service<Sunset>()("petstore/api/Sunset", {
  error: Errors.errorResponse(Errors.Gone)
}) {}

/** Annotates an endpoint with headers of every response for its path, whatever the method or status. */
export class PathHeaders extends Context.Service<PathHeaders, Readonly<Record<string, string>>>()(
  "petstore/api/PathHeaders"
) {}
