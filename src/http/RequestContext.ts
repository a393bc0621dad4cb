/** The data about a request that middleware records for the response headers and the access log. */
import { Context } from "effect"
import type { HttpApiEndpoint } from "effect/http-api"
import type { Decision } from "../rate-limit/Policy.ts"

export interface ChargedDecision extends Decision {
  /** Set if the limits are those of the client's address instead of an API key. */
  readonly scope?: "address"
}

export class RequestContext extends Context.Service<RequestContext, {
  /** The client's `X-Request-Id` if it is 1 to 64 letters, digits, `_`, `.`, `:` and `-`, else a random UUID. */
  readonly requestId: string
  readonly startedAtNs: bigint
  /** Set if traces are exported. */
  traceId?: string
  endpoint?: HttpApiEndpoint.Top
  keyId?: string
  /** The id of an API key that was rejected, why, and the client's address, for the log alone. */
  rejection?: Readonly<Record<"keyId" | "rejection" | "address", string>>
  decision?: ChargedDecision
}>()("petstore/http/RequestContext") {
  static readonly make = (sentId: unknown, startedAtNs: bigint): RequestContext["Service"] => ({
    requestId: typeof sentId === "string" && /^[\w.:-]{1,64}$/.test(sentId) ? sentId : crypto.randomUUID(),
    startedAtNs
  })
}
