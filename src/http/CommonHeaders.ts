/** The headers that every response of the API port carries, with those of cross-origin requests (Fetch §3.2). */
import { Effect } from "effect"
import { exposedHeaders, fixedHeaders } from "../api/ResponseHeaders.ts"
import { corsOrigins } from "../config/HttpSettings.ts"
import type { ChargedDecision } from "./Call.ts"
import { GracefulShutdown } from "./GracefulShutdown.ts"
import * as RateLimiting from "./RateLimiting.ts"

/** The request and the rate-limit decision that the headers depend on. */
interface Facts {
  readonly requestId: string
  readonly decision: ChargedDecision
  readonly method: string
  /** The origin of the page for which a browser sends the request. */
  readonly origin: string | undefined
}

type Headers = Readonly<Record<string, string>>

const exposed = exposedHeaders.join(", ")

/** The accepted headers include trace context, which clients send unasked. */
const accepted = ["Authorization", "Content-Type", "Idempotency-Key", "X-Request-Id", "b3", "traceparent", "tracestate"]
  .join(", ")

/** Returns a predicate for origins whose pages may call, and a function that makes the headers of a response. */
export const make = Effect.gen(function*() {
  const origins = new Set(yield* corsOrigins.config)
  const draining = yield* GracefulShutdown

  const mayCall = (origin: string | undefined): origin is string =>
    origin !== undefined && (origins.has("*") || origins.has(origin))

  /** Returns the headers for the page at `origin`. For OPTIONS they name the methods in `allow`. */
  const ofOrigin = (method: string, origin: string | undefined, allow = ""): Headers | undefined => {
    if (origins.size === 0) return undefined
    if (!mayCall(origin)) return { vary: "Origin" }
    const granted = { vary: "Origin", "access-control-allow-origin": origin }
    return method === "OPTIONS"
      ? {
        ...granted,
        "access-control-allow-methods": allow,
        "access-control-allow-headers": accepted,
        "access-control-max-age": "86400"
      }
      : { ...granted, "access-control-expose-headers": exposed }
  }

  /** Merges the response's own headers, the common headers and the headers of the path. */
  const headersOf = ({ decision, method, origin, requestId }: Facts, own: Headers, ofPath?: Headers): Headers => {
    const headers: Record<string, string> = {
      ...own,
      ...RateLimiting.headers(decision),
      "x-request-id": requestId,
      ...fixedHeaders,
      // A document has its own caching, and may have its own policy.
      ...own["cache-control"] !== undefined && own,
      ...ofOrigin(method, origin, own.allow),
      ...draining.begun && { connection: "close" },
      ...ofPath
    }
    if (own.vary !== undefined && headers.vary !== own.vary) headers.vary = `${own.vary}, ${headers.vary}`
    return headers
  }

  return { headersOf, mayCall }
})
