/** The data about a request that middleware records for the response headers and the access log. */
import { Context } from "effect"
import type { HttpApiEndpoint } from "effect/http-api"
import { redactSecrets } from "../observability/LogText.ts"
import type { Decision } from "../rate-limit/Policy.ts"

export interface ChargedDecision extends Decision {
  /** Set if the limits are those of the client's address instead of an API key. */
  readonly scope?: "address"
}

export class RequestContext extends Context.Service<RequestContext, {
  /** The client's `X-Request-Id` if it is 1 to 64 letters, digits, `_`, `.`, `:` and `-`, else a random UUID. */
  readonly requestId: string
  readonly startedAtNs: bigint
  endpoint?: HttpApiEndpoint.Top
  keyId?: string
  decision?: ChargedDecision
}>()("petstore/http/RequestContext") {
  static readonly make = (sentId: unknown, startedAtNs: bigint): RequestContext["Service"] => ({
    // An id that contains a secret does not match, because `redactSecrets` puts `…` in its place.
    requestId: typeof sentId === "string" && /^[\w.:-]{1,64}$/.test(redactSecrets(sentId))
      ? sentId
      : crypto.randomUUID(),
    startedAtNs
  })
}
