/** The facts about one request. Middleware fills them in. The headers and the log line are made from them. */
import { Context } from "effect"
import type { HttpApiEndpoint } from "effect/http-api"
import type { Decision } from "../rate-limit/Policy.ts"

/** A decision on a request that was charged to a key or, with `scope`, to the address of its client. */
export interface ChargedDecision extends Decision {
  readonly scope?: "address"
}

export class Call {
  /** The client's `X-Request-Id` if it is short and plain. Else a random UUID, which says nothing of other requests. */
  readonly requestId: string
  /** The time of arrival by the monotonic clock, in nanoseconds. */
  readonly startedAt: bigint
  /** The endpoint, once the router found it. */
  endpoint: HttpApiEndpoint.Top | undefined = undefined
  /** The id of the caller's API key, once it is verified. */
  keyId: string | undefined = undefined
  /** The rate-limit decision, once the request is charged. */
  decision: ChargedDecision | undefined = undefined

  constructor(sentId: unknown, startedAt: bigint) {
    this.requestId = typeof sentId === "string" && /^[\w.:-]{1,64}$/.test(sentId) ? sentId : crypto.randomUUID()
    this.startedAt = startedAt
  }
}

/** The call of the current request. */
export const CurrentCall = Context.Reference<Call>("petstore/http/Call", {
  defaultValue: () => {
    throw new Error("There is no call outside of a request")
  }
})
