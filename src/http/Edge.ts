/**
 * The edge: what every answer on the API port has, whatever produced it. The Error body where it is no success, the
 * rate-limit headers, a request id, and one line in the log.
 */
import { Clock, Effect, Metric } from "effect"
import { SecureRandom } from "effect/crypto"
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import { PetstoreApi } from "../api/PetstoreApi.ts"
import { planLimits } from "../api/Plans.ts"
import { RateLimiter } from "../RateLimiter.ts"
import * as ClientAddress from "./ClientAddress.ts"
import { CurrentExchange, Exchange } from "./Exchange.ts"
import * as Failure from "./Failure.ts"
import * as RateLimit from "./RateLimit.ts"

/** Requests by method, route and status, and the seconds that they took (OpenTelemetry: http.server.request.duration). */
const durations = Metric.histogram("http_server_request_duration_seconds", {
  description: "Duration of requests on the API port.",
  boundaries: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5]
})

const answering = Failure.answering(PetstoreApi, ["/openapi.json"])

export const layer = HttpRouter.middleware(
  Effect.gen(function*() {
    const limiter = yield* RateLimiter
    const random = yield* SecureRandom.SecureRandom
    const clientNetwork = yield* ClientAddress.make

    /** Who sent a request without a valid key is charged for it; for a fault of ours, only shown what is left. */
    const chargeAddress = (request: HttpServerRequest.HttpServerRequest, status: number) => {
      const caller = `address:${clientNetwork(request)}` as const
      return status < 500
        ? RateLimit.charge(limiter, caller, "none", planLimits.free)
        : Effect.map(limiter.peek(caller, planLimits.free), (left) => ({ ...left, admitted: true }))
    }

    return Effect.fnUntraced(function*(httpEffect) {
      const request = yield* HttpServerRequest.HttpServerRequest
      const startedAt = yield* Clock.monotonicTimeNanos
      const exchange = new Exchange(yield* random.uuidV7())

      let response = yield* answering(httpEffect).pipe(
        Effect.provideService(CurrentExchange, exchange),
        Effect.annotateLogs({ requestId: exchange.requestId }),
        Effect.onInterrupt(() => report(request, exchange, clientClosedRequest, startedAt))
      )

      let decision = exchange.decision
      if (decision === undefined) {
        // This is also the brake on guessing keys.
        decision = yield* chargeAddress(request, response.status)
        if (!decision.admitted) response = Failure.answer(RateLimit.exceeded(decision))
      }
      response = HttpServerResponse.setHeaders(response, {
        ...RateLimit.headers(decision),
        "x-request-id": exchange.requestId
      })
      yield* report(request, exchange, response.status, startedAt)
      return response
    })
  }),
  { global: true }
)

/** What the log says of a request whose caller went away before the answer (nginx's code for it). */
const clientClosedRequest = 499

const report = Effect.fnUntraced(function*(
  request: HttpServerRequest.HttpServerRequest,
  { keyId = "none", requestId, route = "none" }: Exchange,
  status: number,
  startedAt: bigint
) {
  const durationMs = Number((yield* Clock.monotonicTimeNanos) - startedAt) / 1e6
  const { method } = request
  yield* Metric.update(
    Metric.withAttributes(durations, { method, route, status: String(status) }),
    durationMs / 1000
  )
  yield* Effect.annotateLogs(Effect.logInfo("request"), { method, route, status, durationMs, keyId, requestId })
})
