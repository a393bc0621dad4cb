/** Rejects requests of the API port before a handler runs. */
import { Effect } from "effect"
import * as RateLimiting from "../middleware/RateLimiting.ts"
import { recordResponse } from "../response/AccessLog.ts"
import * as CommonHeaders from "../response/CommonHeaders.ts"
import { RequestContext } from "../response/RequestContext.ts"
import type { Reject } from "./ClientErrors.ts"

/**
 * Returns a function that rejects requests before a handler runs. The request is charged to its address and logged
 * like all others. The client gets 429 instead of the request's own error if the address is over a limit.
 */
export const make = Effect.gen(function*() {
  const addressOf = yield* RateLimiting.makeAddressCaller
  const charge = yield* RateLimiting.makeChargeAddress
  const commonHeaders = yield* CommonHeaders.make
  const newRequestContext = yield* RequestContext.making
  const reject: Reject = Effect.fnUntraced(function*({ error, header, method, peer, url }) {
    const requestContext = newRequestContext(header("x-request-id"))
    const decision = yield* charge(addressOf(peer, header("x-forwarded-for")), false)
    const sent = decision.allowed ? error : RateLimiting.limitExceeded(decision)
    yield* recordResponse({ method, url }, requestContext, sent.status)
    return {
      error: sent,
      headers: commonHeaders({ requestId: requestContext.requestId, decision, method, origin: header("origin") })
    }
  })
  return reject
})
