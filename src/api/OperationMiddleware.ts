/** Declares the middleware that a server of the API, such as this service or a mock, must implement. */
import { Context, Effect, Layer, Record } from "effect"
import { type HttpRouter, HttpServerRequest, type HttpServerResponse } from "effect/http"
import { type HttpApiEndpoint, HttpApiError, HttpApiMiddleware, OpenApi } from "effect/http-api"
import * as Errors from "./Errors.ts"
import type { Limits, Plan } from "./Plans.ts"
import { describeIssue, hasOnlyIgnorableNames } from "./Text.ts"

export class CurrentKey extends Context.Service<CurrentKey, {
  readonly id: string
  readonly plan: Plan
  readonly limits: Limits
}>()("petstore/api/CurrentKey") {}

/**
 * Requires a valid API key as a bearer token: fails with 401, or 503 if the lookup fails (SPEC §5). Hot path: avoids
 * Effect's `security` option, which runs a generator and copies the headers (measured in docs/performance.md).
 */
export class Auth extends HttpApiMiddleware.Service<Auth, { provides: CurrentKey }>()("petstore/api/Auth", {
  requiredForClient: true,
  error: [Errors.errorResponse(Errors.MissingApiKey, Errors.InvalidApiKey), Errors.serviceUnavailable]
}) {}

/** Counts the API key's allowed requests. Fails with 429 if the key exceeds a limit or is banned (SPEC §5.4, §8). */
export class RateLimit extends HttpApiMiddleware.Service<RateLimit, { requires: CurrentKey }>()(
  "petstore/api/RateLimit",
  { error: Errors.errorResponse(Errors.RateLimitExceeded, Errors.ApiKeyBanned) }
) {}

const places = { Params: "path", Headers: "header", Query: "query", Payload: "body" }

interface RequestFault extends HttpApiError.HttpApiSchemaError {
  readonly kind: keyof typeof places
}

/** A response that cannot be encoded is the fault of the service, so it is no 400. */
const isRequestFault = <E>(error: E): error is E & RequestFault =>
  HttpApiError.HttpApiSchemaError.is(error) && error.kind in places

const invalidErrors = [
  Errors.errorResponse(Errors.InvalidRequest),
  Errors.errorResponse(Errors.ExpectationFailed)
] as const

/**
 * Whether a group ignores unknown query parameters and fields, unless they differ from a known one only in case, `_`
 * and `-`. Its API must set `onExcessProperty: "error"` in `QueryParseOptions`.
 */
export const IgnoresUnknownNames = Context.Reference<boolean>("petstore/api/IgnoresUnknownNames", {
  defaultValue: () => false
})

/** Keeps the query parameters that the endpoint knows. */
const knownParameters = ({ query }: HttpApiEndpoint.Top, sent: HttpServerRequest.ParsedSearchParams["Service"]) => {
  const names = query?.ast._tag === "Objects" ? query.ast.propertySignatures.map(({ name }) => name) : []
  return Record.filter(sent, (_, name) => names.includes(name))
}

const rejectionOf = ({ cause, kind }: RequestFault, ignoresUnknown: boolean): Errors.InvalidRequest => {
  const nameOf = (path: ReadonlyArray<string>) => [places[kind], ...path].join(".")
  const fields = describeIssue(cause.issue, nameOf, { onlyNearMisses: ignoresUnknown })
  return new Errors.InvalidRequest({ message: `Invalid request: ${fields}${fields.endsWith("?") ? "" : "."}` })
}

/** Rejects invalid requests with 400 or 417. */
export class Validation extends HttpApiMiddleware.Service<Validation>()("petstore/api/Validation", {
  error: invalidErrors
}) {
  static readonly layer = Layer.succeed(Validation, (httpEffect, { endpoint, group }) => {
    type Handled = Effect.Effect<
      HttpServerResponse.HttpServerResponse,
      Errors.InvalidRequest | Effect.Error<typeof httpEffect>,
      HttpRouter.Provided
    >
    const ignoresUnknown = Context.get(group.annotations, IgnoresUnknownNames)
    // The handler has not run when the query is invalid, so run the operation again with the known parameters.
    const withKnownParameters = Effect.updateService(
      httpEffect,
      HttpServerRequest.ParsedSearchParams,
      (sent) => knownParameters(endpoint, sent)
    )
    return Effect.catchIf(
      httpEffect,
      isRequestFault,
      (error): Handled =>
        error.kind === "Query" && ignoresUnknown && hasOnlyIgnorableNames(error.cause.issue)
          ? withKnownParameters
          : Effect.fail(rejectionOf(error, ignoresUnknown))
    )
  })
}

/** Reads the body before validation: 408 if slow, 413 if large, 415 if not declared as UTF-8 JSON, 400 if malformed. */
export class RequestBody extends HttpApiMiddleware.Service<RequestBody>()("petstore/api/RequestBody", {
  error: [
    ...invalidErrors,
    Errors.requestTimeout,
    Errors.errorResponse(Errors.PayloadTooLarge),
    Errors.errorResponse(Errors.UnsupportedMediaType)
  ]
}) {}

/** Fails with 503 if too many operations run at once. */
export class ConcurrencyLimit extends HttpApiMiddleware.Service<ConcurrencyLimit>()("petstore/api/ConcurrencyLimit", {
  error: Errors.serviceUnavailable
}) {}

/** Fails with 410 after the sunset date of a deprecated operation. */
export class Sunset extends HttpApiMiddleware.Service<Sunset>()("petstore/api/Sunset", {
  error: Errors.errorResponse(Errors.Gone)
}) {}

export const operationMiddleware = [Auth, RateLimit, Validation, RequestBody, ConcurrencyLimit, Sunset] as const

/** Marks a deprecated endpoint. All its responses carry `headers`, unless Node's parser rejects the request. */
export class Deprecation extends Context.Service<Deprecation, {
  readonly sunset: Date
  readonly successor: string
  readonly headers: Readonly<Record<"deprecation" | "sunset" | "link", string>>
}>()("petstore/api/Deprecation") {}

/**
 * Deprecates an endpoint (SPEC §9.3, RFC 9745, RFC 8594). For a 410 after `sunset`, add the `Sunset` middleware.
 * `policy` is the path of the page that explains the deprecation and the sunset.
 */
export const deprecate = (since: Date, sunset: Date, successor: string, policy: string) => {
  const explained = ["deprecation", "sunset"].map((rel) => `<${policy}>; rel="${rel}"; type="text/html"`)
  const link = [`<${successor}>; rel="successor-version"`, ...explained].join(", ")
  const headers = { deprecation: `@${since.getTime() / 1_000}`, sunset: sunset.toUTCString(), link }
  return Context.add(OpenApi.annotations({ deprecated: true }), Deprecation, { sunset, successor, headers })
}
