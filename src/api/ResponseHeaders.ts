/**
 * Declares response headers for OpenAPI and CORS. `completeResponse` of a port adds `fixedHeaders`, unless a route
 * overrides one.
 */
import { adminTokenPrefix, keyPrefix, name as realm } from "./Brand.ts"
import type { Headers } from "./OpenApiTransform.ts"
import { Deprecation } from "./OperationMiddleware.ts"

export const fixedHeaders = {
  "cache-control": "no-store",
  "x-content-type-options": "nosniff",
  "content-security-policy": "default-src 'none'; frame-ancestors 'none'"
}

const header = (description: string, schema: object) => ({ description, required: true, schema })

const fixed = (description: string, value: string) => header(description, { type: "string", const: value })

const headersOfBothPorts = {
  "X-Request-Id": header(
    "The id of the request: its own X-Request-Id if that has 1 to 64 letters, digits, `_`, `.`, `:` or `-`, " +
      `and contains no key or token (\`${keyPrefix}…\`, \`${adminTokenPrefix}…\`), else a new one.`,
    { type: "string", examples: ["01a1fd7a-b6a8-77a5-8e19-8b5b27105fa0"] }
  ),
  "Cache-Control": fixed("Caches must not store the response.", fixedHeaders["cache-control"])
}

const commonHeaders: Headers = {
  "X-RateLimit-Limit": header("The limit that applies to the caller.", { type: "integer", examples: [60] }),
  "X-RateLimit-Remaining": header("Requests remaining.", { type: "integer", examples: [59] }),
  "X-RateLimit-Reset": header("Unix timestamp at which the limit resets.", { type: "integer", examples: [1795240800] }),
  "X-RateLimit-Scope": header(
    "Whose limits these are: the API key's, or the client address's if the request counted against no API key.",
    { type: "string", enum: ["key", "address"] }
  ),
  "RateLimit-Policy": header(
    "All limits of the caller.",
    { type: "string", examples: [`"minute";q=60;w=60, "day";q=1000;w=86400`] }
  ),
  "RateLimit": header("The remaining requests of each limit, and the seconds until it resets.", {
    type: "string",
    examples: [`"minute";r=59;t=60, "day";r=999;t=86400`]
  }),
  ...headersOfBothPorts,
  "X-Content-Type-Options": fixed("Browsers must not override Content-Type.", fixedHeaders["x-content-type-options"]),
  "Content-Security-Policy": fixed("Browsers must not run scripts.", fixedHeaders["content-security-policy"])
}

/** The `WWW-Authenticate` header of a 401. Without a bearer token in the request, it has no `error` (RFC 6750 §3.1). */
export const challenge = {
  missing: `Bearer realm="${realm}"`,
  invalid: `Bearer realm="${realm}", error="invalid_token"`
}

/**
 * The header of a 415 if the request has `Content-Encoding`: the service accepts only uncompressed bodies (RFC 9110
 * §12.5.3).
 */
export const acceptedCodings = { "accept-encoding": "identity" }

const waitSeconds = header("Seconds to wait before the next request.", { type: "integer", examples: [12] })

const statusHeaders: Readonly<Record<string, Headers>> = {
  "401": {
    "WWW-Authenticate": header("The scheme, and `invalid_token` if the request has a bearer token (RFC 6750 §3).", {
      type: "string",
      enum: Object.values(challenge)
    })
  },
  "415": {
    "Accept-Encoding": {
      description: "Present if the request has a content coding: the coding that the service accepts.",
      required: false,
      schema: { type: "string", const: acceptedCodings["accept-encoding"] }
    }
  },
  "429": { "Retry-After": waitSeconds },
  "503": { "Retry-After": waitSeconds }
}

const deprecationHeaders = ({ headers }: Deprecation["Service"]): Headers => ({
  "Deprecation": fixed("The time of the deprecation (RFC 9745).", headers.deprecation),
  "Sunset": fixed("The time of the removal (RFC 8594).", headers.sunset),
  "Link": fixed("The operation that replaces this one, and the page that explains the removal.", headers.link)
})

const statusesBeforeRouting = new Set(["408", "431"])

export const headersOf = (status: string, deprecation: Deprecation["Service"] | undefined): Headers => ({
  ...commonHeaders,
  ...statusHeaders[status],
  ...deprecation && !statusesBeforeRouting.has(status) && deprecationHeaders(deprecation)
})

export const adminHeadersOf = (status: string): Headers => ({ ...headersOfBothPorts, ...statusHeaders[status] })

const browserHeaders = new Set(Object.keys(fixedHeaders))

export const exposedHeaders: ReadonlyArray<string> = [commonHeaders, ...Object.values(statusHeaders)]
  .flatMap((headers) => Object.keys(headers))
  .concat("Allow", "Deprecation", "Idempotent-Replayed", "Link", "Location", "Sunset")
  .filter((name, index, all) => !browserHeaders.has(name.toLowerCase()) && all.indexOf(name) === index).toSorted()
