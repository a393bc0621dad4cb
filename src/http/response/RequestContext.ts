/**
 * The request context: facts about the request in progress. Middleware fills it in. The response headers and the log
 * line are made from it.
 */
import { Clock, Context, Effect, type Exit, Tracer } from "effect"
import type { HttpServerResponse } from "effect/http"
import type { Decision } from "../../rate-limit/Policy.ts"
import { AdmissionControl, type Slot } from "../admission/AdmissionControl.ts"

/** A decision on a request that was charged to a key or, with `scope`, to the address of its client. */
export interface ChargedDecision extends Decision {
  readonly scope?: "address"
}

/** The facts about one request. */
export class RequestContext {
  readonly requestId: string
  /** The time of arrival by the monotonic clock, in nanoseconds. */
  readonly startedAt: bigint
  /** The endpoint's path as the contract writes it, once it is known. */
  route: string | undefined = undefined
  /** The id of the caller's API key, once it is verified. */
  keyId: string | undefined = undefined
  /** The rate-limit decision, once the request is charged. */
  decision: ChargedDecision | undefined = undefined
  /** The span of the request, if spans are exported. */
  span: Tracer.Span | undefined = undefined
  /** The outcome on the fast path, if Effect's HTTP server must send the response. */
  outcome: Exit.Exit<HttpServerResponse.HttpServerResponse> | undefined = undefined

  /** The slot of the request in admission control. */
  readonly slot: Slot

  constructor(requestId: string, startedAt: bigint, slot: Slot) {
    this.requestId = requestId
    this.startedAt = startedAt
    this.slot = slot
  }

  /**
   * Returns a function that makes the context of a request that arrives now. The request id is the client's
   * `X-Request-Id` if it is short and plain. Else it is a random UUID (RFC 9562 version 4), which reveals nothing about
   * other requests.
   */
  static readonly making = Effect.gen(function*() {
    const clock = yield* Clock.Clock
    const { newSlot } = yield* AdmissionControl
    return (sentId: unknown): RequestContext =>
      new RequestContext(
        typeof sentId === "string" && /^[\w.:-]{1,64}$/.test(sentId) ? sentId : crypto.randomUUID(),
        clock.monotonicTimeNanosUnsafe(),
        newSlot()
      )
  })
}

/** Adds a request context, and its span as the parent of the spans of the handler. */
export const addRequestContext = <Services>(
  services: Context.Context<Services>,
  requestContext: RequestContext
): Context.Context<Services> => {
  const added = Context.add(services, CurrentRequestContext, requestContext)
  return requestContext.span === undefined ? added : Context.add(added, Tracer.ParentSpan, requestContext.span)
}

/** The context of the current request. The dispatcher or the response middleware provides it. */
export const CurrentRequestContext = Context.Reference<RequestContext>("petstore/http/RequestContext", {
  defaultValue: (): RequestContext => {
    throw new Error("There is no request context outside of a request")
  }
})
