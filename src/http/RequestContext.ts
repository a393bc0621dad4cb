/** Data that middleware records about a request, for the response headers and the access log. */
import { Context, Effect } from "effect"
import type { HttpApiEndpoint } from "effect/http-api"
import { type ApiError, isApiError } from "../api/Errors.ts"
import { redactSecrets } from "../api/Secrets.ts"
import type { Decision } from "../rate-limit/Policy.ts"

/** The caller to charge: the API key once `RateLimit` has run, else the client's address when a response is ready. */
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
  /** The error that the response describes. */
  error?: ApiError
}

export const makeRequestContext = (sentId: unknown, startedAtNs: bigint): RequestContext => ({
  // Do not use an id that contains a secret: `redactSecrets` puts `…` there, which the pattern rejects.
  requestId: typeof sentId === "string" && /^[\w.:-]{1,64}$/.test(redactSecrets(sentId))
    ? sentId
    : crypto.randomUUID(),
  startedAtNs,
  charged: { to: "address" }
})

/** `PortMiddleware` provides a new context to every request. The default context is frozen. */
export const RequestContext = Context.Reference<RequestContext>("petstore/http/RequestContext", {
  defaultValue: () => Object.freeze(makeRequestContext("none", 0n))
})

export const recordError = (error: unknown) =>
  Effect.map(RequestContext, (context) => {
    if (isApiError(error)) context.error = error
  })
