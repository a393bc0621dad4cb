import { Context, Effect, type Tracer } from "effect"
import type { HttpApiEndpoint } from "effect/http-api"
import { type ApiError, isApiError } from "../api/Errors.ts"
import { redactSecrets } from "../api/Secrets.ts"
import type { Decision } from "../rate-limit/Policy.ts"

export interface RequestContext {
  readonly requestId: string
  readonly startedAtNs: bigint
  traceId?: string
  /** Only if traces are exported: the span of the request. */
  span?: Tracer.Span
  endpoint?: HttpApiEndpoint.Top
  keyId?: string
  /** Details of a rejected API key, only for the access log. Without a key, only the `address`. */
  rejection?: Readonly<Record<"address", string> & Partial<Record<"keyId" | "rejection", string>>>
  /** Set once the request counts against the API key. If unset, `ApiPort.ts` counts it against the address. */
  keyDecision?: Decision
  /** Only for the access log: what rejected the request, a window of its limit or a ban. */
  window?: "minute" | "day" | "ban" | undefined
  error?: ApiError
}

export const makeRequestContext = (sentId: unknown, startedAtNs: bigint): RequestContext => ({
  // Ignore an id with a secret: `redactSecrets` inserts `…`, which the pattern does not match.
  requestId: typeof sentId === "string" && /^[\w.:-]{1,64}$/.test(redactSecrets(sentId)) ? sentId : crypto.randomUUID(),
  startedAtNs
})

export const RequestContext = Context.Reference<RequestContext>("petstore/http/RequestContext", {
  defaultValue: () => Object.freeze(makeRequestContext("none", 0n))
})

export const recordError = (error: unknown) =>
  Effect.map(RequestContext, (context) => {
    if (isApiError(error)) context.error = error
  })
