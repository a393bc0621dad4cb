/**
 * The edge: what every answer on the API port has, whatever produced it. The Error body where it is no success, the
 * rate-limit headers, a request id, and one line in the log.
 */
import { Clock, Effect, Metric, Option } from "effect"
import { SecureRandom } from "effect/crypto"
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import { IncomingMessage } from "node:http"
import { ExpectationFailed, InvalidRequest } from "../api/Errors.ts"
import { getPetDeprecation } from "../api/Pets.ts"
import { PetstoreApi } from "../api/PetstoreApi.ts"
import { planLimits } from "../api/Plans.ts"
import type { Decision } from "../rate-limit/Rule.ts"
import { RateLimiter } from "../RateLimiter.ts"
import * as ClientAddress from "./ClientAddress.ts"
import * as Cors from "./Cors.ts"
import { CurrentExchange, Exchange } from "./Exchange.ts"
import * as Failure from "./Failure.ts"
import * as RateLimit from "./RateLimit.ts"

/** Requests by method, route and status, and the seconds that they took (OpenTelemetry: http.server.request.duration). */
const durations = Metric.histogram("http_server_request_duration_seconds", {
  description: "Duration of requests on the API port.",
  boundaries: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5]
})

const answering = Failure.answering(PetstoreApi, ["/openapi.json", "/docs", "/favicon.ico"])

/** What an answer carries whatever it is. All depends on the caller, so that no cache may keep it. */
export const headers = (requestId: string, decision: Decision): Record<string, string> => ({
  ...RateLimit.headers(decision),
  "x-request-id": requestId,
  "cache-control": "no-store",
  "x-content-type-options": "nosniff",
  "content-security-policy": "default-src 'none'; frame-ancestors 'none'"
})

/** What the explorer page may do: run what it brings, and call the service. */
const pageHeaders = {
  "content-security-policy": "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; " +
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}

/** The caller's `X-Request-Id`, if it is short and plain, else one of ours. */
export const requestIds = Effect.map(
  SecureRandom.SecureRandom,
  (random) => (sent: string | undefined): Effect.Effect<string> =>
    sent !== undefined && /^[\w.:-]{1,64}$/.test(sent) ? Effect.succeed(sent) : random.uuidV7()
)

/** Charges who sent a request without a valid key: by its peer and its `X-Forwarded-For`. Also the brake on guessing keys. */
export const charging = Effect.gen(function*() {
  const limiter = yield* RateLimiter
  const clientNetwork = yield* ClientAddress.make
  return (peer: string, forwardedFor: string | undefined, status: number) => {
    const caller = `address:${clientNetwork(peer, forwardedFor)}` as const
    // For a fault of ours it is only shown what is left.
    return status < 500
      ? RateLimit.charge(limiter, caller, "none", planLimits.free)
      : Effect.map(limiter.peek(caller, planLimits.free), (left) => ({ ...left, admitted: true }))
  }
})

/** Deprecation (RFC 9745), end (RFC 8594) and successor of getPet, on every answer of its path. */
const getPetHeaders = {
  deprecation: `@${getPetDeprecation.since.getTime() / 1000}`,
  sunset: getPetDeprecation.sunset.toUTCString(),
  link: `<${getPetDeprecation.successor}>; rel="successor-version"`
}
const getPetPath = /^\/v1\/pets\/[^/]*$/

export const layer = HttpRouter.middleware(
  Effect.gen(function*() {
    const charge = yield* charging
    const requestIdOf = yield* requestIds
    const cors = yield* Cors.make

    return Effect.fnUntraced(function*(httpEffect) {
      const request = yield* HttpServerRequest.HttpServerRequest
      const startedAt = yield* Clock.monotonicTimeNanos
      const requestId = yield* requestIdOf(request.headers["x-request-id"])
      const exchange = new Exchange(requestId)

      let response = yield* answering(refusal(request) ?? httpEffect).pipe(
        Effect.provideService(CurrentExchange, exchange),
        Effect.annotateLogs({ requestId }),
        Effect.onInterrupt(() => report(request, exchange, clientClosedRequest, startedAt))
      )

      let decision = exchange.decision
      if (decision === undefined) {
        const peer = Option.getOrElse(request.remoteAddress, () => "")
        decision = yield* charge(peer, request.headers["x-forwarded-for"], response.status)
        if (!decision.admitted) response = Failure.answer(RateLimit.exceeded(decision))
      }
      response = HttpServerResponse.setHeaders(response, {
        ...headers(requestId, decision),
        ...response.headers["content-type"]?.startsWith("text/html") && pageHeaders,
        ...getPetPath.test(Failure.pathOf(request.url)) && getPetHeaders,
        ...cors(request, response),
        // What is not read of a request is in the way of the next.
        ...isUnread(request) && { connection: "close" }
      })
      yield* report(request, exchange, response.status, startedAt)
      return response
    })
  }),
  { global: true }
)

const badHost = Effect.succeed(
  Failure.answer(new InvalidRequest({ message: "Invalid request: expected one valid Host header." }))
)
const badExpectation = Effect.succeed(
  Failure.answer(new ExpectationFailed({ message: "Expect nothing but 100-continue." }))
)

/** What Node would answer by itself, were it not told to leave it to us: its own answers would carry nothing. */
const refusal = (request: HttpServerRequest.HttpServerRequest) => {
  if (!hasOneHost(request)) return badHost
  const { expect = "100-continue" } = request.headers
  return expect.toLowerCase() === "100-continue" ? undefined : badExpectation
}

const isUnread = ({ headers: sent, source }: HttpServerRequest.HttpServerRequest): boolean =>
  (sent["content-length"] !== undefined || sent["transfer-encoding"] !== undefined) &&
  source instanceof IncomingMessage && !source.complete

const host = /^(?:\[[0-9a-f:.]+\]|[\w.~%!$&'()*+,;=-]*)(?::\d*)?$/i

/** RFC 9112 §3.2. */
const hasOneHost = ({ source }: HttpServerRequest.HttpServerRequest): boolean => {
  if (!(source instanceof IncomingMessage)) return true
  const { headers: { host: given }, httpVersion, rawHeaders } = source
  if (given === undefined) return httpVersion === "1.0"
  return host.test(given) && rawHeaders.filter((name, index) => index % 2 === 0 && isHost(name)).length === 1
}

const isHost = (name: string): boolean => name.length === 4 && name.toLowerCase() === "host"

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
