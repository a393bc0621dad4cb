/** Declares the headers of responses. The server, the OpenAPI document and CORS take them from here. */
import type { OpenApi } from "effect/http-api"
import { getPetHeaders } from "./Pets.ts"

type Headers = Readonly<Record<string, OpenApi.OpenAPISpecHeader>>

/** Makes the description of a required response header. The example determines the type of its schema. */
const makeHeader = (
  description: string,
  example: string | number,
  /** The pattern of a text. Without a pattern, the text is always equal to the example. */
  pattern?: RegExp
): OpenApi.OpenAPISpecHeader => ({
  description,
  required: true,
  schema: typeof example === "number"
    ? { type: "integer", examples: [example] }
    : pattern === undefined
    ? { type: "string", const: example }
    : { type: "string", pattern: pattern.source, examples: [example] }
})

/** The headers with the same value in every response, except for documents. */
export const fixedHeaders = {
  // Every response depends on the caller.
  "cache-control": "no-store",
  "x-content-type-options": "nosniff",
  "content-security-policy": "default-src 'none'; frame-ancestors 'none'"
}

const cacheControl: Headers = {
  "Cache-Control": makeHeader("Caches must not store the response.", fixedHeaders["cache-control"])
}

/** The headers of every response. */
const commonHeaders: Headers = {
  "X-RateLimit-Limit": makeHeader("The limit that applies to the caller.", 60),
  "X-RateLimit-Remaining": makeHeader("Requests remaining.", 59),
  "X-RateLimit-Reset": makeHeader("Unix timestamp at which the limit resets.", 1_795_240_800),
  "X-RateLimit-Scope": makeHeader(
    "Whose limits these are: those of the API key or, without a valid one, of the client's address.",
    "key",
    /^(?:key|address)$/
  ),
  "RateLimit-Policy": makeHeader(
    "All limits of the caller.",
    `"minute";q=60;w=60, "day";q=1000;w=86400`,
    /^"minute";q=\d+;w=60, "day";q=\d+;w=86400$/
  ),
  "RateLimit": makeHeader(
    "The remaining requests of each limit, and the seconds until it resets.",
    `"minute";r=59;t=60, "day";r=999;t=86400`,
    /^"minute";r=\d+;t=\d+, "day";r=\d+;t=\d+$/
  ),
  "X-Request-Id": makeHeader(
    "The id of the request: that of its own X-Request-Id if it has 1 to 64 plain characters, else a new one.",
    "01a1fd7a-b6a8-77a5-8e19-8b5b27105fa0",
    /^[\w.:-]{1,64}$/
  ),
  ...cacheControl,
  "X-Content-Type-Options": makeHeader(
    "The media type is that of Content-Type.",
    fixedHeaders["x-content-type-options"]
  ),
  "Content-Security-Policy": makeHeader(
    "A browser runs nothing of the response.",
    fixedHeaders["content-security-policy"]
  )
}

const retryAfter = makeHeader("Seconds to wait before the next request.", 12)

/** The additional headers of responses with certain statuses. */
const statusHeaders: Readonly<Record<string, Headers>> = {
  "401": { "WWW-Authenticate": makeHeader("How to authenticate.", "Bearer") },
  "429": { "Retry-After": retryAfter },
  "503": { "Retry-After": retryAfter }
}

/**
 * The statuses of requests that the service mostly rejects before it knows their operation.
 *
 * Their responses therefore do not have the headers of deprecated operations.
 */
const statusesBeforeRouting = new Set(["408", "431"])

/** The additional headers of responses of deprecated operations. */
const deprecationHeaders: Headers = {
  "Deprecation": makeHeader("The instant of the deprecation (RFC 9745).", getPetHeaders.deprecation),
  "Sunset": makeHeader("The instant of the removal (RFC 8594).", getPetHeaders.sunset),
  "Link": makeHeader("The operation that replaces this one.", getPetHeaders.link)
}

/** The additional headers of one operation with one status, by `operationId status`. */
const operationHeaders: Readonly<Record<string, Headers>> = {
  "listPets 200": {
    "Link": {
      ...makeHeader(
        "The next page, if there is one (RFC 8288).",
        `</v1/pets?cursor=Nw>; rel="next"`,
        /^<\/v1\/pets\?[^>]*cursor=[\w-]+>; rel="next"$/
      ),
      required: false
    }
  },
  "createPet 201": {
    "Location": makeHeader("The path of the new pet.", "/v1/pets/7", /^\/v1\/pets\/-?\d+$/),
    "Idempotent-Replayed": {
      ...makeHeader("Present if an earlier request with the same idempotency key created the pet.", "true"),
      required: false
    }
  }
}

/** Returns the headers of an operation's responses with a status. */
export const headersOf = (operationId: string | undefined, status: string, isDeprecated: boolean): Headers => ({
  ...commonHeaders,
  ...statusHeaders[status],
  ...isDeprecated && !statusesBeforeRouting.has(status) && deprecationHeaders,
  ...operationHeaders[`${operationId} ${status}`]
})

const keyHeaders: Headers = {
  "ETag": makeHeader("The version of the key, for If-Match (RFC 9110 §8.8.3).", `"3"`, /^"\d+"$/)
}

const adminLink = (path: string): Headers => ({
  "Link": {
    ...makeHeader(
      "The next page, if there is one (RFC 8288).",
      `</admin/${path}?limit=20&cursor=Nw>; rel="next"`,
      new RegExp(`^</admin/${path}\\?[^>]*cursor=[\\w-]+[^>]*>; rel="next"$`)
    ),
    required: false
  }
})

/** The additional headers of one operation of the management port with one status, by `operationId status`. */
const adminOperationHeaders: Readonly<Record<string, Headers>> = {
  "listKeys 200": adminLink("keys"),
  "listAudit 200": adminLink("audit"),
  "issueKey 201": keyHeaders,
  "showKey 200": keyHeaders,
  "updateKey 200": keyHeaders,
  "rotateKey 200": keyHeaders
}

/** Returns the headers of the responses of an operation of the management port with a status. */
export const adminHeadersOf = (operationId: string, status: string): Headers => ({
  ...cacheControl,
  ...statusHeaders[status],
  ...adminOperationHeaders[`${operationId} ${status}`]
})

/** Headers that are for the browser and not for the script of a page. */
const browserHeaders = new Set([...Object.keys(fixedHeaders), "www-authenticate"])

/** The headers that a page of an allowed origin may read (Fetch, `Access-Control-Expose-Headers`). */
export const exposedHeaders: ReadonlyArray<string> = [
  ...new Set(
    [commonHeaders, deprecationHeaders, ...Object.values(statusHeaders), ...Object.values(operationHeaders)]
      .flatMap((headers) => Object.keys(headers))
  )
].filter((name) => !browserHeaders.has(name.toLowerCase())).toSorted()
