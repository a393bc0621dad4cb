/** The state of a request, from its head to its access log line. It changes only by the methods of `RequestState`. */
import { Context, type Tracer } from "effect"
import type { HttpApiEndpoint } from "effect/http-api"
import * as Brand from "../api/Brand.ts"
import { type ApiError, isApiError } from "../api/Errors.ts"
import { redactSecrets } from "../api/Secrets.ts"
import type { RejectingWindow } from "../rate-limit/LimitHeaders.ts"
import type { Decision } from "../rate-limit/Policy.ts"

/** For the access log: the client's address and, if the API key was rejected, its id (or `none`) and the reason. */
type RejectedKey = Readonly<Record<"address", string> & Partial<Record<"keyId" | "rejection", string>>>

class RequestState {
  readonly requestId: string
  readonly startedAtNs: bigint
  readonly traceId: string | undefined
  endpoint: HttpApiEndpoint.Top | undefined
  keyId: string | undefined
  rejectedKey: RejectedKey | undefined
  /**
   * The rate limiter's decision on the API key. If it is unset at the end of the request, the request can count against
   * the client's address.
   */
  keyDecision: Decision | undefined
  /** For the access log: the window (`minute` or `day`) or the `ban` that rejected the request. */
  window: RejectingWindow | undefined
  error: ApiError | undefined

  readonly #span: Tracer.Span | undefined

  constructor(requestId: string, startedAtNs: bigint, span: Tracer.AnySpan | undefined) {
    this.requestId = requestId
    this.startedAtNs = startedAtNs
    this.traceId = span?.traceId
    this.#span = span?._tag === "Span" ? span : undefined
    this.#span?.attribute(`${Brand.name}.request.id`, requestId)
  }

  /** The request has reached the middleware of `endpoint`. */
  routed(endpoint: HttpApiEndpoint.Top): void {
    this.endpoint = endpoint
  }

  authenticated(keyId: string): void {
    this.keyId = keyId
    this.#span?.attribute(`${Brand.name}.key.id`, keyId)
  }

  rejected(key: RejectedKey): void {
    this.rejectedKey = key
  }

  /** The limiter has decided on the API key. So even a rejected request does not count against the address. */
  charged(decision: Decision): void {
    this.keyDecision = decision
  }

  /** The request is over the limits of its API key or of its `address`, or its API key is banned. */
  exceeded(window: RejectingWindow | undefined, address?: string): void {
    this.window = window
    if (address !== undefined) this.rejectedKey ??= { address }
  }

  /** The response shows `error`. A later error replaces an earlier one. */
  failed(error: ApiError): void {
    this.error = error
  }
}

export interface RequestContext extends Readonly<RequestState> {}

/** Makes the state of a request. `sentId` is the request's `X-Request-Id`. */
export const makeRequestContext = (sentId: unknown, startedAtNs: bigint, span?: Tracer.AnySpan): RequestContext => {
  // If the id contains a secret, `redactSecrets` writes `…` instead. The pattern rejects `…`, so a new id is made.
  const isUsable = typeof sentId === "string" && /^[\w.:-]{1,64}$/.test(redactSecrets(sentId))
  return new RequestState(isUsable ? sentId : crypto.randomUUID(), startedAtNs, span)
}

/** `RequestLifecycle` makes one for each request. The default is frozen, so changing it outside of a request throws. */
export const RequestContext = Context.Reference<RequestContext>("petstore/http/RequestContext", {
  defaultValue: () => Object.freeze(makeRequestContext("none", 0n))
})

export const recordError = (error: unknown) =>
  RequestContext.useSync((context) => {
    if (isApiError(error)) context.failed(error)
  })
