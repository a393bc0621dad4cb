/** The request context: middleware records here what the response headers and the access log need. */
import { Context, Effect } from "effect"
import type { HttpApiEndpoint } from "effect/http-api"
import type { Decision } from "../rate-limit/Policy.ts"

/** With `scope`, the request was charged to the address of its client instead of a key. */
export interface ChargedDecision extends Decision {
  readonly scope?: "address"
}

export class RequestContext extends Context.Service<RequestContext, {
  /** The client's `X-Request-Id` if it is short and plain, else a random UUID. */
  readonly requestId: string
  /** Nanoseconds of the monotonic clock. */
  readonly startedAt: bigint
  /** Absent for documents. */
  endpoint?: HttpApiEndpoint.Top
  keyId?: string
  decision?: ChargedDecision
}>()("petstore/http/RequestContext") {
  static readonly make = (sentId: unknown, startedAt: bigint): RequestContext["Service"] => ({
    requestId: typeof sentId === "string" && /^[\w.:-]{1,64}$/.test(sentId) ? sentId : crypto.randomUUID(),
    startedAt
  })

  /** The context in the middleware of an HttpApi, whose type allows no service of the port. */
  static readonly current = Effect.withFiber(({ context }) =>
    Effect.succeed(Context.getUnsafe(context, RequestContext))
  )
}
