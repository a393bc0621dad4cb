import { exposedHeaders } from "../api/ResponseHeaders.ts"

/** The request headers that CORS allows. Effect's clients and tracing libraries add the last three. */
const acceptedHeaders = "Authorization, Content-Type, Idempotency-Key, X-Request-Id, b3, traceparent, tracestate"

export const makeCorsHeaders =
  (origins: ReadonlySet<string>) =>
  (method: string, origin: string | undefined, allow = ""): Readonly<Record<string, string>> | undefined => {
    if (origins.size === 0) return undefined
    if (origin === undefined || !(origins.has("*") || origins.has(origin))) return { vary: "Origin" }
    const granted = { vary: "Origin", "access-control-allow-origin": origin }
    return method !== "OPTIONS"
      ? { ...granted, "access-control-expose-headers": exposedHeaders.join(", ") }
      : {
        ...granted,
        "access-control-allow-methods": allow,
        "access-control-allow-headers": acceptedHeaders,
        "access-control-max-age": "86400"
      }
  }
