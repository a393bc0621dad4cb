/** The state of a request. It changes only by the transitions below, each of which one file calls. */
import { Context, Effect } from "effect"
import type { HttpApiEndpoint } from "effect/http-api"
import { type ApiError, isApiError } from "../api/Errors.ts"
import { redactSecrets } from "../api/Secrets.ts"
import type { Decision } from "../rate-limit/Policy.ts"

/** Details of a rejected API key, only for the access log. */
type RejectedKey = Readonly<Record<"keyId" | "rejection" | "address", string>>

class RequestState {
  readonly requestId: string
  readonly startedAtNs: bigint
  readonly traceId: string | undefined
  endpoint: HttpApiEndpoint.Top | undefined
  keyId: string | undefined
  rejectedKey: RejectedKey | undefined
  /** The decision on the API key. While unset, the request counts against its address. */
  keyDecision: Decision | undefined
  error: ApiError | undefined

  constructor(requestId: string, startedAtNs: bigint, traceId: string | undefined) {
    this.requestId = requestId
    this.startedAtNs = startedAtNs
    this.traceId = traceId
  }

  /** The request has reached the middleware of `endpoint`. */
  routed(endpoint: HttpApiEndpoint.Top): void {
    this.endpoint = endpoint
  }

  authenticated(keyId: string): void {
    this.keyId = keyId
  }

  rejected(key: RejectedKey): void {
    this.rejectedKey = key
  }

  /** The request counts against its API key, also if that does not allow it. */
  charged(decision: Decision): void {
    this.keyDecision = decision
  }

  /** The response is that of `error`. A later failure replaces an earlier one. */
  failed(error: ApiError): void {
    this.error = error
  }
}

export interface RequestContext extends Readonly<RequestState> {}

/** `sentId` is the `X-Request-Id` of the request. */
export const makeRequestContext = (sentId: unknown, startedAtNs: bigint, traceId?: string): RequestContext => {
  // Ignore an id with a secret: `redactSecrets` inserts `…`, which the pattern does not match.
  const isUsable = typeof sentId === "string" && /^[\w.:-]{1,64}$/.test(redactSecrets(sentId))
  return new RequestState(isUsable ? sentId : crypto.randomUUID(), startedAtNs, traceId)
}

export const RequestContext = Context.Reference<RequestContext>("petstore/http/RequestContext", {
  defaultValue: () => Object.freeze(makeRequestContext("none", 0n))
})

export const recordError = (error: unknown) =>
  Effect.map(RequestContext, (context) => {
    if (isApiError(error)) context.failed(error)
  })
