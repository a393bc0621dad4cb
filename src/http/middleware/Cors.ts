/** Cross-origin requests: which pages of other origins may call the API from a browser (Fetch §3.2). */
import { Effect } from "effect"
import { exposedHeaders } from "../../api/ResponseHeaders.ts"
import { corsOrigins } from "../../config/HttpSettings.ts"

const exposed = exposedHeaders.join(", ")

/** The accepted headers include trace context, which clients send unasked. */
const accepted = ["Authorization", "Content-Type", "Idempotency-Key", "X-Request-Id", "b3", "traceparent", "tracestate"]
  .join(", ")

/** Returns the CORS headers of responses, and a predicate for preflights. */
export const make = Effect.gen(function*() {
  const allowed = new Set(yield* corsOrigins.config)

  const mayCall = (origin: string | undefined): origin is string =>
    origin !== undefined && (allowed.has("*") || allowed.has(origin))

  /** Whether a request is a preflight for a page that may call (Fetch §4.8). */
  const isPreflight = (method: string, sent: Readonly<Record<string, string | undefined>>): boolean =>
    method === "OPTIONS" && mayCall(sent.origin) && sent["access-control-request-method"] !== undefined

  /** Returns the headers for the page at `origin`. For OPTIONS they name the methods in `allow`. */
  const headers = (
    method: string,
    origin: string | undefined,
    allow = ""
  ): Readonly<Record<string, string>> | undefined => {
    if (allowed.size === 0) return undefined
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

  return { headers, isPreflight }
})
