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
  /** Why an API key was rejected, its id, and the client's address. Only for the access log. */
  rejection?: Readonly<Record<"keyId" | "rejection" | "address", string>>
  charged: Charged
}

export const makeRequestContext = (sentId: unknown, startedAtNs: bigint): RequestContext => ({
  // Replace an id with a secret: `redactSecrets` puts `…` there, which the pattern rejects.
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
