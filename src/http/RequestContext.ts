import { Context, Effect } from "effect"
import type { HttpApiEndpoint } from "effect/http-api"
import { type ApiError, isApiError } from "../api/Errors.ts"
import { redactSecrets } from "../api/Secrets.ts"
import type { Decision } from "../rate-limit/Policy.ts"

export interface RequestContext {
  readonly requestId: string
  readonly startedAtNs: bigint
  traceId?: string
  endpoint?: HttpApiEndpoint.Top
  keyId?: string
  /** Details of a rejected API key, only for the access log. */
  rejection?: Readonly<Record<"keyId" | "rejection" | "address", string>>
  /** Set once the request counts against the API key. If unset, `ApiPort.ts` counts it against the address. */
  keyDecision?: Decision
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
