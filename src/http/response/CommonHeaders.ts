/** The headers that every response of the API port carries, on the fast path and through HttpApi. */
import { Effect } from "effect"
import { fixedHeaders } from "../../api/ResponseHeaders.ts"
import { GracefulShutdown } from "../admission/GracefulShutdown.ts"
import * as Cors from "../middleware/Cors.ts"
import * as RateLimiting from "../middleware/RateLimiting.ts"
import type { ChargedDecision } from "./RequestContext.ts"

/** The request and the rate-limit decision that the headers depend on. */
interface ResponseFacts {
  readonly requestId: string
  readonly decision: ChargedDecision
  readonly method: string
  /** The origin of the page for which a browser sends the request. */
  readonly origin: string | undefined
}

type Headers = Readonly<Record<string, string>>

/** The explorer page may run its own scripts and call the service. */
const pageHeaders = {
  "content-security-policy": "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; " +
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}

/** Returns a function that merges the response's own headers, the common headers and the headers of the path. */
export const make = Effect.gen(function*() {
  const cors = yield* Cors.make
  const draining = yield* GracefulShutdown
  return (
    { decision, method, origin, requestId }: ResponseFacts,
    own: Headers = {},
    ofPath?: Headers
  ): Record<string, string> => {
    const headers: Record<string, string> = {
      ...own,
      ...RateLimiting.headers(decision),
      "x-request-id": requestId,
      ...fixedHeaders,
      ...cors.headers(method, origin, own.allow),
      ...draining.begun && { connection: "close" },
      ...own["content-type"]?.startsWith("text/html") === true && pageHeaders,
      ...ofPath
    }
    if (own.vary !== undefined && headers.vary !== own.vary) headers.vary = `${own.vary}, ${headers.vary}`
    return headers
  }
})
