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
      // A document has its own caching, and may have its own policy.
      ...own["cache-control"] === undefined ? fixedHeaders : { ...fixedHeaders, ...own },
      ...cors.headers(method, origin, own.allow),
      ...draining.begun && { connection: "close" },
      ...ofPath
    }
    if (own.vary !== undefined && headers.vary !== own.vary) headers.vary = `${own.vary}, ${headers.vary}`
    return headers
  }
})
