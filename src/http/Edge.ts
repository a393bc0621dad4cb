/**
 * The edge: what every answer on the API port has, whatever produced it. The Error body where it is no success, the
 * rate-limit headers, a request id, and one line in the log.
 */
import { Clock, Effect, Exit, Option } from "effect"
import { SecureRandom } from "effect/crypto"
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import { IncomingMessage } from "node:http"
import { InvalidRequest, ServiceUnavailable } from "../api/Errors.ts"
import { PetstoreApi } from "../api/PetstoreApi.ts"
import { planLimits } from "../api/Plans.ts"
import type { Decision } from "../rate-limit/Rule.ts"
import { RateLimiter } from "../RateLimiter.ts"
import * as ClientAddress from "./ClientAddress.ts"
import * as Cors from "./Cors.ts"
import { Draining } from "./Draining.ts"
import { CurrentExchange, Exchange } from "./Exchange.ts"
import * as Failure from "./Failure.ts"
import * as Pets from "./Pets.ts"
import * as Plain from "./Plain.ts"
import * as RateLimit from "./RateLimit.ts"
import { clientClosedRequest, report } from "./Report.ts"
import { UnderWay } from "./UnderWay.ts"

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

/**
 * The caller's `X-Request-Id`, if it is short and plain, else one of ours: a UUID that is random for this process, and
 * counts on for each request, which takes no randomness of its own.
 */
export const requestIds = Effect.gen(function*() {
  const random = yield* SecureRandom.SecureRandom
  const ofProcess = (yield* random.uuidV7()).slice(0, -12)
  let count = 0
  return (sent: unknown): string =>
    typeof sent === "string" && /^[\w.:-]{1,64}$/.test(sent)
      ? sent
      : ofProcess + (++count).toString(16).padStart(12, "0")
})

/**
 * Charges who sent a request without a valid key: by its peer and its `X-Forwarded-For`. Also the brake on guessing
 * keys.
 */
export const charging = Effect.gen(function*() {
  const limiter = yield* RateLimiter
  const clientNetwork = yield* ClientAddress.make
  return (peer: string, forwardedFor: string | undefined, isFree: boolean) => {
    const caller = `address:${clientNetwork(peer, forwardedFor)}` as const
    // It is only shown what is left.
    return !isFree
      ? RateLimit.charge(limiter, caller, "none", planLimits.free)
      : Effect.map(limiter.peek(caller, planLimits.free), (left) => ({ ...left, admitted: true }))
  }
})

/** Whatever is asked of getPet, and however its path is spelled. */
const getPetPath = /^\/v1\/pets\/[^/]*$/

export const layer = HttpRouter.middleware(
  Effect.gen(function*() {
    const clock = yield* Clock.Clock
    const charge = yield* charging
    const requestIdOf = yield* requestIds
    const cors = yield* Cors.make
    const plainly = yield* Plain.make
    const draining = yield* Draining
    const underWay = yield* UnderWay

    /** Sends what was answered to a request that is charged, with what every answer has. */
    const finish = Effect.fnUntraced(function*(
      request: HttpServerRequest.HttpServerRequest,
      exchange: Exchange,
      decision: Decision,
      response: HttpServerResponse.HttpServerResponse
    ) {
      // A body that came along with its head is read by the end of the turn.
      if (isUnread(request.source)) yield* Effect.yieldNow
      const shown = headers(exchange.requestId, decision)
      if (response.headers["content-type"]?.startsWith("text/html") === true) Object.assign(shown, pageHeaders)
      if (getPetPath.test(Failure.pathOf(request.url))) Object.assign(shown, Pets.getPetHeaders)
      Object.assign(shown, cors.headers(request.method, request.headers.origin, response.headers.allow))
      if (draining.begun || isUnread(request.source)) shown.connection = "close"
      yield* report(request.method, exchange, response.status)
      return HttpServerResponse.setHeaders(response, shown)
    })

    const longWay = Effect.fnUntraced(function*<E, R>(
      request: HttpServerRequest.HttpServerRequest,
      exchange: Exchange,
      httpEffect: Effect.Effect<HttpServerResponse.HttpServerResponse, E, R>
    ) {
      const response = yield* answering(httpEffect).pipe(
        Effect.provideService(CurrentExchange, exchange),
        Effect.annotateLogs({ requestId: exchange.requestId })
      )
      if (exchange.decision !== undefined) return yield* finish(request, exchange, exchange.decision, response)
      const peer = Option.getOrElse(request.remoteAddress, () => "")
      // A fault is ours; and a preflight is the browser's, for each URL anew, of a page that may call.
      const isFree = response.status >= 500 ||
        (response.status === 204 && cors.isPreflight(request.method, request.headers))
      const decision = yield* charge(peer, request.headers["x-forwarded-for"], isFree)
      return yield* finish(
        request,
        exchange,
        decision,
        decision.admitted ? response : Failure.answer(RateLimit.exceeded(decision))
      )
    })

    return (httpEffect) =>
      Effect.flatMap(HttpServerRequest.HttpServerRequest, (request) => {
        const sent = headersOf(request)
        const exchange = Exchange.leftOf(request.source) ??
          new Exchange(requestIdOf(sent["x-request-id"]), clock.monotonicTimeNanosUnsafe())
        const { failure, route } = exchange
        // A request that the short way began has a route, and may be charged already: it is not refused again, neither
        // for what it asks nor for want of room.
        const refused = route === undefined
          ? (underWay.isFull ? overloaded : refusal(request))
          : failure && Effect.failCause(failure)
        // Where the short way leaves all: what is traced, and what comes when the end has begun.
        const plain = route === undefined && refused === undefined && request.source instanceof IncomingMessage
          ? plainly(request.source, exchange)
          : undefined
        const answer = plain === undefined
          ? longWay(request, exchange, refused ?? httpEffect)
          // As routes are; who is gone is not waited for.
          : Effect.matchCauseEffect(Effect.interruptible(plain), {
            onSuccess: (given) =>
              given === undefined || exchange.decision === undefined
                ? longWay(request, exchange, httpEffect)
                : finish(
                  request,
                  exchange,
                  exchange.decision,
                  HttpServerResponse.text(given.body, { ...given, contentType: "application/json" })
                ),
            onFailure: (cause) => longWay(request, exchange, Effect.failCause(cause))
          })
        underWay.enter()
        return Effect.onExit(answer, (exit) => {
          underWay.leave()
          return Exit.hasInterrupts(exit) ? report(request.method, exchange, clientClosedRequest) : Effect.void
        })
      })
  }),
  { global: true }
)

/** What a caller is told for whom there was no room. */
const overloaded = Effect.succeed(
  Failure.answer(new ServiceUnavailable({ message: "The service is overloaded. Retry shortly." }), {
    "retry-after": "1"
  })
)

const badHost = Effect.succeed(
  Failure.answer(new InvalidRequest({ message: "Invalid request: expected one valid Host header." }))
)
const badPath = Effect.succeed(
  Failure.answer(new InvalidRequest({ message: "Invalid request: path: expected no ; and no # in it." }))
)

/** As Node has them, where there is a Node: Effect's own are made when first read. */
const headersOf = (request: HttpServerRequest.HttpServerRequest) =>
  request.source instanceof IncomingMessage ? request.source.headers : request.headers

/** What Node would answer by itself, were it not told to leave it to us: its own answers would carry nothing. */
const refusal = (request: HttpServerRequest.HttpServerRequest) => {
  if (request.source instanceof IncomingMessage && !hasOneHost(request.source)) return badHost
  // The router would end the path there, and take what follows for the query.
  return /^[^?]*[;#]/.test(request.url) ? badPath : undefined
}

/** What is not read of a request is in the way of the next on its connection. */
const isUnread = (source: object): boolean =>
  source instanceof IncomingMessage && !source.complete &&
  (source.headers["content-length"] !== undefined || source.headers["transfer-encoding"] !== undefined)

const host = /^(?:\[[0-9a-f:.]+\]|[\w.~%!$&'()*+,;=-]*)(?::\d*)?$/i

/** RFC 9112 §3.2. */
export const hasOneHost = ({ headers: { host: given }, httpVersion, rawHeaders }: IncomingMessage): boolean => {
  if (given === undefined) return httpVersion === "1.0"
  let hosts = 0
  for (let i = 0; i < rawHeaders.length; i += 2) if (isHost(rawHeaders[i])) hosts++
  return hosts === 1 && host.test(given)
}

const isHost = (name = ""): boolean => name.length === 4 && name.toLowerCase() === "host"
