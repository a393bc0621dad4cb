/**
 * What is known of the request in progress: filled in by the middleware that it passes, read for the headers of the
 * answer and for the log line.
 */
import { Clock, Context, Effect, type Exit } from "effect"
import type { HttpServerResponse } from "effect/http"
import { randomUUID } from "node:crypto"
import type { Decision } from "../../rate-limit/Policy.ts"
import { AdmissionControl, type Slot } from "../node/AdmissionControl.ts"

export class RequestContext {
  readonly requestId: string
  /** When the request came, by the monotonic clock: nanoseconds. */
  readonly startedAt: bigint
  /** The path of the endpoint as the contract writes it, once it is known. */
  route: string | undefined = undefined
  /** The id of the caller's API key, once it is verified. */
  keyId: string | undefined = undefined
  /** What the rate limiter decided, once the request is charged to somebody. */
  decision: Decision | undefined = undefined
  /** What came of the request on the fast path, for Effect's HTTP server to respond with. */
  outcome: Exit.Exit<HttpServerResponse.HttpServerResponse> | undefined = undefined

  /** The slot of the request among those in flight. */
  readonly slot: Slot

  constructor(requestId: string, startedAt: bigint, slot: Slot) {
    this.requestId = requestId
    this.startedAt = startedAt
    this.slot = slot
  }

  /**
   * Begins exchanges, now, each under the `X-Request-Id` that its client sent, if that is short and plain, else under a
   * random UUID (RFC 9562 version 4), which says nothing of other requests.
   */
  static readonly making = Effect.gen(function*() {
    const clock = yield* Clock.Clock
    const { newSlot } = yield* AdmissionControl
    return (sentId: unknown): RequestContext =>
      new RequestContext(
        typeof sentId === "string" && /^[\w.:-]{1,64}$/.test(sentId) ? sentId : randomUUID(),
        clock.monotonicTimeNanosUnsafe(),
        newSlot()
      )
  })
}

/** The long way sets it for each request. */
export const CurrentRequestContext = Context.Reference<RequestContext>("petstore/http/Exchange", {
  defaultValue: (): RequestContext => {
    throw new Error("There is no request context outside of a request")
  }
})
