/** The data about a request that middleware records for the response headers and the access log. */
import { Context } from "effect"
import type { HttpApiEndpoint } from "effect/http-api"
import { redactSecrets } from "../api/SecretForm.ts"
import type { Decision } from "../rate-limit/Policy.ts"

/** Whom a request is charged to: the API key once `RateLimit` has run, else the client's address after the response. */
type Charged = { readonly to: "address" } | { readonly to: "key"; readonly decision: Decision }

export interface RequestContext {
  /**
   * The client's `X-Request-Id` if it is 1 to 64 letters, digits, `_`, `.`, `:` and `-` without a secret, else a random
   * UUID.
   */
  readonly requestId: string
  readonly startedAtNs: bigint
  /** Set if traces are exported. */
  traceId?: string
  endpoint?: HttpApiEndpoint.Top
  keyId?: string
  /** The id of an API key that was rejected, why, and the client's address, for the log alone. */
  rejection?: Readonly<Record<"keyId" | "rejection" | "address", string>>
  charged: Charged
}

export const makeRequestContext = (sentId: unknown, startedAtNs: bigint): RequestContext => ({
  // An id that contains a secret does not match, because `redactSecrets` puts `…` in its place.
  requestId: typeof sentId === "string" && /^[\w.:-]{1,64}$/.test(redactSecrets(sentId))
    ? sentId
    : crypto.randomUUID(),
  startedAtNs,
  charged: { to: "address" }
})

/** `PortMiddleware` provides it to every request. The default cannot be written to. */
export const RequestContext = Context.Reference<RequestContext>("petstore/http/RequestContext", {
  defaultValue: () => Object.freeze(makeRequestContext("none", 0n))
})
