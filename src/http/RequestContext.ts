/** The facts about one request, from which the headers of its response and its log line are made. */
import { Context, Effect } from "effect"
import type { HttpApiEndpoint } from "effect/http-api"
import type { Decision } from "../rate-limit/Policy.ts"

/** A decision on a request that was charged to a key or, with `scope`, to the address of its client. */
export interface ChargedDecision extends Decision {
  readonly scope?: "address"
}

/** The context of the current request. Middleware sets what it finds out. */
export class RequestContext extends Context.Service<RequestContext, {
  /** The client's `X-Request-Id` if it is short and plain, else a random UUID. */
  readonly requestId: string
  /** The time of arrival by the monotonic clock, in nanoseconds. */
  readonly startedAt: bigint
  /** The endpoint, once its middleware runs. Documents have none. */
  endpoint?: HttpApiEndpoint.Top
  /** The id of the API key, once it is verified. */
  keyId?: string
  /** The rate-limit decision, once the request is charged. */
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
