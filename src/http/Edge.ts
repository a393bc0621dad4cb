/**
 * The edge: what every answer on the API port has, whatever produced it. The Error body where it is no success, the
 * rate-limit headers, a request id, and one line in the log.
 */
import { ByteSize, Cause, Clock, Effect } from "effect"
import { SecureRandom } from "effect/crypto"
import { HttpIncomingMessage, HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import { type ApiError, UnsupportedMediaType } from "../api/Errors.ts"
import { planLimits } from "../api/Plans.ts"
import { RateLimiter } from "../RateLimiter.ts"
import { clientNetwork } from "./ClientAddress.ts"
import { CurrentExchange, Exchange } from "./Exchange.ts"
import * as Failure from "./Failure.ts"
import * as RateLimit from "./RateLimit.ts"

/** The largest body that is read. */
const maxBodySize = ByteSize.kibibytes(64)

export const layer = HttpRouter.middleware(
  Effect.gen(function*() {
    const limiter = yield* RateLimiter
    const random = yield* SecureRandom.SecureRandom

    return Effect.fnUntraced(function*(httpEffect) {
      const request = yield* HttpServerRequest.HttpServerRequest
      const startedAt = yield* Clock.currentTimeNanos
      const exchange = new Exchange(yield* random.uuidV7())

      let response = yield* httpEffect.pipe(
        Effect.catchCause((cause) => {
          if (Cause.hasInterruptsOnly(cause)) return Effect.failCause(cause)
          const error = Failure.fromCause(cause, request)
          return error.status < 500
            ? Effect.succeed(errorResponse(error))
            : Effect.as(Effect.logError("The request failed", cause), errorResponse(error))
        }),
        Effect.provideService(CurrentExchange, exchange),
        Effect.provideService(HttpIncomingMessage.MaxBodySize, maxBodySize),
        Effect.annotateLogs({ requestId: exchange.requestId })
      )
      // HttpApi answers a body of another type by itself, in plain text.
      if (response.status === 415) response = errorResponse(unsupportedMediaType)

      let decision = exchange.decision
      if (decision === undefined) {
        // Not charged to a key: to whoever sent it, which is also the brake on guessing keys.
        decision = yield* limiter.charge(`address:${clientNetwork(request)}`, planLimits.free)
        if (!decision.admitted) response = errorResponse(RateLimit.exceeded(decision))
      }
      response = HttpServerResponse.setHeaders(response, {
        ...RateLimit.headers(decision),
        ...statusHeaders(response.status, request),
        "x-request-id": exchange.requestId
      })

      const duration = Number((yield* Clock.currentTimeNanos) - startedAt) / 1e6
      yield* Effect.logInfo("request").pipe(Effect.annotateLogs({
        method: request.method,
        route: exchange.route ?? "none",
        status: response.status,
        durationMs: duration,
        keyId: exchange.keyId ?? "none",
        requestId: exchange.requestId
      }))
      return response
    })
  }),
  { global: true }
)

const errorResponse = ({ code, message, status }: ApiError): HttpServerResponse.HttpServerResponse =>
  HttpServerResponse.jsonUnsafe({ code, message, status }, { status })

const unsupportedMediaType = new UnsupportedMediaType({ message: "Send the body as application/json." })

/** What HTTP asks of an answer with this status. */
const statusHeaders = (
  status: number,
  request: HttpServerRequest.HttpServerRequest
): Readonly<Record<string, string>> => {
  switch (status) {
    case 401:
      return { "www-authenticate": "Bearer" }
    case 405:
      return { "allow": Failure.allowedMethods(request.url).join(", ") }
    case 503:
      return { "retry-after": "1" }
    default:
      return {}
  }
}
